"""The line of a request: what it says, and what it never says."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from gateway.store.records import ExchangeState, RequestRow
from gateway.telemetry.request_lines import (
    request_fields,
    request_level,
    request_object,
    request_text,
)

ROW = RequestRow(
    id="req_1",
    started_at=1_767_225_600_000_000,
    token_id="tok_1",
    group_name="team",
    endpoint="/v1/messages",
    format="messages",
    model="alpha-1",
    channel="main",
    account="a1",
    upstream_model="up",
    lane="native",
    stream=True,
    client_address="192.0.2.1",
    user_agent="agent",
    client_request_id=None,
    bytes_in=10,
    state=ExchangeState.OK,
    status=200,
    end_reason="complete",
    input_tokens=5,
    output_tokens=7,
    usage_source="upstream",
    first_event_us=1500,
    total_us=2500,
    attempts=1,
    cost_micro=1_250_000,
    usd_micro=37,
)


def unchanged(text: str) -> str:
    return text


def test_all_fields() -> None:
    assert request_object(ROW, request_fields(ROW, "sk-ab...yz", "", unchanged)) == {
        "ts": "2026-01-01T00:00:00.000000Z",
        "level": "info",
        "logger": "gateway.requests",
        "message": "request ok",
        "request_id": "req_1",
        "token_id": "tok_1",
        "key": "sk-ab...yz",
        "group": "team",
        "client": "192.0.2.1",
        "endpoint": "/v1/messages",
        "format": "messages",
        "stream": True,
        "model": "alpha-1",
        "upstream_model": "up",
        "channel": "main",
        "account": "a1",
        "attempts": 1,
        "status": 200,
        "state": "ok",
        "end_reason": "complete",
        "ttft_ms": 1.5,
        "duration_ms": 2.5,
        "input_tokens": 5,
        "cache_read_tokens": 0,
        "cache_write_tokens": 0,
        "output_tokens": 7,
        "reasoning_tokens": 0,
        "cost": 1.25,
        "cost_usd": 0.000037,
    }


def test_as_text() -> None:
    row = ROW._replace(model="a b\n\x1b[2J", first_event_us=None, usage_source="none")
    assert request_text(row, request_fields(row, "sk-ab...yz", "a1", unchanged)) == (
        "INFO gateway.requests: request ok request_id=req_1 trace_id=a1 token_id=tok_1 "
        "key=sk-ab...yz group=team client=192.0.2.1 endpoint=/v1/messages format=messages "
        'stream=true model="a b\\n\\x1b[2J" upstream_model=up channel=main account=a1 '
        "attempts=1 status=200 state=ok end_reason=complete duration_ms=2.5"
    )


@pytest.mark.parametrize(
    ("changes", "level"),
    [
        ({}, logging.INFO),
        ({"state": ExchangeState.REJECTED, "status": 429}, logging.INFO),
        ({"state": ExchangeState.REJECTED, "status": 401, "token_id": ""}, logging.INFO),
        ({"state": ExchangeState.CLIENT_GONE, "status": 499}, logging.INFO),
        ({"state": ExchangeState.REJECTED, "status": 503}, logging.WARNING),
        (
            {"state": ExchangeState.REJECTED, "status": 503, "error_code": "model_not_found"},
            logging.INFO,
        ),
        (
            {"state": ExchangeState.ERROR, "status": 503, "error_code": "model_not_found"},
            logging.WARNING,  # the upstream says so of a model of the catalog
        ),
        ({"state": ExchangeState.ERROR, "status": 200}, logging.WARNING),
        ({"state": ExchangeState.UPSTREAM_CUT, "status": 200}, logging.WARNING),
        ({"token_id": "", "endpoint": "/healthz"}, logging.DEBUG),
    ],
)
def test_levels(changes: dict[str, Any], level: int) -> None:
    assert request_level(ROW._replace(**changes)) == level


def test_what_clients_choose_is_redacted_and_cut() -> None:
    row = ROW._replace(model="m" * 1000, endpoint="/v1/models/secret")
    fields = request_fields(row, "", "", lambda text: text.replace("secret", "[redacted]"))
    assert fields["endpoint"] == "/v1/models/[redacted]"
    assert fields["model"] == "m" * 300
    assert "key" not in fields
