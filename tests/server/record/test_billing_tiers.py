"""Prices by service tier, length of the input and channel, with real exchanges."""

from __future__ import annotations

import asyncio
from decimal import Decimal
from pathlib import Path
from typing import Any

import orjson
import pytest

from gateway.core.formats import Format
from gateway.core.limits import Currency
from gateway.quota.limits import HolderKind
from tests.server.key_limits import limit_key, start_request
from tests.support.gateway import ALPHA, BETA, channel, run_gateway
from tests.support.upstream import Response, ScriptedUpstream, event_stream, json_response

PRICE = {
    "input": 1000,
    "output": 8000,
    "cache_read": 100,
    "above": [{"tokens": 12, "input": 2000, "output": 10_000}],
    "service_tiers": {"priority": 2, "flex": 0.5, "fast": 6},
}
COST = 8 * 1000 + 4 * 100 + 4 * 8000
LONG_COST = 9 * 2000 + 4 * 200 + 4 * 10_000
"""Of 8 or 9 tokens of fresh input, 4 of cached input and 4 of output, in millionths."""


def answer(
    format: Format, *, streamed: bool = False, tier: str | None = None, fresh: int = 8
) -> Response:
    """A reply that states the tier; fast is a speed in messages."""
    body = _body(format, tier, fresh)
    return _stream(format, body) if streamed else json_response(body)


def _body(format: Format, tier: str | None, fresh: int) -> dict[str, Any]:
    stated = {} if tier is None else {"service_tier": tier}
    if format is Format.CHAT:
        choice = {"message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}
        cached = {"cached_tokens": 4}
        usage: dict[str, Any] = {"prompt_tokens": fresh + 4, "completion_tokens": 4}
        usage["prompt_tokens_details"] = cached
        body = {"id": "c", "object": "chat.completion", "model": "m", "usage": usage}
        return body | {"choices": [{"index": 0} | choice]} | stated
    usage = {"input_tokens": fresh, "output_tokens": 4}
    if format is Format.MESSAGES:
        stated = {"service_tier": "standard", "speed": "fast"} if tier == "fast" else stated
        usage |= {"cache_read_input_tokens": 4} | stated
        body = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m"}
        content = [{"type": "text", "text": "Hi"}]
        return body | {"content": content, "stop_reason": "end_turn", "usage": usage}
    usage |= {"input_tokens": fresh + 4, "input_tokens_details": {"cached_tokens": 4}}
    text = {"type": "output_text", "text": "Hi", "annotations": []}
    item = {"id": "msg_1", "type": "message", "role": "assistant", "content": [text]}
    body = {"id": "resp_1", "object": "response", "status": "completed", "model": "m"}
    return body | {"output": [item], "usage": usage} | stated


def _stream(format: Format, body: dict[str, Any]) -> Response:
    usage = body.pop("usage")
    if format is Format.CHAT:
        (choice,) = body.pop("choices")
        delta, end = {"index": 0, "delta": choice["message"]}, {"index": 0, "delta": {}}
        finish = end | {"finish_reason": "stop"}
        events = [body | {"choices": [each]} for each in (delta, finish)]
        events += [body | {"choices": [], "usage": usage}]
    elif format is Format.MESSAGES:
        (block,) = body.pop("content")
        delta = {"type": "text_delta", "text": block["text"]}
        message = body | {"content": [], "usage": usage, "stop_reason": None}
        events = [
            {"type": "message_start", "message": message},
            {"type": "content_block_start", "index": 0, "content_block": block | {"text": ""}},
            {"type": "content_block_delta", "index": 0, "delta": delta},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": usage},
            {"type": "message_stop"},
        ]
    else:
        (item,), begun = body["output"], body | {"output": [], "service_tier": "auto"}
        events = [
            {"type": "response.created", "response": begun},
            {"type": "response.output_item.added", "output_index": 0, "item": item},
            {"type": "response.output_item.done", "output_index": 0, "item": item},
            {"type": "response.completed", "response": body | {"usage": usage}},
        ]
    frames = [b"data: " + orjson.dumps(event) + b"\n\n" for event in events]
    names = [f"event: {e['type']}\n".encode() if "type" in e else b"" for e in events]
    done = b"data: [DONE]\n\n" if format is Format.CHAT else b""
    return event_stream(b"".join(map(bytes.__add__, names, frames)) + done)


def only(format: Format, address: str, **changes: Any) -> dict[str, Any]:
    """A channel that serves the model of its format."""
    return channel(format, address, models={f"model-{format}": "m"}, **changes)


MODELS = [{"id": f"model-{format}", "family": "beta", "price": PRICE} for format in Format]


@pytest.mark.parametrize("streamed", [False, True])
async def test_the_tier_that_the_reply_states_and_the_length_of_the_input(
    upstream: ScriptedUpstream, tmp_path: Path, streamed: bool
) -> None:
    lines = [only(format, upstream.address) for format in Format]
    cases = [
        (client, format, *case)
        for client in Format
        for format in Format
        for case in (
            (None, 8, COST),
            ("default", 8, COST),
            ("priority", 8, 2 * COST),
            ("fast", 8, 6 * COST),
            (None, 9, LONG_COST),
            ("flex", 9, LONG_COST // 2),
        )
    ]
    headers = []
    async with run_gateway(tmp_path, lines, models=MODELS) as gateway:
        for client, format, tier, fresh, _ in cases:
            upstream.respond_with(answer(format, streamed=streamed, tier=tier, fresh=fresh))
            received = await gateway.post(client, model=f"model-{format}", stream=streamed)
            assert received.status == 200, await received.text()
            headers.append(received.headers.get("x-gateway-cost"))
        rows = await gateway.rows(len(cases))
        for row, case, stated in zip(rows, cases, headers, strict=True):
            client, format, tier, fresh, usd = case
            assert stated == (None if streamed else f"{Decimal(usd) / 10**6:f}")
            assert (row.usd_micro, row.input_tokens) == (usd, fresh + 4), case
            assert row.cost_micro == (fresh + 8) * 1_000_000, "units are not affected"
            tariff = row.tariff or ""
            assert ("more than 12 input tokens: input 2000," in tariff) is (fresh == 9)
            factor = {"priority": 2, "fast": 6, "flex": 0.5}.get(tier or "")
            scope = f"; service tier {tier}: times {factor}"
            assert tariff.endswith(scope) if factor else "service tier" not in tariff
        token = await gateway.operations.get_key(gateway.token.id)
        assert token.usd_micro == sum(row.usd_micro for row in rows)
        assert (await gateway.operations.check_integrity()).ok


@pytest.mark.parametrize("streamed", [False, True])
async def test_the_requested_tier_where_the_reply_states_none(
    upstream: ScriptedUpstream, tmp_path: Path, streamed: bool
) -> None:
    """Parameters of a channel decide what is requested."""
    lines = [only(format, upstream.address) for format in Format]
    forced = {"id": "forced", "family": "beta", "price": PRICE}
    params = {"service_tier": "priority"}
    lines += [
        channel(Format.CHAT, upstream.address, name="forced", models={"forced": "m"}, params=params)
    ]
    cases: list[tuple[Format, str, dict[str, Any], str | None, float]] = [
        (Format.CHAT, "model-chat", {"service_tier": "flex"}, None, 0.5),
        (Format.RESPONSES, "model-responses", {"service_tier": "flex"}, "auto", 0.5),
        (Format.RESPONSES, "model-chat", {"service_tier": "priority"}, None, 2),
        (Format.RESPONSES, "model-chat", {"service_tier": "priority"}, "default", 1),
        (Format.MESSAGES, "model-messages", {"speed": "fast"}, None, 6),
        (Format.CHAT, "model-messages", {"service_tier": "priority"}, None, 1),
        (Format.CHAT, "forced", {"service_tier": "flex"}, None, 2),
    ]
    async with run_gateway(tmp_path, lines, models=[*MODELS, forced]) as gateway:
        for client, model, fields, tier, _ in cases:
            name = model.removeprefix("model-")
            format = Format(name) if name in list(Format) else Format.CHAT
            upstream.respond_with(answer(format, streamed=streamed, tier=tier))
            received = await gateway.post(client, model=model, stream=streamed, **fields)
            assert received.status == 200, await received.text()
        rows = await gateway.rows(len(cases))
        assert [row.usd_micro / COST for row in rows] == [case[-1] for case in cases]


async def test_the_price_of_the_channel_that_has_served_the_request(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    own = {"input": 1, "output": 2, "service_tiers": {"priority": 3}}
    lines = [
        channel(Format.CHAT, upstream.address, priority=2),
        channel(Format.CHAT, upstream.address, name="own", priority=1, prices={BETA: own}),
    ]
    models = [{"id": id, "family": "beta", "price": PRICE} for id in (ALPHA, BETA)]
    overloaded = json_response({"error": {"message": "overloaded"}}, 503)
    async with run_gateway(tmp_path, lines, models=models) as gateway:
        for model in (BETA, ALPHA):
            upstream.respond_with(overloaded, answer(Format.CHAT, tier="priority"))
            assert (await gateway.post(Format.CHAT, model=model)).status == 200
        served = {row.model: row for row in await gateway.rows(2)}
        assert {row.channel for row in served.values()} == {"own"}
        assert served[BETA].usd_micro == 3 * (12 * 1 + 4 * 2)
        assert (served[BETA].tariff or "").endswith(
            "; USD per million tokens: input 1, output 2, cache read 1, cache write 1, cache write "
            "1h 1; service tier priority: times 3"
        )
        assert served[ALPHA].usd_micro == 2 * COST
        assert (await gateway.operations.check_integrity()).ok


async def test_a_budget_in_dollars_has_room_for_the_highest_price(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    """Two requests of the price itself would fit, but not where one of them is served as
    priority."""
    price = {"input": 1, "output": 80, "service_tiers": {"priority": 2, "flex": 0.5}}
    models = [{"id": BETA, "family": "beta", "price": price}]
    lines = [channel(Format.CHAT, upstream.address, models={BETA: "m"})]
    upstream.respond_with(
        answer(Format.CHAT, tier="priority").with_changes(delay=0.3), answer(Format.CHAT)
    )
    async with run_gateway(tmp_path, lines, models=models) as gateway:
        limit_key(gateway, budget_usd=1000)
        first = start_request(gateway, Format.CHAT, max_tokens=4)
        while not upstream.requests:
            await asyncio.sleep(0.01)
        (in_use,) = await gateway.operations.list_budgets()
        assert 640 < in_use.reserved < 750, "twice 4 tokens of output"
        assert (await gateway.post(Format.CHAT, max_tokens=4)).status == 429
        assert (await first).status == 200
        await gateway.rows(2)
        tracker = gateway.daemon.runtime.quota.budget(
            HolderKind.KEY, gateway.token.id, Currency.USD
        )
        assert (tracker.total, tracker.reserved) == (2 * (12 + 4 * 80), 0)
