"""Clients that read slowly, or not at all: how long they may, and the memory of what they have not
read.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest

from gateway.core.formats import Format
from gateway.store.records import ExchangeState
from tests.server.key_limits import NOTHING_IN_USE, in_use
from tests.support.gateway import PATHS, RunningGateway, channels, request_body, run_gateway
from tests.support.paths import STREAMS
from tests.support.raw_client import RawClient, raw_client, request
from tests.support.upstream import ScriptedUpstream, event_stream, fixture_stream, json_response

SMALL = 4096
"""Bytes that the kernel keeps for a client, which it doubles."""
LARGE = 3 * 2**20
"""Bytes of a reply that no buffer takes at once."""
WRITE = 1.0
"""Seconds: longer than a busy machine stops this process, shorter than that reply takes."""


@asynccontextmanager
async def asking(
    upstream: ScriptedUpstream, folder: Path, *, stream: bool, write: float, **config: Any
) -> AsyncIterator[tuple[RunningGateway, RawClient]]:
    """A client whose request is under way."""
    timeouts = {"write": write, **config.pop("timeouts", {})}
    line = channels(upstream.address, timeouts=timeouts)
    async with (
        run_gateway(folder, line, **config) as gateway,
        raw_client(gateway.address, room=SMALL) as client,
    ):
        key = {"authorization": f"Bearer {gateway.key}", "content-type": "application/json"}
        body = orjson.dumps(request_body(Format.CHAT, stream=stream))
        await client.send(request(gateway.address, PATHS[Format.CHAT], body, key))
        yield gateway, client


def large_reply() -> Any:
    reply = orjson.loads((STREAMS / "text" / "chat.json").read_bytes())
    reply["choices"][0]["message"]["content"] = "x" * LARGE
    return json_response(reply)


def large_stream() -> Any:
    first, rest = fixture_stream("chat").body.split(b"\n\n", 1)
    word = b'data: {"choices":[{"index":0,"delta":{"content":"%b"}}]}\n\n' % (b"w" * 1000)
    return event_stream(first + b"\n\n" + word * (LARGE // 1000) + rest)


async def ended(gateway: RunningGateway) -> None:
    async with asyncio.timeout(5):
        while gateway.daemon.runtime.active_requests:
            await asyncio.sleep(0.01)
    assert gateway.daemon.runtime.bodies.total == 0
    assert in_use(gateway) == NOTHING_IN_USE
    assert len(gateway.daemon.runtime.scheduler) == 0


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_never_reads(
    upstream: ScriptedUpstream, tmp_path: Path, stream: bool
) -> None:
    upstream.respond_with(large_stream() if stream else large_reply())
    async with asking(upstream, tmp_path, stream=stream, write=0.4) as (gateway, _):
        pool = gateway.daemon.runtime.bodies
        async with asyncio.timeout(5):
            while pool.total < 50_000:
                await asyncio.sleep(0.01)
        await ended(gateway)
        assert (await gateway.row()).state is ExchangeState.CLIENT_SLOW


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_reads_on_gets_everything(
    upstream: ScriptedUpstream, tmp_path: Path, stream: bool
) -> None:
    """However often what it is sent fills its buffers."""
    upstream.respond_with(large_stream() if stream else large_reply())
    async with asking(upstream, tmp_path, stream=stream, write=WRITE) as (gateway, client):
        loop = asyncio.get_running_loop()
        started, size = loop.time(), 0
        while size < LARGE:
            size += len(chunk := await client.receive(40_000))
            assert chunk, "it was cut off"
            await asyncio.sleep(2 * WRITE * len(chunk) / LARGE)
        assert loop.time() - started > WRITE
        await client.receive_until(b"[DONE]" if stream else b'"usage"')
        await ended(gateway)
        assert (await gateway.row()).state is ExchangeState.OK


async def test_a_trickle_is_cut_off(
    upstream: ScriptedUpstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a complete reply too: all of it has to be read at some rate."""
    monkeypatch.setattr("gateway.server.http.client_stream.MIN_RATE", LARGE)
    upstream.respond_with(large_reply())
    async with asking(upstream, tmp_path, stream=False, write=0.4) as (gateway, client):
        size = 0
        async with asyncio.timeout(10):
            while data := await client.receive(10_000):
                size += len(data)
                await asyncio.sleep(0.02)
        assert size < LARGE
        await ended(gateway)
        assert (await gateway.row()).state is ExchangeState.CLIENT_SLOW


async def test_the_whole_time_of_a_stream_ends_for_a_slow_client_too(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    upstream.respond_with(large_stream())
    total = {"total": 1}
    async with asking(upstream, tmp_path, stream=True, write=30, timeouts=total) as (
        gateway,
        client,
    ):
        loop = asyncio.get_running_loop()
        started, tail = loop.time(), b""
        async with asyncio.timeout(10):
            while b"upstream_timeout" not in tail and (data := await client.receive(10_000)):
                tail = tail[-1000:] + data
                # It reads slowly for so long, and then what is left.
                await asyncio.sleep(0.02 if loop.time() - started < 2 else 0)
        assert b"upstream_timeout" in tail
        await ended(gateway)
        row = await gateway.row()
        assert (row.state, row.error_code) == (ExchangeState.ERROR, "upstream_timeout")


async def test_what_clients_have_not_read_has_a_limit(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    """A reply that exceeds the share of its key is cut off at once."""
    upstream.respond_with(large_reply())
    server = {"max_body": 100_000, "max_bodies": 1_000_000}
    config = {"stream": False, "write": 30, "server": server}
    async with asking(upstream, tmp_path, **config) as (gateway, _):  # type: ignore[arg-type]
        await upstream.wait_for_request()
        await asyncio.sleep(0.1)
        await ended(gateway)
        assert (await gateway.row()).state is ExchangeState.CLIENT_SLOW
