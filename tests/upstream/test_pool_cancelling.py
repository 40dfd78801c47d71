"""A request that is cancelled at any moment leaves nothing that the next one could meet."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from gateway.upstream.connection import WRITE_SIZE, Origin
from gateway.upstream.pool import ConnectionPool
from tests.support.gateway import ACCOUNT
from tests.support.upstream import Ending, ScriptedUpstream, fixture_reply
from tests.upstream.certificates import Authority
from tests.upstream.client_requests import CANDIDATE, open_client
from tests.upstream.conftest import Resolver
from tests.upstream.raw_upstream import (
    OK,
    RawUpstream,
    ask,
    open_pool,
    raw_upstream,
    read_request,
    run_loop,
    send,
    wait_until,
)
from tests.upstream.tunnel_proxy import run_proxy

MOMENTS = 45
"""Turns of the loop after which a request is cancelled; the last of them are over by then."""

OLD = b"old" * WRITE_SIZE
NEW = b"new"


async def echo_slowly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Head and body in many reads, so that there are many moments within them."""
    while True:
        _, body = await read_request(reader)
        answer = body[:3]
        for piece in (OK, b"content-length: 3\r\n\r\n", answer[:1], answer[1:]):
            writer.write(piece)
            await writer.drain()
            await run_loop(2)


async def cancel_at_each_moment(
    pool: ConnectionPool, origin: Origin, upstream: RawUpstream, body: bytes, *, anew: bool
) -> int:
    """Another request follows each, over whatever the first has left. How many were over."""
    over = 0
    for moment in range(MOMENTS):
        if anew:  # also what comes before there is a connection
            pool._addresses.clear()
            for connection in tuple(pool._open):
                connection.close()
            await wait_until(lambda: not pool._open)
        request = asyncio.ensure_future(ask(pool, origin, body))
        await run_loop(moment)
        over += request.done()
        request.cancel()
        with suppress(asyncio.CancelledError):
            assert await request == body[:3]
        assert await ask(pool, origin, NEW) == NEW, f"cancelled after {moment} turns"
        idle = pool._idle.get(origin, [])
        await wait_until(lambda idle=idle: pool._open == set(idle))
    await wait_until(lambda: upstream.open == len(pool._open))
    return over


@pytest.mark.parametrize("anew", [True, False], ids=["fresh", "reused"])
@pytest.mark.parametrize("body", [b"old", OLD], ids=["small", "large"])
async def test_plain(names: Resolver, body: bytes, anew: bool) -> None:
    async with raw_upstream(echo_slowly) as upstream, open_pool() as pool:
        origin = upstream.origin._replace(host="upstream.test")
        assert await cancel_at_each_moment(pool, origin, upstream, body, anew=anew)


@pytest.mark.parametrize("anew", [True, False], ids=["fresh", "reused"])
async def test_tls(trusted: Authority, anew: bool) -> None:
    async with raw_upstream(echo_slowly, trusted.server()) as upstream, open_pool() as pool:
        await cancel_at_each_moment(pool, upstream.origin, upstream, b"old", anew=anew)


async def test_tunnel(trusted: Authority) -> None:
    async with (
        raw_upstream(echo_slowly, trusted.server()) as upstream,
        run_proxy() as via,
        open_pool() as pool,
    ):
        origin = upstream.origin._replace(proxy=("127.0.0.1", via.port))
        await cancel_at_each_moment(pool, origin, upstream, b"old", anew=True)


async def test_in_long_phases(trusted: Authority, names: Resolver) -> None:
    """Looking up, in a handshake, waiting for a tunnel, writing, waiting for a head, reading."""
    got = asyncio.Event()

    async def stall(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        got.set()
        await asyncio.sleep(10)

    names.delay = 10
    async with raw_upstream(stall) as upstream, open_pool() as pool:
        plain = upstream.origin
        tunnel = Origin("localhost", 443, tls=True, proxy=("127.0.0.1", plain.port))
        phases = {
            "looking up": (plain._replace(host="slow.test"), b""),
            "handshake": (plain._replace(tls=True), b""),
            "tunnel": (tunnel, b""),
            "writing": (plain, OLD * 16),
            "waiting": (plain, b""),
        }
        for phase, (origin, body) in phases.items():
            got.clear()
            request = asyncio.ensure_future(send(pool, origin, body))
            if phase == "looking up":
                await wait_until(lambda: names.lookups)
            else:
                await got.wait()
            request.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asyncio.wait_for(request, 1)
            await wait_until(lambda: not pool._open)
            assert not any(pool._idle.values()), phase


async def test_the_account_is_released(upstream: ScriptedUpstream) -> None:
    """Whenever the request is cancelled: while it is sent, or while its body is read."""
    account = {"name": ACCOUNT, "key": "k", "concurrency": 1}
    upstream.respond_with(fixture_reply("chat").with_changes(ending=Ending.STALLED))
    async with open_client(upstream.address, accounts=[account]) as line:

        async def read() -> None:
            async with await line.send(CANDIDATE, b"{}", {}, "") as response:
                while await response.read_chunk():
                    pass

        for moment in (*range(MOMENTS), None):
            reading = asyncio.ensure_future(read())
            if moment is None:
                await upstream.wait_for_request()
            else:
                await run_loop(moment)
            reading.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reading
            assert line.in_flight(CANDIDATE.account_ref) == 0
        assert upstream.requests
