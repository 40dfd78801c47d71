"""The cost of a reply in its usage: for who asks, equal to the row's, and for nobody else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI

from gateway.core.formats import Format
from tests.server.record.test_billing_tiers import MODELS, answer, only
from tests.support.gateway import run_gateway
from tests.support.upstream import ScriptedUpstream, json_response

ASKS = {"x-gateway-cost": "1"}
PAIRS = [(client, format) for client in Format for format in Format]


def usages(text: str, *, streamed: bool) -> list[dict[str, Any]]:
    """Every usage that a reply has."""
    lines = text.splitlines() if streamed else [f"data: {text}"]
    found = []
    for line in lines:
        if line.startswith("data: {"):
            event = orjson.loads(line[6:])
            found += [event.get("usage"), event.get("response", {}).get("usage")]
    return [usage for usage in found if usage]


@pytest.mark.parametrize("streamed", [False, True])
async def test_usage_has_the_cost_of_the_row(
    upstream: ScriptedUpstream, tmp_path: Path, streamed: bool
) -> None:
    lines = [only(format, upstream.address) for format in Format]
    async with run_gateway(tmp_path, lines, models=MODELS) as gateway:
        for answered in (streamed, not streamed):
            for client, format in PAIRS:
                upstream.respond_with(answer(format, streamed=answered, tier="priority"))
                reply = await gateway.post(
                    client, model=f"model-{format}", stream=streamed, headers=ASKS
                )
                assert reply.status == 200, await reply.text()
                *others, last = usages(await reply.text(), streamed=streamed)
                row = (await gateway.rows())[-1]
                assert last["cost"] == row.usd_micro / 10**6 > 0, (client, format, answered)
                assert not any("cost" in usage for usage in others)
                assert row.state == "ok"
        assert (await gateway.operations.check_integrity()).ok


@pytest.mark.parametrize("streamed", [False, True])
async def test_native_bytes_stay_where_nobody_asks(
    upstream: ScriptedUpstream, tmp_path: Path, streamed: bool
) -> None:
    """Nor is there a cost where nothing has a price in dollars."""
    free = [{"id": f"model-{format}", "family": "beta", "multiplier": 1} for format in Format]
    lines = [only(format, upstream.address) for format in Format]
    cases: Any = (
        ("plain", MODELS, {}),
        ("no", MODELS, {"x-gateway-cost": "0"}),
        ("free", free, ASKS),
    )
    for name, models, headers in cases:
        async with run_gateway(tmp_path / name, lines, models=models) as gateway:
            for format in Format:
                options: dict[str, Any] = {}
                if streamed and format is Format.CHAT:
                    options = {"stream_options": {"include_usage": True}}
                upstream.respond_with(sent := answer(format, streamed=streamed))
                reply = await gateway.post(
                    format, model=f"model-{format}", stream=streamed, headers=headers, **options
                )
                received = (await reply.read()).replace(f"model-{format}".encode(), b"m")
                assert b"cost" not in received
                if format is not Format.RESPONSES:  # it repeats fields of the request
                    assert received == sent.body


@pytest.mark.parametrize("client", Format)
async def test_each_way_to_ask(upstream: ScriptedUpstream, tmp_path: Path, client: Format) -> None:
    lines = [only(format, upstream.address) for format in Format]
    async with run_gateway(tmp_path, lines, models=MODELS) as gateway:

        async def has_cost(**fields: Any) -> bool:
            upstream.respond_with(answer(client, streamed=True))
            model = f"model-{client}"
            reply = await gateway.post(client, model=model, stream=True, **fields)
            found = usages(await reply.text(), streamed=True)
            return any("cost" in usage for usage in found)

        assert not await has_cost()
        if client is Format.CHAT:
            assert await has_cost(usage={"include": True})
            assert "usage" not in upstream.requests[-1].json
            assert not await has_cost(usage={"include": False})
        await gateway.operations.update_key(gateway.token.id, cost_in_usage=True)
        assert await has_cost()
        await gateway.operations.update_key(gateway.token.id, cost_in_usage=False)
        assert not await has_cost()


async def test_stock_clients_read_it(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    lines = [only(format, upstream.address) for format in Format]
    async with run_gateway(tmp_path, lines, models=MODELS) as gateway:
        openai = AsyncOpenAI(
            base_url=f"{gateway.address}/v1", api_key=gateway.key, default_headers=ASKS
        )
        anthropic = AsyncAnthropic(
            base_url=gateway.address, api_key=gateway.key, default_headers=ASKS
        )
        costs: list[Any] = []
        async with openai, anthropic:
            upstream.respond_with(answer(Format.CHAT, streamed=True))
            chunks = await openai.chat.completions.create(
                model="model-chat", messages=[{"role": "user", "content": "Hi"}], stream=True
            )
            costs += [chunk.usage.to_dict()["cost"] async for chunk in chunks if chunk.usage]
            upstream.respond_with(answer(Format.RESPONSES, streamed=True))
            async with openai.responses.stream(model="model-responses", input="Hi") as events:
                response = await events.get_final_response()
            assert response.usage is not None
            costs.append(response.usage.to_dict()["cost"])
            upstream.respond_with(answer(Format.MESSAGES, streamed=True))
            async with anthropic.messages.stream(
                model="model-messages", max_tokens=9, messages=[{"role": "user", "content": "Hi"}]
            ) as stream:
                deltas = [event async for event in stream if event.type == "message_delta"]
            costs.append(deltas[-1].usage.to_dict()["cost"])
        rows = await gateway.rows(3)
        assert costs == [row.usd_micro / 10**6 for row in rows]


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_large_reply(upstream: ScriptedUpstream, tmp_path: Path, streamed: bool) -> None:
    """It is read by a thread, and every other byte of it stays."""
    text = "word " * 100_000
    message = {"role": "assistant", "content": text}
    usage = {"prompt_tokens": 12, "completion_tokens": 100_000, "total_tokens": 100_012}
    body = {"id": "c", "object": "chat.completion", "model": "m", "usage": usage}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    upstream.respond_with(json_response(body | {"choices": [choice]}))
    lines = [only(Format.CHAT, upstream.address)]
    async with run_gateway(tmp_path, lines, models=MODELS) as gateway:
        reply = await gateway.post(
            Format.CHAT, model="model-chat", stream=streamed, headers=ASKS, max_tokens=100_000
        )
        received = await reply.text()
        (row,) = await gateway.rows(1)
        assert usages(received, streamed=streamed)[-1]["cost"] == row.usd_micro / 10**6 > 100
        if not streamed:
            answered = orjson.loads(received)
            assert answered["choices"] == [choice]
            assert answered["usage"] == usage | {"cost": row.usd_micro / 10**6}
