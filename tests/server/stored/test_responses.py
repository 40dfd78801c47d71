"""Chains of stored responses, with the client library: on every lane, across restarts and accounts,
and what the upstream receives of them."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from time import monotonic
from typing import Any

import orjson
import pytest
from openai import AsyncOpenAI, BadRequestError, NotFoundError
from openai.types.responses import Response as OpenAIResponse
from sqlalchemy import Connection, func, select

from gateway.admin.retention import delete_expired_replies
from gateway.core.formats import Format
from gateway.runtime import unix_microseconds
from gateway.store.schema import stored_items, stored_replies
from tests.support.gateway import (
    ALPHA,
    BETA,
    RunningGateway,
    channel,
    run_gateway,
)
from tests.support.upstream import (
    Response,
    ScriptedUpstream,
    fixture_reply,
    fixture_stream,
    json_response,
)

pytestmark = pytest.mark.shared_gateway

UPSTREAM_ID = "reply_01"
TURNS = 5


def sdk(gateway: RunningGateway, key: str | None = None) -> AsyncOpenAI:
    return AsyncOpenAI(base_url=f"{gateway.address}/v1", api_key=key or gateway.key, max_retries=0)


async def create(client: AsyncOpenAI, *, stream: bool = False, **fields: Any) -> OpenAIResponse:
    """The complete response, of a stream its last event's; all events name the same one."""
    fields = {"model": BETA, "input": "Hello"} | fields
    if not stream:
        return await client.responses.create(**fields)
    events = [event async for event in await client.responses.create(stream=True, **fields)]
    last = events[-1]
    assert last.type in ("response.completed", "response.incomplete")
    seen = [event.response for event in events if hasattr(event, "response")]
    assert {each.id for each in seen} == {last.response.id}
    assert {each.previous_response_id for each in seen} == {last.response.previous_response_id}
    assert {each.store for each in seen} == {last.response.store}  # type: ignore[attr-defined]  # the library has no such field
    return last.response


@asynccontextmanager
async def gateway_with(
    state_dir: Path, upstream: ScriptedUpstream, format: Format, **config: Any
) -> AsyncIterator[RunningGateway]:
    line = channel(format, upstream.address) | config.pop("line", {})
    async with run_gateway(state_dir, [line], **config) as gateway:
        yield gateway


def texts_sent(format: Format, body: Any) -> list[str]:
    """The texts of the conversation that the upstream received."""
    turns = body["input" if format is Format.RESPONSES else "messages"]
    if isinstance(turns, str):
        return [turns]
    texts = []
    for turn in turns:
        content = turn.get("content")
        parts = [{"text": content}] if isinstance(content, str) else content or []
        texts += [part["text"] for part in parts if "text" in part]
    return texts


SERVED = [(Format.RESPONSES, BETA), (Format.CHAT, BETA), (Format.MESSAGES, ALPHA)]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize(("format", "model"), SERVED)
async def test_a_chain_has_its_whole_conversation_across_a_restart(
    upstream: ScriptedUpstream, tmp_path: Path, format: Format, model: str, stream: bool
) -> None:
    play: Callable[..., Response] = fixture_stream if stream else fixture_reply
    upstream.respond_with(play(format, "text"))
    key, previous, texts = None, None, []
    for turn in range(TURNS):
        async with gateway_with(tmp_path, upstream, format) as gateway:
            key = key or gateway.key
            async with sdk(gateway, key) as client:
                fields: dict[str, Any] = {"previous_response_id": previous} if previous else {}
                reply = await create(
                    client, model=model, input=f"turn {turn}", stream=stream, **fields
                )
            assert reply.output_text == "Hello, world!"
            assert reply.previous_response_id == previous
            assert reply.store is True  # type: ignore[attr-defined]  # the library has no such field
            assert reply.id.startswith("resp_")
            texts.append(f"turn {turn}")
            assert texts_sent(format, upstream.last_request.json) == texts
            texts.append("Hello, world!")
            previous = reply.id
    assert len(upstream.requests) == TURNS


async def test_the_native_upstream_receives_a_plain_body(
    upstream: ScriptedUpstream, gateway: RunningGateway
) -> None:
    """Byte for byte: the client's own, behind what it continues, which is the same in each turn."""
    upstream.respond_with(fixture_reply(Format.RESPONSES, "text"))
    id, history = "", b""
    replied = (
        b'{"type":"message","role":"assistant","status":"completed","content":'
        b'[{"type":"output_text","text":"Hello, world!","annotations":[],"logprobs":[]}]},'
    )
    for turn in range(TURNS):
        item = b'{"role":"user","content":"turn %d","n":12345678901234567890123}' % turn
        previous = b'"previous_response_id":"%b",' % id.encode() if id else b""
        body = b'{"model":"%b",%b"input":[%b],"big":1.0}' % (BETA.encode(), previous, item)
        answer = await gateway.post(Format.RESPONSES, body)
        assert answer.status == 200
        id = (await answer.json())["id"]
        assert upstream.last_request.body == (
            b'{"store":false,"include":["reasoning.encrypted_content"],"model":"upstream-model",'
            b'"input":[%b%b],"big":1.0}' % (history, item)
        )
        history += item + b"," + replied


async def test_a_declined_response_is_not_stored(
    upstream: ScriptedUpstream, gateway: RunningGateway, openai: AsyncOpenAI
) -> None:
    upstream.respond_with(fixture_reply(Format.RESPONSES, "text"))
    reply = await openai.responses.create(model=BETA, input="one", store=False)
    assert upstream.last_request.json == {"input": "one", "model": "upstream-model", "store": False}
    assert reply.id == UPSTREAM_ID
    await assert_unknown(openai, reply.id)


async def assert_unknown(client: AsyncOpenAI, id: str) -> None:
    with pytest.raises(NotFoundError) as missing:
        await client.responses.retrieve(id)
    assert missing.value.body == {
        "message": f"Response with id '{id}' not found.",
        "type": "invalid_request_error",
        "param": "id",
        "code": None,
    }
    with pytest.raises(BadRequestError) as refused:
        await client.responses.create(model=BETA, input="x", previous_response_id=id)
    assert refused.value.body == {
        "message": f"Previous response with id '{id}' not found.",
        "type": "invalid_request_error",
        "param": "previous_response_id",
        "code": "previous_response_not_found",
    }


@pytest.mark.parametrize("format", [Format.RESPONSES, Format.CHAT])
async def test_switched_off_everywhere(
    upstream: ScriptedUpstream, tmp_path: Path, format: Format
) -> None:
    upstream.respond_with(fixture_reply(format, "text"))
    async with gateway_with(tmp_path, upstream, format, responses={"store": False}) as gateway:
        async with sdk(gateway) as client:
            reply = await create(client)
            assert reply.store is False  # type: ignore[attr-defined]  # the library has no such field
            await assert_unknown(client, reply.id)
        if format is Format.RESPONSES:
            assert upstream.last_request.json["store"] is False


async def test_another_keys_response_is_unknown(
    upstream: ScriptedUpstream, gateway: RunningGateway, openai: AsyncOpenAI
) -> None:
    upstream.respond_with(fixture_reply(Format.RESPONSES, "text"))
    reply = await create(openai)
    async with sdk(gateway, await gateway.key_for_models("*")) as other:
        await assert_unknown(other, reply.id)
        with pytest.raises(NotFoundError):
            await other.responses.delete(reply.id)
        with pytest.raises(NotFoundError):
            await other.responses.input_items.list(reply.id)
    assert (await openai.responses.retrieve(reply.id)).id == reply.id


@pytest.mark.parametrize("id", ["resp_0", "..", "a b", "%00", "ä", "x" * 4000, "💥", "' OR 1=1"])
async def test_odd_ids_are_unknown(gateway: RunningGateway, id: str) -> None:
    answer = await gateway.post(Format.RESPONSES, previous_response_id=id)
    assert answer.status == 400
    assert (await answer.json())["error"]["code"] == "previous_response_not_found"
    reference = {"type": "item_reference", "id": id}
    answer = await gateway.post(Format.RESPONSES, input=[reference])
    assert answer.status == 400
    assert (await answer.json())["error"]["code"] == "item_not_found"


async def test_two_turns_at_once_are_branches(
    upstream: ScriptedUpstream, gateway: RunningGateway, openai: AsyncOpenAI
) -> None:
    upstream.respond_with(fixture_reply(Format.RESPONSES, "text"))
    root = await create(openai, input="root")
    left, right = await asyncio.gather(
        *(create(openai, input=each, previous_response_id=root.id) for each in ("left", "right"))
    )
    assert left.id != right.id
    for branch, name in ((left, "left"), (right, "right")):
        await create(openai, input="on", previous_response_id=branch.id)
        texts = texts_sent(Format.RESPONSES, upstream.last_request.json)
        assert texts == ["root", "Hello, world!", name, "Hello, world!", "on"]


async def test_instructions_are_not_inherited(
    upstream: ScriptedUpstream, gateway: RunningGateway, openai: AsyncOpenAI
) -> None:
    upstream.respond_with(fixture_reply(Format.RESPONSES, "text"))
    first = await create(
        openai, instructions="Only once.", input=[{"role": "system", "content": "System."}]
    )
    assert first.instructions == "Only once."
    second = await create(openai, previous_response_id=first.id)
    assert second.instructions is None
    assert "instructions" not in upstream.last_request.json
    assert b"Only once." not in upstream.last_request.body


async def test_references_to_items_are_resolved(
    upstream: ScriptedUpstream, gateway: RunningGateway, openai: AsyncOpenAI
) -> None:
    upstream.respond_with(fixture_reply(Format.RESPONSES, "text"))
    first = await create(openai, input="one")
    for reference in ({"type": "item_reference", "id": "msg_1"}, {"id": "msg_1"}):
        question = {"role": "user", "content": "two"}
        second = await create(openai, input=[reference, question])
        assert texts_sent(Format.RESPONSES, upstream.last_request.json) == ["Hello, world!", "two"]
    third = await create(openai, input="three", previous_response_id=second.id)
    texts = ["Hello, world!", "two", "Hello, world!", "three"]
    assert texts_sent(Format.RESPONSES, upstream.last_request.json) == texts
    listed = await openai.responses.input_items.list(first.id)
    reference = {"type": "item_reference", "id": listed.data[0].id}
    await create(openai, input=[reference], previous_response_id=third.id)
    assert texts_sent(Format.RESPONSES, upstream.last_request.json)[-1] == "one"


async def test_an_item_that_is_named_often_counts_each_time(
    upstream: ScriptedUpstream, gateway: RunningGateway, openai: AsyncOpenAI
) -> None:
    """Refused at once, before it takes memory."""
    upstream.respond_with(fixture_reply(Format.RESPONSES, "text"))
    large = "x" * 5_000_000
    first = await create(openai, input=large)
    listed = await openai.responses.input_items.list(first.id)
    reference = {"type": "item_reference", "id": listed.data[0].id}
    await create(openai, input=[reference] * 2)
    assert texts_sent(Format.RESPONSES, upstream.last_request.json) == [large] * 2
    tracemalloc.start()
    try:
        before, started = tracemalloc.get_traced_memory()[0], monotonic()
        for count, status in ((400, 413), (2000, 400)):
            answer = await gateway.post(Format.RESPONSES, input=[reference] * count)
            assert answer.status == status
        assert monotonic() - started < 3
        assert tracemalloc.get_traced_memory()[1] - before < 20 * len(large)
    finally:
        tracemalloc.stop()
    assert len(upstream.requests) == 2
    assert gateway.daemon.runtime.bodies.total == 0


async def test_a_named_item_is_booked_before_it_is_expanded(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    upstream.respond_with(fixture_reply(Format.RESPONSES, "text"))
    limits = {"max_body": 8 * 2**20, "max_bodies": 16 * 2**20}
    async with (
        gateway_with(tmp_path, upstream, Format.RESPONSES, server=limits) as gateway,
        sdk(gateway) as client,
    ):
        first = await create(client, input="x" * 1_000_000)
        item = (await client.responses.input_items.list(first.id)).data[0]
        reference = {"type": "item_reference", "id": item.id}
        pool = gateway.daemon.runtime.bodies
        pool.add("other", "192.0.2.1", 10 * 2**20)
        answer = await gateway.post(Format.RESPONSES, input=[reference] * 7)
        assert answer.status == 503
        pool.add("other", "192.0.2.1", -10 * 2**20)
        assert pool.total == 0


async def test_signed_reasoning_comes_along(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    """A tool loop of two turns on a messages upstream, whose signatures have to come back."""
    upstream.respond_with(
        fixture_reply(Format.MESSAGES, "thinking_then_tool"), fixture_reply(Format.MESSAGES, "text")
    )
    tool = {"type": "function", "name": "get_weather", "parameters": {"type": "object"}}
    async with gateway_with(tmp_path, upstream, Format.MESSAGES) as gateway, sdk(gateway) as client:
        fields: dict[str, Any] = {"model": ALPHA, "tools": [tool], "reasoning": {"effort": "low"}}
        first = await create(client, input="Weather?", **fields)
        call = next(item for item in first.output if item.type == "function_call")
        output = {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}
        await create(client, input=[output], previous_response_id=first.id, **fields)
    thinking = orjson.loads(fixture_reply(Format.MESSAGES, "thinking_then_tool").body)["content"][0]
    assert thinking["type"] == "thinking"
    roles = [turn["role"] for turn in upstream.last_request.json["messages"]]
    assert roles == ["user", "assistant", "user"]
    _, assistant, result = upstream.last_request.json["messages"]
    assert assistant["content"][0] == thinking
    assert assistant["content"][-1]["type"] == "tool_use"
    assert result["content"][0]["content"] == "sunny"


async def test_native_reasoning_comes_along(
    upstream: ScriptedUpstream, gateway: RunningGateway, openai: AsyncOpenAI
) -> None:
    reasoning = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "ZW5j"}
    body = orjson.loads(fixture_reply(Format.RESPONSES, "text").body)
    body["output"].insert(0, reasoning)
    upstream.respond_with(json_response(body))
    first = await create(openai)
    await create(openai, previous_response_id=first.id)
    assert reasoning in upstream.last_request.json["input"]


async def test_a_chain_moves_to_another_account_and_format(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    failing = channel(Format.RESPONSES, upstream.address, name="first", priority=0)
    other = channel(Format.CHAT, upstream.address, name="second", priority=1)
    upstream.respond_with(fixture_reply(Format.RESPONSES, "text"))
    async with run_gateway(tmp_path, [failing, other]) as gateway, sdk(gateway) as client:
        first = await create(client, input="one")
        assert upstream.last_request.url.path == "/v1/responses"
        upstream.respond_with(json_response({}, 500), fixture_reply(Format.CHAT, "text"))
        second = await create(client, input="two", previous_response_id=first.id)
        assert upstream.last_request.url.path == "/v1/chat/completions"
        assert texts_sent(Format.CHAT, upstream.last_request.json) == [
            "one",
            "Hello, world!",
            "two",
        ]
        upstream.respond_with(fixture_reply(Format.RESPONSES, "text"))
        await create(client, input="three", previous_response_id=second.id)
        assert texts_sent(Format.RESPONSES, upstream.last_request.json)[-1] == "three"


async def test_an_expired_response_is_unknown(
    upstream: ScriptedUpstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    upstream.respond_with(fixture_reply(Format.RESPONSES, "text"))
    async with (
        gateway_with(tmp_path, upstream, Format.RESPONSES, responses={"ttl": "1h"}) as gateway,
        sdk(gateway) as client,
    ):
        first = await create(client, input="one")
        second = await create(client, input="two", previous_response_id=first.id)
        await gateway.daemon.runtime.responses.flush()
        store = gateway.daemon.runtime.responses
        monkeypatch.setattr(store, "_now", lambda: unix_microseconds() + 3_601_000_000)
        for expired in (first, second):
            await assert_unknown(client, expired.id)
        assert await delete_expired_replies(gateway.daemon.runtime) == 2
        assert await gateway.operations.database.write(count_rows) == (0, 0)


def count_rows(connection: Connection) -> tuple[int, ...]:
    tables = (stored_replies, stored_items)
    return tuple(
        connection.scalar(select(func.count()).select_from(table)) or 0 for table in tables
    )


async def test_a_chain_beyond_the_largest_body_is_refused(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    upstream.respond_with(fixture_reply(Format.RESPONSES, "text"))
    async with (
        gateway_with(
            tmp_path, upstream, Format.RESPONSES, server={"max_body": "100KiB"}
        ) as gateway,
        sdk(gateway) as client,
    ):
        first = await create(client, input="x" * 60_000)
        with pytest.raises(BadRequestError) as refused:
            await create(client, input="x" * 60_000, previous_response_id=first.id)
        assert refused.value.code == "previous_response_too_large"
        assert refused.value.param == "previous_response_id"
        await create(client, input="x" * 20_000, previous_response_id=first.id)


@pytest.mark.parametrize("format", [Format.RESPONSES, Format.CHAT])
async def test_what_broke_off_is_not_stored(
    upstream: ScriptedUpstream, tmp_path: Path, format: Format
) -> None:
    upstream.respond_with(fixture_stream(format, "cut"))
    async with gateway_with(tmp_path, upstream, format) as gateway, sdk(gateway) as client:
        id = ""
        async for event in await client.responses.create(model=BETA, input="x", stream=True):
            id = event.response.id if hasattr(event, "response") else id
        assert id.startswith("resp_")
        await assert_unknown(client, id)
