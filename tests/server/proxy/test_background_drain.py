"""Clients that disconnect: what the upstream was asked for is billed, as it reports it where the
channel's replies are drained."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.core.formats import Format
from gateway.store.records import ExchangeState, RequestRow
from tests.server.format_pairs import PAIRS
from tests.server.key_limits import cancel, start_request, wait_all_released
from tests.support.gateway import BETA, RunningGateway, channel, run_gateway
from tests.support.tcp_server import listening
from tests.support.upstream import (
    Ending,
    Response,
    ScriptedUpstream,
    by_frame,
    fixture_reply,
    fixture_stream,
    json_response,
)

each_pair = pytest.mark.parametrize(("client_format", "upstream_format"), PAIRS)


@asynccontextmanager
async def draining(
    upstream: ScriptedUpstream, folder: Path, format: Format, **changes: Any
) -> AsyncIterator[RunningGateway]:
    lines = [channel(format, upstream.address, on_disconnect="drain") | changes]
    async with run_gateway(folder, lines) as gateway:
        yield gateway


async def abandon(
    gateway: RunningGateway, upstream: ScriptedUpstream, format: Format, *, stream: bool
) -> RequestRow:
    """The row of a request whose client leaves before the upstream has answered."""
    count = len(upstream.requests)
    request = start_request(gateway, format, stream=stream, model=BETA)
    await upstream.wait_for_request(count + 1)
    await cancel(request)
    row = (await gateway.rows(count + 1))[-1]
    await wait_all_released(gateway)
    assert (row.state, row.status, row.end_reason) == (
        ExchangeState.CLIENT_GONE,
        499,
        "client_gone",
    )
    return row


def billed(row: RequestRow) -> tuple[str, int, int]:
    return row.usage_source, row.input_tokens, row.output_tokens


async def verdict(gateway: RunningGateway, row: RequestRow) -> str:
    (attempt,) = await gateway.operations.list_attempts(row.id)
    return attempt.verdict


@pytest.mark.parametrize("stream", [False, True])
@each_pair
async def test_replies_are_drained_from_the_moment_of_the_request(
    upstream: ScriptedUpstream,
    tmp_path: Path,
    client_format: Format,
    upstream_format: Format,
    stream: bool,
) -> None:
    script = by_frame(fixture_stream(upstream_format)) if stream else fixture_reply(upstream_format)
    upstream.respond_with(script.with_changes(delay=0.15))
    async with draining(upstream, tmp_path, upstream_format) as gateway:
        row = await abandon(gateway, upstream, client_format, stream=stream)
        assert billed(row) == ("upstream", 12, 4)
        assert await verdict(gateway, row) == "ok"
        health = gateway.daemon.runtime.health.snapshot(asyncio.get_running_loop().time())
        assert [report.succeeded for report in health] == [1]
        assert (await gateway.operations.get_key(gateway.token.id)).cost_micro == row.cost_micro > 0
        assert (await gateway.operations.check_integrity()).ok


@pytest.mark.parametrize("format", Format)
async def test_streams_that_are_collected_are_drained(
    upstream: ScriptedUpstream, tmp_path: Path, format: Format
) -> None:
    upstream.respond_with(by_frame(fixture_stream(format)).with_changes(pause=0.02))
    async with draining(upstream, tmp_path, format, stream="force") as gateway:
        row = await abandon(gateway, upstream, format, stream=False)
    assert billed(row) == ("upstream", 12, 4)


async def test_bodies_that_are_sent_for_streams_are_drained(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    body = fixture_reply(Format.CHAT)
    halves = body.body[:60], body.body[60:]
    async with draining(upstream, tmp_path, Format.CHAT) as gateway:
        for script in (body.with_changes(delay=0.15), body.with_changes(chunks=halves, pause=0.15)):
            upstream.respond_with(script)
            row = await abandon(gateway, upstream, Format.CHAT, stream=True)
            assert billed(row) == ("upstream", 12, 4)


@pytest.mark.parametrize("stream", [False, True])
async def test_without_draining_the_prompt_is_billed(
    upstream: ScriptedUpstream, tmp_path: Path, stream: bool
) -> None:
    """Thirty abandoned requests are no free requests."""
    upstream.respond_with(Response(delay=30))
    async with draining(upstream, tmp_path, Format.CHAT, on_disconnect="cancel") as gateway:
        for _ in range(30):
            row = await abandon(gateway, upstream, Format.CHAT, stream=stream)
            assert billed(row) == ("estimated", row.expected_input_tokens, 0)
            assert await verdict(gateway, row) == "given up"
        token = await gateway.operations.get_key(gateway.token.id)
        assert token.cost_micro == 30 * row.expected_micro > 0


async def test_received_parts_of_a_collected_stream_are_billed(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    upstream.respond_with(by_frame(fixture_stream("chat", "cut", ending=Ending.STALLED)))
    async with draining(
        upstream, tmp_path, Format.CHAT, on_disconnect="cancel", stream="force"
    ) as gateway:
        request = start_request(gateway)
        await upstream.wait_for_request()
        await asyncio.sleep(0.15)
        await cancel(request)
        row = await gateway.row()
    assert billed(row) == ("estimated", row.expected_input_tokens, len("Half an ans") // 4)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_failure_while_draining_is_free(
    upstream: ScriptedUpstream, tmp_path: Path, stream: bool
) -> None:
    upstream.respond_with(json_response({"error": {"message": "no"}}, 500).with_changes(delay=0.1))
    async with draining(upstream, tmp_path, Format.CHAT) as gateway:
        row = await abandon(gateway, upstream, Format.CHAT, stream=stream)
    assert (billed(row), row.cost_micro) == (("none", 0, 0), 0)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_drain_ends_in_time(
    upstream: ScriptedUpstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    monkeypatch.setattr("gateway.server.proxy.background_drain.DRAIN_TIMEOUT", 0.2)
    upstream.respond_with(Response(delay=30))
    async with draining(upstream, tmp_path, Format.CHAT) as gateway:
        row = await abandon(gateway, upstream, Format.CHAT, stream=stream)
        assert billed(row) == ("estimated", row.expected_input_tokens, 0)
        await asyncio.wait_for(upstream.last_request.disconnected.wait(), 5)


@pytest.mark.parametrize("stream", [False, True])
async def test_only_so_many_replies_are_drained_at_a_time(
    upstream: ScriptedUpstream, tmp_path: Path, stream: bool
) -> None:
    script = by_frame(fixture_stream("chat")) if stream else fixture_reply("chat")
    upstream.respond_with(script.with_changes(delay=0.5))
    async with draining(upstream, tmp_path, Format.CHAT) as gateway:
        requests = [start_request(gateway, stream=stream) for _ in range(11)]
        await upstream.wait_for_request(11)
        for request in requests:
            await cancel(request)
        rows = await gateway.rows(11)
    sources = [row.usage_source for row in rows]
    assert (sources.count("upstream"), sources.count("estimated")) == (8, 3)


async def test_a_request_that_was_never_sent_is_free(tmp_path: Path) -> None:
    """The client disconnects while the gateway still connects."""
    connected = asyncio.Event()

    async def accept(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connected.set()
        await asyncio.sleep(5)  # no TLS handshake

    async with listening(accept) as port:
        lines = [channel(Format.CHAT, f"https://127.0.0.1:{port}")]
        async with run_gateway(tmp_path, lines) as gateway:
            request = start_request(gateway)
            await asyncio.wait_for(connected.wait(), 5)
            await cancel(request)
            row = await gateway.row()
    assert row.state is ExchangeState.CLIENT_GONE
    assert (billed(row), row.cost_micro) == (("none", 0, 0), 0)
