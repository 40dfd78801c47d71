"""Message threads with the stock client library, against upstreams that know none."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anthropic
import openai
import orjson
import pytest
from anthropic import AsyncAnthropic, beta_async_tool
from openai import AsyncOpenAI

from gateway.core.formats import Format
from tests.support.gateway import ALPHA, BETA, RunningGateway, channel, run_gateway
from tests.support.upstream import (
    Response,
    ScriptedUpstream,
    event_stream,
    fixture_reply,
    fixture_stream,
    json_response,
)

FORMATS = [Format.MESSAGES, Format.CHAT]
"""Of the upstream: both lanes."""
THREADS_BETA = "message-threads-2026-08-12"


@beta_async_tool
async def add(a: int, b: int) -> str:
    """Adds.

    Args:
        a: A number.
        b: Another.
    """
    return str(a + b)


@asynccontextmanager
async def running(
    upstream: ScriptedUpstream, state_dir: Path, format: Format, **config: Any
) -> AsyncIterator[tuple[RunningGateway, AsyncAnthropic]]:
    line = channel(format, upstream.address) | config.pop("line", {})
    async with (
        run_gateway(state_dir, [line], **config) as gateway,
        AsyncAnthropic(base_url=gateway.address, api_key=gateway.key, max_retries=0) as client,
    ):
        yield gateway, client


def call(format: Format, number: int, *, streamed: bool) -> Response:
    """A reply that calls the tool; its id is always the same, as some upstreams have it."""
    arguments = {"a": number, "b": 1}
    if format is Format.MESSAGES:
        block = {"type": "tool_use", "id": f"toolu_{number}", "name": "add", "input": arguments}
        message = {
            "id": "msg_same",
            "type": "message",
            "role": "assistant",
            "model": "upstream-model",
            "content": [block],
            "stop_reason": "tool_use",
            "stop_sequence": None,
            "usage": {"input_tokens": 5, "output_tokens": 5},
        }
        return messages_stream(message) if streamed else json_response(message)
    function = {"name": "add", "arguments": orjson.dumps(arguments).decode()}
    calls = [{"index": 0, "id": f"call_{number}", "type": "function", "function": function}]
    choice = {"index": 0, "finish_reason": "tool_calls"}
    body = {"id": "same", "object": "chat.completion", "model": "m", "created": 1}
    body |= {"usage": {"prompt_tokens": 5, "completion_tokens": 5, "total_tokens": 10}}
    part = {"role": "assistant", "content": None, "tool_calls": calls}
    if not streamed:
        return json_response(body | {"choices": [choice | {"message": part}]})
    chunk = body | {"object": "chat.completion.chunk", "choices": [choice | {"delta": part}]}
    return event_stream(b"data: %b\n\ndata: [DONE]\n\n" % orjson.dumps(chunk))


def messages_stream(message: dict[str, Any]) -> Response:
    (block,) = message["content"]
    json_text = orjson.dumps(block["input"]).decode()
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": message | {"content": [], "stop_reason": None}},
        {"type": "content_block_start", "index": 0, "content_block": block | {"input": {}}},
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "input_json_delta", "partial_json": json_text},
        },
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "tool_use", "stop_sequence": None},
            "usage": {"output_tokens": 5},
        },
        {"type": "message_stop"},
    ]
    frames = (f"event: {each['type']}\ndata: {orjson.dumps(each).decode()}\n\n" for each in events)
    return event_stream("".join(frames).encode())


def history(format: Format, sent: dict[str, Any]) -> list[tuple[str, str]]:
    """Roles and the essence of what an upstream received."""
    seen = []
    for message in sent["messages"]:
        content = message.get("content")
        parts = content if isinstance(content, list) else []
        calls = message.get("tool_calls") or [p for p in parts if p["type"] == "tool_use"]
        if calls:
            seen.append(("call", calls[0]["id"].partition("_")[2]))
        elif message["role"] == "tool":
            seen.append(("result", content))
        elif parts and parts[0]["type"] == "tool_result":
            result = parts[0]["content"]
            seen.append(("result", result if isinstance(result, str) else result[0]["text"]))
        else:
            seen.append((message["role"], content if not parts else parts[0]["text"]))
    assert format
    return seen


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("format", FORMATS)
async def test_the_tool_runner(
    upstream: ScriptedUpstream, tmp_path: Path, format: Format, streamed: bool
) -> None:
    """The upstream gets the whole conversation each turn, the client sends only what is new."""
    text = fixture_stream(format) if streamed else fixture_reply(format)
    calls = [call(format, number, streamed=streamed) for number in (1, 2, 3)]
    upstream.respond_with(*calls, text)
    async with running(upstream, tmp_path, format) as (gateway, client):
        runner: Any = client.beta.messages.tool_runner(
            model=ALPHA,
            max_tokens=100,
            system="Be exact.",
            messages=[{"role": "user", "content": "Add."}],
            tools=[add],
            stream=streamed,
        )
        ids = []
        async for turn in runner:
            message = await turn.get_final_message() if streamed else turn
            ids.append(message.id)
        assert message.content[0].text == "Hello, world!"
        assert len(set(ids)) == 4
        rows = await gateway.rows(4)
        sizes = [row.bytes_in for row in rows]
    assert [request.json.get("thread") for request in upstream.requests] == [None] * 4
    expected = [("user", "Add.")]
    if format is Format.CHAT:
        expected = [("system", "Be exact."), *expected]
    for number, request in enumerate(upstream.requests, 1):
        assert history(format, request.json) == expected
        assert len(request.json["tools"]) == 1
        assert THREADS_BETA not in request.headers.get("anthropic-beta", "")
        if format is Format.MESSAGES:
            assert request.json["system"] == "Be exact."
        expected = [*expected, ("call", str(number)), ("result", str(number + 1))]
    assert max(sizes[1:]) < sizes[0]  # only new messages came


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_thread_across_a_restart(
    upstream: ScriptedUpstream, tmp_path: Path, streamed: bool
) -> None:
    text = fixture_stream if streamed else fixture_reply
    upstream.respond_with(text(Format.MESSAGES))

    async def send(client: AsyncAnthropic, thread: Any, text: str) -> Any:
        arguments: dict[str, Any] = {
            "model": ALPHA,
            "max_tokens": 9,
            "messages": [{"role": "user", "content": text}],
            "thread": thread,
            "betas": [THREADS_BETA],
        }
        if not streamed:
            return await client.beta.messages.create(**arguments)
        async with client.beta.messages.stream(**arguments) as stream:
            return await stream.get_final_message()

    async with running(upstream, tmp_path, Format.MESSAGES) as (gateway, client):
        first = await send(client, {"type": "create"}, "One")
        key = gateway.key
    async with running(upstream, tmp_path, Format.MESSAGES) as (_, client):
        other = await send(client, {"type": "create"}, "Other")
        with pytest.raises(anthropic.NotFoundError):  # of another key
            await send(client, {"type": "continue", "previous_message_id": first.id}, "Two")
        client.api_key = key
        await send(client, {"type": "continue", "previous_message_id": first.id}, "Two")
        with pytest.raises(anthropic.NotFoundError):
            await send(client, {"type": "continue", "previous_message_id": other.id}, "Two")
    sent = [message["content"] for message in upstream.last_request.json["messages"]]
    assert [sent[0], sent[2]] == ["One", "Two"]
    assert sent[1][0]["text"] == "Hello, world!"


async def test_the_library_replays_a_lost_thread(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    upstream.respond_with(fixture_reply(Format.MESSAGES))
    async with running(upstream, tmp_path, Format.MESSAGES) as (gateway, client):
        thread = client.beta.messages.thread(model=ALPHA, max_tokens=9)
        first = await thread.send({"role": "user", "content": "One"})
        store = gateway.daemon.runtime.responses
        assert await store.delete(gateway.token.id, first.id)
        await thread.send({"role": "user", "content": "Two"})
        assert [row.status for row in await gateway.rows(3)] == [200, 404, 200]
    assert len(upstream.last_request.json["messages"]) == 3


async def test_the_library_sends_everything_where_nothing_is_stored(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    upstream.respond_with(call(Format.MESSAGES, 1, streamed=False), fixture_reply(Format.MESSAGES))
    responses = {"store": False}
    async with running(upstream, tmp_path, Format.MESSAGES, responses=responses) as (_, client):
        runner = client.beta.messages.tool_runner(
            model=ALPHA,
            max_tokens=100,
            messages=[{"role": "user", "content": "Add."}],
            tools=[add],
        )
        await runner.until_done()
        with pytest.raises(anthropic.BadRequestError) as caught:
            await client.beta.messages.create(
                model=ALPHA,
                max_tokens=9,
                messages=[{"role": "user", "content": "One"}],
                thread={"type": "create"},
            )
    body: Any = caught.value.body
    assert body["error"]["details"]["error_code"] == "thread_unsupported_request"
    assert len(upstream.last_request.json["messages"]) == 3


async def test_an_upstream_that_holds_threads_gets_them(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    upstream.respond_with(fixture_reply(Format.MESSAGES))
    line = {"traits": {"threads": True}}
    async with running(upstream, tmp_path, Format.MESSAGES, line=line) as (_, client):
        thread = client.beta.messages.thread(model=ALPHA, max_tokens=9, system="Be kind.")
        first = await thread.send({"role": "user", "content": "One"})
        await thread.send({"role": "user", "content": "Two"})
    created, continued = (request.json for request in upstream.requests)
    assert created["thread"] == {"type": "create"}
    assert continued["thread"] == {"type": "continue", "previous_message_id": first.id}
    assert len(continued["messages"]) == 1
    assert THREADS_BETA in upstream.last_request.headers["anthropic-beta"]


@pytest.mark.parametrize(
    ("thread", "param"),
    [
        ({"type": "fork"}, "thread.type"),
        ({}, "thread.type"),
        ([], "thread: Input should be an object"),
        ({"type": "continue"}, "thread.previous_message_id"),
        ("create", "thread"),
    ],
)
async def test_malformed_threads(
    upstream: ScriptedUpstream, tmp_path: Path, thread: Any, param: str
) -> None:
    async with running(upstream, tmp_path, Format.MESSAGES) as (_, client):
        with pytest.raises(anthropic.BadRequestError, match=param):
            await client.beta.messages.create(
                model=ALPHA,
                max_tokens=9,
                messages=[{"role": "user", "content": "One"}],
                thread=thread,
            )
    assert upstream.requests == []


@pytest.mark.parametrize("format", Format)
async def test_tokens_of_a_thread_are_counted(
    upstream: ScriptedUpstream, tmp_path: Path, format: Format
) -> None:
    """Of all its messages, whether an upstream counts or the gateway."""
    upstream.respond_with(fixture_reply(format))
    text = "One two three. " * 200
    arguments: Any = {"model": ALPHA, "betas": [THREADS_BETA]}
    more: Any = [{"role": "user", "content": "Two"}]
    async with running(upstream, tmp_path, format) as (_, client):
        count = client.beta.messages.count_tokens
        turn = await client.beta.messages.create(
            messages=[{"role": "user", "content": text}],
            system="Be exact.",
            thread={"type": "create"},
            max_tokens=9,
            **arguments,
        )
        body = {"thread": {"type": "continue", "previous_message_id": turn.id}}
        upstream.respond_with(json_response({"input_tokens": 812}))
        counted = await count(messages=more, extra_body=body, **arguments)
        if format is Format.CHAT:
            assert counted.input_tokens > 500
        else:
            sent = upstream.last_request
            assert counted.input_tokens == 812
            assert "count_tokens" in sent.target or "input_tokens" in sent.target
            assert text.encode() in sent.body
            assert b"Hello, world!" in sent.body
            assert b"Be exact." in sent.body
            assert b"thread" not in sent.body
            assert THREADS_BETA not in sent.headers.get("anthropic-beta", "")
        body["thread"]["previous_message_id"] = "msg_unknown"
        with pytest.raises(anthropic.NotFoundError) as caught:
            await count(messages=more, extra_body=body, **arguments)
    error: Any = caught.value.body
    assert error["error"]["details"]["error_code"] == "thread_not_found"


async def test_threads_and_responses_are_apart(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    """Both are stored, but an id of one is none of the other."""
    upstream.respond_with(fixture_reply(Format.MESSAGES))
    async with running(upstream, tmp_path, Format.MESSAGES) as (gateway, client):
        arguments: Any = {"model": ALPHA, "max_tokens": 9, "betas": [THREADS_BETA]}
        more: Any = {"messages": [{"role": "user", "content": "Two"}]} | arguments
        turn = await client.beta.messages.create(
            messages=[{"role": "user", "content": "One"}], thread={"type": "create"}, **arguments
        )
        address = f"{gateway.address}/v1"
        async with AsyncOpenAI(base_url=address, api_key=gateway.key, max_retries=0) as other:
            response = await other.responses.create(model=BETA, input="One")
            with pytest.raises(openai.BadRequestError) as refused:
                await other.responses.create(model=BETA, input="Two", previous_response_id=turn.id)
            assert refused.value.code == "previous_response_not_found"
            for attempt in (other.responses.retrieve(turn.id), other.responses.delete(turn.id)):
                with pytest.raises(openai.NotFoundError):
                    await attempt
        thread: Any = {"type": "continue", "previous_message_id": response.id}
        with pytest.raises(anthropic.NotFoundError, match=response.id):
            await client.beta.messages.create(thread=thread, **more)
        thread["previous_message_id"] = turn.id
        await client.beta.messages.create(thread=thread, **more)


@pytest.mark.parametrize("format", Format)
async def test_an_unfinished_turn_goes_on(
    upstream: ScriptedUpstream, tmp_path: Path, format: Format
) -> None:
    """Without a new message, as after the stop reason `pause_turn`."""
    upstream.respond_with(fixture_reply(format))
    arguments: dict[str, Any] = {"model": ALPHA, "max_tokens": 9, "betas": [THREADS_BETA]}
    async with running(upstream, tmp_path, format) as (_, client):
        turn = await client.beta.messages.create(
            messages=[{"role": "user", "content": "One"}], thread={"type": "create"}, **arguments
        )
        for messages in ([], [{"role": "user", "content": "Two"}]):
            thread = {"type": "continue", "previous_message_id": turn.id}
            turn = await client.beta.messages.create(messages=messages, thread=thread, **arguments)
    assert len(upstream.requests) == 3
    resumed, last = (request.body for request in upstream.requests[1:])
    assert (resumed.count(b"Hello, world!"), last.count(b"Hello, world!")) == (1, 2)
    assert b"Two" in last
    with pytest.raises(anthropic.BadRequestError, match="at least one message"):
        async with running(upstream, tmp_path / "other", format) as (_, client):
            await client.beta.messages.create(messages=[], **arguments)
