"""Every field of a row has a value of its own, so that no two can be swapped."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from gateway.admission.dimensions import Dimensions
from gateway.config.load import parse_config
from gateway.core.events import Failure, FailureKind, StopReason, Usage
from gateway.core.formats import Format, Lane
from gateway.core.limits import Cost
from gateway.core.prompt import Prompt
from gateway.core.target import Target
from gateway.errors import InvalidRequest
from gateway.quota.pricing import Price, Rates
from gateway.routing.router import Candidate
from gateway.runtime import Snapshot
from gateway.server.record.billing import Bill, UsageMeter
from gateway.server.record.exchange import Exchange, build_intent, build_settlement
from gateway.store.records import (
    DIMENSIONS,
    INTENT_FIELDS,
    OUTCOME_FIELDS,
    ExchangeState,
    RequestRow,
)
from tests.store.sample_rows import token

CANDIDATE = Candidate(
    "channel",
    "account",
    Format.RESPONSES,
    Lane.TRANSLATED,
    "catalog",
    Target(model="upstream model"),
)
OF_CANDIDATE = {
    "channel": "channel",
    "account": "account",
    "upstream_model": "upstream model",
    "lane": "translated",
}
INTENT = OF_CANDIDATE | {
    "id": "req",
    "started_at": 101,
    "token_id": "tok_0",
    "group_name": "group",
    "endpoint": "endpoint",
    "format": "format",
    "model": "model",
    "stream": True,
    "client_address": "address",
    "user_agent": "agent",
    "client_request_id": "of the client",
    "bytes_in": 102,
    "state": ExchangeState.RUNNING,
    "catalog_model": "catalog",
    "expected_input_tokens": 103,
    "expected_micro": 104,
    "expected_usd_micro": 105,
    "tariff": "tariff",
    "notes": "one; two",
    "end_user": "end user",
    "session": "session",
    "agent": "of an agent",
    "tag": "tag",
}
OUTCOME = OF_CANDIDATE | {
    "state": ExchangeState.UPSTREAM_CUT,
    "status": 418,
    "stop_reason": "max_tokens",
    "end_reason": "upstream_disconnect",
    "input_tokens": 201,
    "cache_read_tokens": 202,
    "cache_write_tokens": 203,
    "cache_write_1h_tokens": 204,
    "output_tokens": 205,
    "reasoning_tokens": 206,
    "web_searches": 207,
    "usage_source": "estimated",
    "first_event_us": 2_000_000,
    "total_us": 5_000_000,
    "bytes_out": 208,
    "error_code": "invalid_value",
    "error_message": "told",
    "upstream_status": 529,
    "upstream_error": "body",
    "upstream_format": "responses",
    "dropped": "seed, top_k",
    "affinity": "source",
    "affinity_kept": "outcome",
    "attempts": 3,
    "notes": "one; two",
    "cost_micro": 209,
    "usd_micro": 210,
    "upstream_id": "of the upstream",
}


@pytest.fixture
async def exchange() -> AsyncIterator[Exchange]:
    exchange, snapshot = object.__new__(Exchange), Snapshot(parse_config("channels: []"))
    meter = UsageMeter(snapshot, 0)
    meter.model, meter.estimated_tokens, meter.estimated_cost = "catalog", 103, Cost(104, 105)
    meter.price = Price(Rates(2, 1, (*range(2, 8),)), None, "tariff")
    values: dict[str, Any] = {
        **{name: INTENT[name] for name in ("id", "endpoint", "format", "client_address")},
        **{name: INTENT[name] for name in ("user_agent", "client_request_id", "bytes_in")},
        **{name: OUTCOME[name] for name in ("state", "status", "bytes_out")},
        "started": 101,
        "token": token(group="group"),
        "prompt": Prompt(format=Format.CHAT, model="model", turns=(), stream=True),
        "candidate": CANDIDATE,
        "meter": meter,
        "warnings": ["one", "two"],
        "dimensions": Dimensions(*(INTENT[name] for name in DIMENSIONS)),
        "snapshot": snapshot,
        "stop_reason": StopReason.MAX_TOKENS,
        "started_clock": 1.0,
        "committed_at": 3.0,
        "ended_at": 6.0,
        "error": InvalidRequest("told", detail="hidden"),
        "failure": Failure(kind=FailureKind.DISCONNECT, message="message", status=529, body="body"),
        "upstream_note": None,
        "dropped": frozenset({"top_k", "seed"}),
        "affinity_source": "source",
        "affinity_outcome": "outcome",
        "attempts": [1, 2, 3],
        "intent": None,
        "reply_id": "of the upstream",
    }
    for name, value in values.items():
        setattr(exchange, name, value)
    exchange.fallback = None
    yield exchange
    await snapshot.close()


def test_the_values_differ() -> None:
    assert [len(set(each.values())) for each in (INTENT, OUTCOME)] == [len(INTENT), len(OUTCOME)]


async def test_the_intent_has_its_fields_and_defaults(exchange: Exchange) -> None:
    assert set(INTENT) == {*INTENT_FIELDS, "state"}
    assert build_intent(exchange)._asdict() == RequestRow._field_defaults | INTENT


async def test_the_settlement_has_its_fields_and_those_of_the_intent(exchange: Exchange) -> None:
    expected = OUTCOME | {"config_hash": exchange.snapshot.hash, "requests": 1}
    expected |= {name: f"intent's {name}" for name in ("catalog_model", "tariff")}
    assert set(expected) == set(OUTCOME_FIELDS)
    intent = RequestRow._make(f"intent's {name}" for name in RequestRow._fields)
    intent = intent._replace(requests=1)
    usage = Usage(
        input_tokens=201,
        cache_read_tokens=202,
        cache_write_tokens=203,
        cache_write_1h_tokens=204,
        output_tokens=205,
        reasoning_tokens=206,
        web_searches=207,
    )
    row = build_settlement(exchange, intent, Bill(usage, "estimated", Cost(209, 210), 211))
    assert row._asdict() == intent._asdict() | expected
