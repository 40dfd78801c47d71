"""Late replies: after `commit_after` their opening frames are sent, and pings are events of the
format, because agents do not count comments."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI

from gateway.core.events import End, Fail
from gateway.core.formats import Format
from gateway.core.parts import Text
from gateway.core.reply import collect_reply
from gateway.store.records import ExchangeState
from gateway.wire.registry import CODECS
from tests.resilience.faults.upstream import fault_upstream
from tests.server.format_pairs import PAIRS, TERMINAL
from tests.server.key_limits import start_request
from tests.server.proxy.test_dispatch import accounts
from tests.support.gateway import ALPHA, BETA, RunningGateway, channel, run_gateway
from tests.support.timing import SLACK
from tests.support.upstream import (
    Response,
    ScriptedUpstream,
    by_frame,
    event_stream,
    fixture_stream,
)
from tests.wire.stream_cases import decode

LATE = 0.2
SILENCE = 0.8

OPENING = {
    Format.CHAT: b'"role":"assistant"',
    Format.MESSAGES: b"event: message_start",
    Format.RESPONSES: b"event: response.created",
}
PING = {
    Format.CHAT: b'"delta":{},',
    Format.MESSAGES: b'event: ping\ndata: {"type":"ping"}\n\n',
    Format.RESPONSES: b"event: response.in_progress",
}
LANES = [
    *((format, format, "native") for format in Format),
    *((client_format, upstream_format, "translated") for client_format, upstream_format in PAIRS),
]
COMMENT = re.compile(rb"^:", re.MULTILINE)


@pytest.fixture(autouse=True)
def frequent_pings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.server.http.client_stream.PING_INTERVAL", 0.1)


@asynccontextmanager
async def late_gateway(
    upstream: ScriptedUpstream, folder: Path, format: Format, late: float = LATE, **changes: Any
) -> AsyncIterator[RunningGateway]:
    lines = [channel(format, upstream.address, **changes)]
    async with run_gateway(folder, lines, server={"commit_after": late}) as gateway:
        yield gateway


def silent_after_opening(format: Format) -> Response:
    """Its opening frames at once, everything else after a silence."""
    script = by_frame(fixture_stream(format))
    frames = script.chunks
    first = next(number for number, frame in enumerate(frames) if b"Hello" in frame)
    chunks = b"".join(frames[:first]), b"".join(frames[first:])
    return script.with_changes(chunks=chunks, pause=SILENCE)


async def read_until(answer: Any, mark: bytes, data: bytes = b"") -> bytes:
    async with asyncio.timeout(5):
        while mark not in data:
            data += await answer.content.readany()
    return data


def texts(format: Format, body: bytes) -> list[str]:
    events = decode(CODECS[format].decoder(), body)
    assert sum(isinstance(event, End) for event in events) == 1
    return [part.text for part in collect_reply(events).parts if isinstance(part, Text)]


@pytest.mark.parametrize(("client_format", "upstream_format", "lane"), LANES)
async def test_opening_frames_are_sent_and_pings_are_events(
    upstream: ScriptedUpstream,
    tmp_path: Path,
    client_format: Format,
    upstream_format: Format,
    lane: str,
) -> None:
    upstream.respond_with(silent_after_opening(upstream_format))
    async with late_gateway(upstream, tmp_path, upstream_format, lane=lane) as gateway:
        answer = await start_request(gateway, client_format, stream=True, model=BETA)
        body = await read_until(answer, OPENING[client_format])
        assert b"Hello" not in body
        body = await read_until(answer, TERMINAL[client_format], body)
        row = await gateway.row()
    silence = body[: body.index(b"Hello")]
    assert silence.count(PING[client_format]) >= 2
    assert not COMMENT.search(body)
    assert texts(client_format, body) == ["Hello, world!"]
    assert (row.state, row.attempts) == (ExchangeState.OK, 1)
    assert (row.first_event_us or 0) > SILENCE * 1e6, "the first content counts"


@pytest.mark.parametrize("format", Format)
async def test_opening_frames_that_are_late_themselves(
    upstream: ScriptedUpstream, tmp_path: Path, format: Format
) -> None:
    """The head and a ping have been sent; they follow as soon as they come."""
    upstream.respond_with(silent_after_opening(format).with_changes(delay=2 * LATE))
    async with late_gateway(upstream, tmp_path, format) as gateway:
        answer = await start_request(gateway, format, stream=True, model=BETA)
        body = await read_until(answer, OPENING[format])
        assert b"Hello" not in body
        body = await read_until(answer, TERMINAL[format], body)
    assert texts(format, body) == ["Hello, world!"]
    after = body[body.index(OPENING[format]) :]
    assert not COMMENT.search(after)


@pytest.mark.parametrize("format", Format)
async def test_opening_frames_in_time_are_held(
    upstream: ScriptedUpstream, tmp_path: Path, format: Format
) -> None:
    """Another account can still be tried."""
    upstream.respond_with(silent_after_opening(format).with_changes(pause=LATE))
    async with late_gateway(upstream, tmp_path, format, late=SLACK) as gateway:
        answer = await start_request(gateway, format, stream=True, model=BETA)
        assert b"Hello" in await answer.content.readany()
        answer.close()


@pytest.mark.parametrize("format", Format)
async def test_they_are_the_commit(tmp_path: Path, format: Format) -> None:
    """No other account is tried after them: the error is in the stream, the prompt is billed."""
    async with fault_upstream() as upstream:
        lines = accounts(upstream, format, "stall:begun", "ok", timeouts={"first_event": 0.6})
        async with run_gateway(tmp_path, lines, server={"commit_after": LATE}) as gateway:
            answer = await gateway.post(format, stream=True, model=BETA)
            body = await answer.read()
            row = await gateway.row()
    assert answer.status == 200
    assert body.startswith(b"event: " if format is not Format.CHAT else b"data: {")
    assert OPENING[format] in body
    assert isinstance(decode(CODECS[format].decoder(), body)[-1], Fail)
    assert (row.state, row.attempts, row.channel) == (ExchangeState.ERROR, 1, "c0")
    assert (row.error_code, row.usage_source) == ("upstream_timeout", "estimated")
    assert len(upstream.requests) == 1


async def test_comments_of_an_upstream_are_no_opening(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    """They arrive before the reply has begun, and commit nothing."""
    script = event_stream(b"").with_changes(chunks=(b": working\n\n",) * 4, pause=LATE / 2)
    upstream.respond_with(script)
    async with late_gateway(upstream, tmp_path, Format.CHAT) as gateway:
        body = await (await gateway.post(Format.CHAT, stream=True)).read()
        row = await gateway.row()
    assert b"empty_upstream_response" in body or b"bad_upstream_response" in body
    assert row.first_event_us is None


async def test_an_empty_reply_is_an_error_all_the_same(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    chunk = b'{"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[%b]}'
    first = b'{"index":0,"delta":{"role":"assistant"},"finish_reason":null}'
    last = b'{"index":0,"delta":{},"finish_reason":"stop"}'
    frames = [b"data: " + chunk % choice + b"\n\n" for choice in (first, last)]
    script = event_stream(b"").with_changes(
        chunks=(frames[0], frames[1] + b"data: [DONE]\n\n"), pause=2 * LATE
    )
    upstream.respond_with(script)
    async with late_gateway(upstream, tmp_path, Format.CHAT) as gateway:
        body = await (await gateway.post(Format.CHAT, stream=True)).read()
    assert b"empty_upstream_response" in body
    assert b"[DONE]" not in body


@pytest.mark.parametrize("upstream_format", Format)
async def test_client_libraries(
    upstream: ScriptedUpstream, tmp_path: Path, upstream_format: Format
) -> None:
    """Their helpers accept the pings of every format."""
    upstream.respond_with(silent_after_opening(upstream_format))
    turns: Any = [{"role": "user", "content": "Hello"}]
    async with late_gateway(upstream, tmp_path, upstream_format) as gateway:
        openai = AsyncOpenAI(base_url=f"{gateway.address}/v1", api_key=gateway.key, max_retries=0)
        anthropic = AsyncAnthropic(base_url=gateway.address, api_key=gateway.key, max_retries=0)
        async with openai, anthropic:
            async with openai.chat.completions.stream(model=BETA, messages=turns) as chat:
                completion = await chat.get_final_completion()
            async with openai.responses.stream(model=BETA, input="Hello") as response:
                async for _ in response:
                    pass
                final = await response.get_final_response()
            async with anthropic.messages.stream(
                model=ALPHA, max_tokens=9, messages=turns
            ) as message:
                text = await message.get_final_text()
    assert completion.choices[0].message.content == "Hello, world!"
    assert completion.choices[0].finish_reason == "stop"
    assert final.output_text == text == "Hello, world!"
