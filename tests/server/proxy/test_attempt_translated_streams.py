"""Streams between formats that end early, begin late, or are none."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gateway.core.events import StopReason
from gateway.core.formats import Format
from gateway.core.parts import Text
from gateway.store.records import ExchangeState
from tests.server.format_pairs import (
    EXPECTED,
    PAIRS,
    TOOLS,
    TRANSLATED_PAIRS,
    OpenGateway,
    meaning,
    parse_stream,
    usage_option,
)
from tests.support.gateway import request_body
from tests.support.upstream import (
    Ending,
    Response,
    ScriptedUpstream,
    by_frame,
    fixture_reply,
    fixture_stream,
    json_response,
)


@pytest.mark.parametrize(
    ("client_format", "fields"),
    [
        (Format.MESSAGES, {"stop_sequences": ["wor"]}),
        (Format.CHAT, {"stop": ["wor"], "stream_options": {"include_usage": True}}),
    ],
)
async def test_at_a_stop_sequence_the_upstream_connection_is_closed(
    upstream: ScriptedUpstream, behind: OpenGateway, client_format: Format, fields: dict[str, Any]
) -> None:
    frames = by_frame(fixture_stream("responses"))
    upstream.respond_with(frames.with_changes(chunks=frames.chunks[:7], ending=Ending.STALLED))
    async with behind(Format.RESPONSES) as gateway:
        async with asyncio.timeout(2):
            answer = await gateway.post(client_format, stream=True, **fields)
            reply = parse_stream(client_format, await answer.read())
        assert reply.parts == (Text("Hello, "),)
        assert reply.stop is (
            StopReason.STOP_SEQUENCE if client_format is Format.MESSAGES else StopReason.END_TURN
        )
        async with asyncio.timeout(0.3):
            await upstream.last_request.disconnected.wait()
        row = await gateway.row()
        assert (row.state, row.stop_reason) == (ExchangeState.OK, "stop_sequence")
        assert (row.usage_source, row.dropped) == ("estimated", None)
        assert row.output_tokens == len("Hello, ") // 4
    assert not {"stop", "stop_sequences"} & set(upstream.last_request.json)


async def test_a_stop_sequence_in_a_whole_reply(
    upstream: ScriptedUpstream, behind: OpenGateway
) -> None:
    upstream.respond_with(fixture_reply("responses"))
    async with behind(Format.RESPONSES) as gateway:
        answer = await gateway.post(Format.MESSAGES, stop_sequences=["wor"])
        reply = await answer.json()
        assert [block["text"] for block in reply["content"]] == ["Hello, "]
        assert (reply["stop_reason"], reply["stop_sequence"]) == ("stop_sequence", "wor")
        assert (await gateway.row()).usage_source == "upstream"


@pytest.mark.parametrize("case", EXPECTED)
@pytest.mark.parametrize(("client_format", "upstream_format"), PAIRS)
async def test_an_upstream_that_does_not_stream(
    upstream: ScriptedUpstream,
    behind: OpenGateway,
    client_format: Format,
    upstream_format: Format,
    case: str,
) -> None:
    upstream.respond_with(fixture_reply(upstream_format, case))
    async with behind(upstream_format) as gateway:
        body = request_body(
            client_format, stream=True, tools=TOOLS[client_format], **usage_option(client_format)
        )
        answer = await gateway.post(client_format, body)
        assert answer.content_type == "text/event-stream"
        assert "no-cache" in answer.headers["cache-control"]
        assert meaning(parse_stream(client_format, await answer.read())) == EXPECTED[case]
        row = await gateway.row()
        assert (row.state, row.stream) == (ExchangeState.OK, True)
        assert row.output_tokens == EXPECTED[case][2].output_tokens


async def test_unreadable_bodies_instead_of_a_stream(
    upstream: ScriptedUpstream, behind: OpenGateway
) -> None:
    login = Response(headers={"content-type": "text/html"}, chunks=(b"<html>",))
    upstream.respond_with(json_response(b"[]"), login)
    async with behind(Format.CHAT) as gateway:
        for _ in range(2):
            assert (await gateway.post(Format.MESSAGES, stream=True)).status == 502


@pytest.mark.parametrize(("client_format", "upstream_format"), TRANSLATED_PAIRS)
async def test_pings(
    upstream: ScriptedUpstream,
    behind: OpenGateway,
    monkeypatch: pytest.MonkeyPatch,
    client_format: Format,
    upstream_format: Format,
) -> None:
    monkeypatch.setattr("gateway.server.http.client_stream.PING_INTERVAL", 0.05)
    frames = by_frame(fixture_stream(upstream_format, "text"))
    head, rest = b"".join(frames.chunks[:-3]), b"".join(frames.chunks[-3:])
    upstream.respond_with(frames.with_changes(chunks=(head, rest), pause=0.2))
    async with behind(upstream_format) as gateway:
        raw = await (
            await gateway.post(client_format, stream=True, **usage_option(client_format))
        ).read()
    ping = {
        Format.CHAT: b'"delta":{},',
        Format.MESSAGES: b'event: ping\ndata: {"type":"ping"}\n\n',
        Format.RESPONSES: b"event: response.in_progress\n",
    }[client_format]
    assert raw.count(ping) >= 2
    assert meaning(parse_stream(client_format, raw))[0] == "Hello, world!"


async def test_nothing_leaves_before_the_first_real_event(
    upstream: ScriptedUpstream, behind: OpenGateway
) -> None:
    frames = by_frame(fixture_stream("chat"))
    upstream.respond_with(frames.with_changes(chunks=frames.chunks[:1], ending=Ending.STALLED))
    async with behind(Format.CHAT) as gateway:
        request = asyncio.ensure_future(gateway.post(Format.MESSAGES, stream=True))
        seen = await upstream.wait_for_request()
        done, _ = await asyncio.wait({request}, timeout=0.2)
        assert not done
        request.cancel()
        await asyncio.wait_for(seen.disconnected.wait(), 1)
