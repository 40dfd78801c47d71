"""How long an upstream may take, and that a shutdown cuts only what cannot end in time."""

from __future__ import annotations

import asyncio
from pathlib import Path
from time import perf_counter
from typing import Any

import orjson
import pytest

from gateway.core.formats import Format
from gateway.store.records import ExchangeState
from tests.support.gateway import RunningGateway, channels, request_body, run_gateway
from tests.support.timing import SLACK
from tests.support.upstream import (
    Ending,
    Response,
    ScriptedUpstream,
    by_frame,
    fixture_reply,
    fixture_stream,
)

SILENT_HEAD = fixture_stream("chat", "cut", ending=Ending.STALLED)
NEVER = by_frame(SILENT_HEAD).with_changes(chunks=(b": still here\n\n",), ending=Ending.STALLED)


async def request_reply(
    upstream: ScriptedUpstream, folder: Path, script: Response, *, stream: bool, **timeouts: float
) -> tuple[int, bytes, float]:
    """Status, body and seconds of one chat request under these timeouts."""
    upstream.respond_with(script)
    given: list[dict[str, Any]] = channels(upstream.address, timeouts=timeouts)
    async with run_gateway(folder, given) as gateway:
        started = perf_counter()
        answer = await gateway.post(Format.CHAT, stream=stream)
        return answer.status, await answer.read(), perf_counter() - started


@pytest.mark.parametrize(
    ("script", "stream", "timeouts", "status"),
    [
        (fixture_reply("chat").with_changes(delay=5), False, {"whole": 0.2}, 503),
        (fixture_reply("chat").with_changes(ending=Ending.STALLED), False, {"whole": 0.2}, 503),
        (SILENT_HEAD.with_changes(delay=5), True, {"first_event": 0.2}, 503),
        (NEVER, True, {"first_event": 0.3}, 503),
        (SILENT_HEAD, True, {"idle": 0.2}, 200),
        (SILENT_HEAD, True, {"total": 0.4}, 200),
    ],
    ids=["no head", "no end", "no head of a stream", "no event", "silence", "too long"],
)
async def test_each_limit_ends_what_it_is_for(
    upstream: ScriptedUpstream,
    tmp_path: Path,
    script: Response,
    stream: bool,
    timeouts: dict[str, float],
    status: int,
) -> None:
    got, body, seconds = await request_reply(upstream, tmp_path, script, stream=stream, **timeouts)
    assert got == status
    assert b'"code":"upstream_timeout"' in body
    assert seconds < SLACK
    await asyncio.wait_for(upstream.last_request.disconnected.wait(), 1)


@pytest.mark.parametrize("stream", [False, True])
async def test_the_idle_limit_does_not_apply_before_the_reply(
    upstream: ScriptedUpstream, tmp_path: Path, stream: bool
) -> None:
    script = fixture_stream("chat") if stream else fixture_reply("chat")
    status, _, _ = await request_reply(
        upstream, tmp_path, script.with_changes(delay=0.6), stream=stream, idle=0.2
    )
    assert status == 200


async def test_a_client_does_not_wait_for_the_end_of_a_finished_body(
    upstream: ScriptedUpstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.server.proxy.relay.EOF_GRACE", 2.0)
    script = fixture_stream("chat", ending=Ending.STALLED)
    status, body, seconds = await request_reply(upstream, tmp_path, script, stream=True)
    assert (status, body.endswith(b"data: [DONE]\n\n")) == (200, True)
    assert seconds < SLACK


async def test_a_drain_lets_a_busy_stream_end(
    upstream: ScriptedUpstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.server.http.client_stream.PING_INTERVAL", 0.1)
    upstream.respond_with(by_frame(fixture_stream("chat")).with_changes(pause=0.1))
    async with run_gateway(tmp_path, channels(upstream.address)) as gateway:
        request = asyncio.ensure_future(gateway.post(Format.CHAT, stream=True))
        await upstream.wait_for_request(1)
        await gateway.daemon.listener.drain(gateway.daemon.runtime, 10)
        body = await (await request).read()
        assert body.endswith(b"data: [DONE]\n\n")
        assert (await gateway.row()).state is ExchangeState.OK


@pytest.mark.large
async def test_a_whole_reply_lasts_until_the_client_has_it(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    large = fixture_reply("chat")
    text = b"x" * (8 * 2**20)
    body = large.body.replace(b'"content": "', b'"content": "' + text, 1)
    assert len(body) > len(text)
    upstream.respond_with(large.with_changes(chunks=(body,)))
    async with run_gateway(tmp_path, channels(upstream.address)) as gateway:
        reader, writer = await _send_request(gateway)
        await reader.readuntil(b"\r\n\r\n")
        assert gateway.daemon.runtime.active_requests == 1
        writer.close()
        row = await gateway.row()
        assert row.state is ExchangeState.CLIENT_GONE


async def test_a_disconnect_after_the_end_is_no_disconnect(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    upstream.respond_with(fixture_stream("chat", ending=Ending.STALLED))
    async with run_gateway(tmp_path, channels(upstream.address)) as gateway:
        reader, writer = await _send_request(gateway, stream=True)
        await reader.readuntil(b"\r\n0\r\n\r\n")
        writer.close()
        row = await gateway.row()
        assert (row.state, row.status, row.end_reason) == (ExchangeState.OK, 200, "complete")


async def _send_request(
    gateway: RunningGateway, **fields: object
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A new connection on which one chat request was sent."""
    reader, writer = await asyncio.open_connection(*gateway.daemon.listener.addresses[0])
    body = orjson.dumps(request_body(Format.CHAT, **fields))
    writer.write(
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
        b"x-api-key: %b\r\ncontent-length: %d\r\n\r\n%b" % (gateway.key.encode(), len(body), body)
    )
    return reader, writer
