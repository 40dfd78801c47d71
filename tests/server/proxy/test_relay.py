"""A stream on its way: what leaves when, and what never looks like an end."""

from __future__ import annotations

import asyncio
import re

import pytest
from aiohttp import ClientPayloadError

from gateway.core.formats import Format
from gateway.core.parts import Text
from gateway.core.reply import collect_reply
from gateway.store.records import ExchangeState
from gateway.wire.registry import CODECS
from tests.support.gateway import PATHS, RunningGateway, request_body
from tests.support.upstream import (
    TRUNCATIONS,
    Ending,
    ScriptedUpstream,
    by_byte,
    by_frame,
    event_stream,
    fixture_reply,
    fixture_stream,
)
from tests.wire.stream_cases import decode

pytestmark = pytest.mark.shared_gateway

TERMINAL = {
    Format.CHAT: b"[DONE]",
    Format.MESSAGES: b"message_stop",
    Format.RESPONSES: b"response.completed",
}


@pytest.mark.parametrize("format", Format)
async def test_the_head_of_a_stream(
    gateway: RunningGateway, upstream: ScriptedUpstream, format: Format
) -> None:
    upstream.respond_with(fixture_stream(format))
    answer = await gateway.post(format, stream=True)
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert "no-cache" in answer.headers["cache-control"]
    assert answer.headers["x-accel-buffering"] == "no"
    assert "content-encoding" not in answer.headers


@pytest.mark.parametrize("format", Format)
async def test_the_bytes_do_not_depend_on_the_chunks(
    gateway: RunningGateway, upstream: ScriptedUpstream, format: Format
) -> None:
    script = fixture_stream(format, "text_unicode")
    bodies = set()
    for shape in (script, by_frame(script), by_byte(script)):
        upstream.respond_with(shape)
        body = await (await gateway.post(format, stream=True)).read()
        bodies.add(re.sub(rb'"id":"resp_[0-9a-f]{24}"', b"", body))  # of a stored response
    (body,) = bodies
    assert TERMINAL[format] in body


@pytest.mark.parametrize("format", Format)
async def test_nothing_leaves_before_the_first_real_event(
    gateway: RunningGateway, upstream: ScriptedUpstream, format: Format
) -> None:
    """Not even the head: until then the answer may still become an HTTP error."""
    frames = by_frame(fixture_stream(format))
    upstream.respond_with(frames.with_changes(chunks=frames.chunks[:1], ending=Ending.STALLED))
    request = asyncio.ensure_future(
        gateway.http.post(
            PATHS[format],
            json=request_body(format, stream=True),
            headers={"x-api-key": gateway.key, "anthropic-version": "2023-06-01"},
        )
    )
    seen = await upstream.wait_for_request()
    done, _ = await asyncio.wait({request}, timeout=0.2)
    assert not done
    request.cancel()
    await asyncio.wait_for(seen.disconnected.wait(), 1)


@pytest.mark.parametrize("ending", TRUNCATIONS)
@pytest.mark.parametrize("format", Format)
async def test_a_truncated_stream_ends_with_an_error_frame(
    gateway: RunningGateway, upstream: ScriptedUpstream, format: Format, ending: str
) -> None:
    upstream.respond_with(by_frame(fixture_stream(format, "cut", ending=TRUNCATIONS[ending])))
    answer = await gateway.post(format, stream=True)
    body = await answer.read()
    assert answer.status == 200
    assert TERMINAL[format] not in body
    assert b"Bad upstream response" in body
    assert body.endswith(b"\n\n")


@pytest.mark.parametrize("format", Format)
async def test_a_disconnect_after_the_terminal_event_is_no_error(
    gateway: RunningGateway, upstream: ScriptedUpstream, format: Format
) -> None:
    upstream.respond_with(fixture_stream(format, ending=Ending.TRUNCATED))
    answer = await gateway.post(format, stream=True)
    body = await answer.read()
    assert TERMINAL[format] in body
    assert b"Bad upstream response" not in body
    assert (await gateway.row()).state is ExchangeState.OK


@pytest.mark.parametrize("format", Format)
async def test_pings(
    gateway: RunningGateway,
    upstream: ScriptedUpstream,
    monkeypatch: pytest.MonkeyPatch,
    format: Format,
) -> None:
    monkeypatch.setattr("gateway.server.http.client_stream.PING_INTERVAL", 0.05)
    frames = by_frame(fixture_stream(format, "cut", ending=Ending.TRUNCATED))
    upstream.respond_with(
        frames.with_changes(chunks=(frames.body, b": still here\n\n" * 2), pause=0.2)
    )
    body = await (await gateway.post(format, stream=True)).read()
    ping = {
        Format.CHAT: b'"delta":{},',
        Format.MESSAGES: b'event: ping\ndata: {"type":"ping"}\n\n',
        Format.RESPONSES: b"event: response.in_progress\n",
    }[format]
    assert body.count(ping) >= 2


@pytest.mark.parametrize("format", Format)
async def test_an_upstream_can_stream_a_body_and_send_a_stream_as_a_body(
    gateway: RunningGateway, upstream: ScriptedUpstream, format: Format
) -> None:
    upstream.respond_with(fixture_stream(format), fixture_reply(format))
    answer = await gateway.post(format)
    assert (answer.status, answer.content_type) == (200, "application/json")
    reply = CODECS[format].parse_reply(await answer.json())
    assert [part.text for part in reply.parts if isinstance(part, Text)] == ["Hello, world!"]
    streamed = await gateway.post(format, stream=True)
    assert (streamed.status, streamed.content_type) == (200, "text/event-stream")
    again = collect_reply(decode(CODECS[format].decoder(), await streamed.read()))
    assert [part.text for part in again.parts if isinstance(part, Text)] == ["Hello, world!"]
    assert again.usage == (None if format is Format.CHAT else reply.usage), (
        "chat did not request it"
    )


async def test_an_event_without_end(gateway: RunningGateway, upstream: ScriptedUpstream) -> None:
    head = by_frame(fixture_stream("chat", "cut")).body
    upstream.respond_with(
        event_stream(head).with_changes(chunks=(head, *(b"data: " + b"x" * 2**20,) * 17))
    )
    answer = await gateway.post(Format.CHAT, stream=True)
    body = await answer.read()
    assert b'"code":"upstream_event_too_large"' in body
    assert len(body) < 2**20


async def test_unreadable_frames_pass_and_are_noted(
    gateway: RunningGateway, upstream: ScriptedUpstream
) -> None:
    script = fixture_stream("chat")
    invalid_frame = b'data: {"choices": [}\n\n'
    body = script.body.replace(b"data: [DONE]", invalid_frame + b"data: [DONE]")
    upstream.respond_with(script.with_changes(chunks=(body,)))
    answer = await gateway.post(Format.CHAT, stream=True)
    assert invalid_frame in await answer.read()
    row = await gateway.row()
    assert row.state is ExchangeState.OK
    assert "JSONDecodeError" in (row.upstream_error or "")


@pytest.mark.own_gateway
async def test_a_shutdown_sends_the_client_an_error(
    gateway: RunningGateway, upstream: ScriptedUpstream
) -> None:
    upstream.respond_with(by_frame(fixture_stream("chat", "cut", ending=Ending.STALLED)))
    answer = await gateway.http.post(
        PATHS[Format.CHAT],
        json=request_body(Format.CHAT, stream=True),
        headers={"x-api-key": gateway.key},
    )
    assert await answer.content.readany()
    gateway.daemon.runtime.draining = True
    gateway.daemon.abort()
    try:
        rest = await asyncio.wait_for(answer.read(), 2)
    except ClientPayloadError:  # pragma: no cover
        pytest.fail("the stream ended without a word")
    assert b"server_is_overloaded" in rest
    assert b"[DONE]" not in rest
    refused = await gateway.post(Format.CHAT)
    assert refused.status == 503
