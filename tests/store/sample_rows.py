"""Rows for the ledger's tests, and the raw second connection that looks at a file from outside."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gateway.store import keys
from gateway.store.records import AttemptRow, ExchangeState, RequestRow, Token, TokenState
from tests.support.databases import raw_connection

START = 1_790_000_000_000_000


def request_id(number: int) -> str:
    return f"req_{number:024d}"


def token(number: int = 0, **changes: Any) -> Token:
    key = keys.generate_key()
    fields: dict[str, Any] = {
        "id": f"tok_{number}",
        "name": f"name {number}",
        "digest": keys.digest(key),
        "display": keys.display(key),
        "group": "default",
        "state": TokenState.ACTIVE,
        "created_at": START + number,
    }
    return Token(**fields | changes)


def intent(number: int, token_id: str = "tok_0", **changes: Any) -> RequestRow:
    return RequestRow(
        id=request_id(number),
        started_at=START + number,
        token_id=token_id,
        group_name="default",
        endpoint="/v1/messages",
        format="messages",
        model="alpha-sonnet-4-6",
        channel="main",
        account="a1",
        upstream_model="alpha-sonnet-4-6",
        lane="native",
        stream=True,
        client_address="127.0.0.1",
        user_agent="client/1.0",
        client_request_id=None,
        bytes_in=1234,
        state=ExchangeState.RUNNING,
    )._replace(**changes)


def attempt(**changes: Any) -> AttemptRow:
    return AttemptRow(
        channel="main",
        account="a1",
        upstream_model="alpha-sonnet-4-6",
        format="messages",
        lane="native",
        reason="the conversation's own",
        started_us=2_000,
        first_event_us=348_000,
        total_us=1_198_000,
        status=200,
        verdict="ok",
    )._replace(**changes)


def failed_attempt(**changes: Any) -> AttemptRow:
    return attempt(
        first_event_us=None,
        total_us=120_000,
        status=429,
        verdict="rate limited",
        blame="capacity",
        effect="cool",
        next="other account",
        error='{"error": {"message": "slow down"}}',
    )._replace(**changes)


def settlement(number: int, token_id: str = "tok_0", **changes: Any) -> RequestRow:
    """The end of `intent(number, token_id)`."""
    return settled(intent(number, token_id), **changes)


def settled(row: RequestRow, **changes: Any) -> RequestRow:
    """The end of that intent."""
    outcome: dict[str, Any] = {
        "state": ExchangeState.OK,
        "status": 200,
        "stop_reason": "end_turn",
        "input_tokens": 100,
        "cache_read_tokens": 40,
        "cache_write_tokens": 10,
        "output_tokens": 7,
        "reasoning_tokens": 3,
        "usage_source": "upstream",
        "first_event_us": 350_000,
        "total_us": 1_200_000,
        "bytes_out": 4321,
        "upstream_status": 200,
    }
    return row._replace(**outcome | changes)


def integrity_check(path: Path) -> str:
    with raw_connection(path) as connection:
        return str(connection.execute("PRAGMA integrity_check").fetchone()[0])
