"""Receipts of attempts that failed: what they used and cost, charged or not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from gateway.admin.receipt import attempt_lines, receipt_lines
from gateway.core.events import Usage
from gateway.core.formats import Format
from tests.support.gateway import ALPHA, BETA, channel, run_gateway
from tests.support.searches import model_reply, search, search_tool, searching_gateway
from tests.support.upstream import Response, ScriptedUpstream, event_stream, json_response

PRICE = {"input": 1000, "output": 8000, "cache_read": 100, "service_tiers": {"priority": 2}}


def broken(read: int = 4) -> Response:
    """A stream that has reported its input and breaks off before its reply begins."""
    usage = {"input_tokens": 8, "cache_read_input_tokens": read, "output_tokens": 1}
    message: dict[str, Any] = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m"}
    message |= {"content": [], "usage": usage, "stop_reason": None}
    start = {"type": "message_start", "message": message}
    return event_stream(b"event: message_start\ndata: " + orjson.dumps(start) + b"\n\n")


def whole() -> Response:
    usage = {"input_tokens": 10, "output_tokens": 2}
    message: dict[str, Any] = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m"}
    message |= {"content": [{"type": "text", "text": "Hi"}], "stop_reason": "end_turn"}
    return json_response(message | {"usage": usage})


@pytest.mark.parametrize("charge", ["final", "all"])
async def test_an_attempt_that_failed_has_a_receipt(
    upstream: ScriptedUpstream, tmp_path: Path, charge: str
) -> None:
    models = [{"id": ALPHA, "family": "alpha", "price": PRICE}]
    lines = [channel(Format.MESSAGES, upstream.address, models={ALPHA: "m"})]
    lines[0]["accounts"].append({"name": "second", "key": "key-for-tests-2"})
    overloaded = json_response({"type": "error", "error": {"message": "busy"}}, 529)
    upstream.respond_with(broken(), whole(), overloaded, whole())
    money = {"charge": charge}
    async with run_gateway(tmp_path, lines, models=models, money=money) as gateway:
        for _ in range(2):
            received = await gateway.post(Format.MESSAGES, model=ALPHA, stream=True)
            assert received.status == 200
            await received.read()
        rows = await gateway.rows(2)
        failed, served = await gateway.operations.list_attempts(rows[0].id)
        assert (served.verdict, served.receipt) == ("ok", None)
        assert failed.receipt is not None
        receipt = orjson.loads(failed.receipt)
        lost = 8 * 1000 + 4 * 100 + 1 * 8000
        assert (receipt["usd_micro"], receipt["source"]) == (lost, "estimated")
        assert receipt["charged"] is (charge == "all")
        text = list(attempt_lines(failed.receipt))
        assert text[0].startswith("Cost of this attempt: $0.0164, ")
        assert text[2] == "4 cache read tokens × $100 / 1M = $0.0004"
        cost = 10 * 1000 + 2 * 8000
        assert rows[0].usd_micro == cost + (lost if charge == "all" else 0)
        assert ("USD of failed attempts: 0.0164" in (rows[0].tariff or "")) is (charge == "all")
        assert rows[0].input_tokens == 10
        refused, _ = await gateway.operations.list_attempts(rows[1].id)
        assert (refused.receipt, rows[1].usd_micro) == (None, cost), "errors cost nothing"
        token = await gateway.operations.get_key(gateway.token.id)
        assert token.usd_micro == sum(row.usd_micro for row in rows)
        assert (await gateway.operations.check_integrity()).ok


def test_the_lines_of_a_row() -> None:
    counts = {"input_tokens": 1273, "cache_read_tokens": 1246, "cache_write_tokens": 0}
    counts |= {"cache_write_1h_tokens": 0, "output_tokens": 77, "reasoning_tokens": 7}
    counts |= {"web_searches": 2}
    tariff = (
        "model 1, group 0.8; USD per million tokens: input 2, output 10, cache read 0.2, "
        "reasoning 20; USD per 1000 searches: 10; service tier priority: times 2"
    )
    assert list(receipt_lines(counts, tariff)) == [
        "27 input tokens × $2 / 1M × 0.8 (group) × 2 (service tier priority) = $0.0000864",
        "1\u202f246 cache read tokens × $0.2 / 1M × 0.8 (group) × 2 (service tier priority)"
        " = $0.00039872",
        "70 output tokens × $10 / 1M × 0.8 (group) × 2 (service tier priority) = $0.00112",
        "7 reasoning tokens × $20 / 1M × 0.8 (group) × 2 (service tier priority) = $0.000224",
        "2 searches × $10 / 1000 × 0.8 (group) = $0.016",
    ]
    assert list(receipt_lines(counts, "model 1, group 1")) == []
    assert list(receipt_lines(counts, None)) == []


@pytest.mark.parametrize("streamed", [False, True])
async def test_each_request_of_a_reply_with_searches_has_its_lines(
    tmp_path: Path, streamed: bool
) -> None:
    """The second is long, so that its tokens cost more."""
    price = PRICE | {"above": [{"tokens": 100, "input": 2000, "output": 9000}]}
    models = [{"id": id, "family": "alpha", "price": price} for id in (ALPHA, BETA)]
    few, many = Usage(input_tokens=100, output_tokens=10), Usage(input_tokens=101, output_tokens=10)
    async with searching_gateway(tmp_path, Format.CHAT, models=models) as searching:
        searching.upstream.respond_with(
            model_reply(Format.CHAT, search(), usage=few),
            model_reply(Format.CHAT, "Found.", usage=many),
        )
        fields: dict[str, Any] = search_tool(Format.MESSAGES) | {"stream": streamed}
        reply = await searching.gateway.post(
            Format.MESSAGES, model=ALPHA, headers={"x-gateway-cost": "1"}, **fields
        )
        assert reply.status == 200, await reply.text()
        cost = 100 * 1000 + 10 * 8000 + 101 * 2000 + 10 * 9000
        assert f'"cost":{cost / 10**6}' in await reply.text()
        (row,) = await searching.gateway.rows(1)
        assert row.usd_micro == cost
        (attempt,) = await searching.gateway.operations.list_attempts(row.id)
        assert list(attempt_lines(attempt.receipt)) == [
            "Request 1: $0.18.",
            "100 input tokens × $1000 / 1M = $0.1",
            "10 output tokens × $8000 / 1M = $0.08",
            "Request 2: $0.292.",
            "101 input tokens × $2000 / 1M = $0.202",
            "10 output tokens × $9000 / 1M = $0.09",
        ]
