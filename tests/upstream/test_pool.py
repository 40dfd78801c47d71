"""Connections are opened, kept while idle and used again; names are looked up once."""

from __future__ import annotations

import asyncio
import socket

import pytest

from gateway.core.events import FailureKind
from gateway.upstream.connection import Origin
from gateway.upstream.pool import ConnectionPool
from gateway.upstream.response import AttemptFailed
from tests.upstream.conftest import Resolver
from tests.upstream.raw_upstream import (
    CONNECT_TIMEOUT,
    HELLO,
    OK,
    ask,
    echo,
    open_pool,
    raw_upstream,
    read_request,
    request_head,
    respond_with,
    run_loop,
    send,
    wait_until,
)


async def kind_of(pool: ConnectionPool, origin: Origin, seconds: float = 5) -> FailureKind:
    with pytest.raises(AttemptFailed) as failed:
        await asyncio.wait_for(pool.send(origin, request_head(), b"", seconds), 10)
    return failed.value.failure.kind


async def numbered(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Every request is answered with the port of the client, once its body says so."""
    while True:
        _, body = await read_request(reader)
        await asyncio.sleep(float(body or b"0"))
        port = b"%d" % writer.get_extra_info("peername")[1]
        writer.write(OK + b"content-length: %d\r\n\r\n" % len(port) + port)


async def test_the_last_used_connection_is_reused_first() -> None:
    async with raw_upstream(numbered) as upstream, open_pool() as pool:
        later, soon = await asyncio.gather(
            ask(pool, upstream.origin, b"0.1"), ask(pool, upstream.origin, b"0.01")
        )
        assert later != soon
        assert [await ask(pool, upstream.origin) for _ in range(3)] == [later] * 3
        assert upstream.connections == 2


async def test_origins_have_separate_connections() -> None:
    async with raw_upstream(numbered) as one, raw_upstream(numbered) as two, open_pool() as pool:
        for upstream in (one, two, one, two):
            await ask(pool, upstream.origin)
        other_name = one.origin._replace(host="localhost")
        await ask(pool, other_name)
        assert (one.connections, two.connections) == (2, 1)


async def test_idle_connections_expire(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.upstream.pool.IDLE_TIMEOUT", 0.1)
    async with raw_upstream(numbered) as upstream, open_pool() as pool:
        first, _ = await asyncio.gather(*(ask(pool, upstream.origin, b"0.01") for _ in range(2)))
        assert upstream.open == 2
        await wait_until(lambda: not upstream.open)
        assert not pool._idle and not pool._open and pool._expiry_timer is None
        assert await ask(pool, upstream.origin) != first
        assert upstream.connections == 3


async def test_used_connections_do_not_expire(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.upstream.pool.IDLE_TIMEOUT", 0.2)
    async with raw_upstream(numbered) as upstream, open_pool() as pool:
        used = {await ask(pool, upstream.origin, b"0.1") for _ in range(6)}
        assert len(used) == 1


async def test_an_expired_connection_is_not_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with raw_upstream(numbered) as upstream, open_pool() as pool:
        first = await ask(pool, upstream.origin)
        monkeypatch.setattr("gateway.upstream.pool.IDLE_TIMEOUT", 0)
        await asyncio.sleep(0.01)
        assert await ask(pool, upstream.origin) != first
        await wait_until(lambda: upstream.open == 1)


async def test_a_connection_closed_by_the_upstream_is_dropped() -> None:
    async with raw_upstream(respond_with(HELLO)) as upstream, open_pool() as pool:
        for request in (1, 2, 3):
            assert await ask(pool, upstream.origin) == b"hello"
            await wait_until(lambda: not pool._open)
            assert not any(pool._idle.values())
            assert upstream.connections == request


async def test_closing_leaves_nothing() -> None:
    """Idle connections, one in use, one that is being opened, and the timer."""
    async with raw_upstream(echo) as upstream, raw_upstream(_silent) as silent:
        pool = ConnectionPool()
        await ask(pool, upstream.origin)
        waiting = asyncio.ensure_future(send(pool, silent.origin))
        handshaking = asyncio.ensure_future(send(pool, silent.origin._replace(tls=True)))
        await wait_until(lambda: silent.open == 2)
        tasks = asyncio.all_tasks() - {waiting, handshaking}
        await pool.close()
        with pytest.raises(AttemptFailed):
            await waiting
        handshaking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await handshaking
        await wait_until(lambda: not upstream.open and not silent.open)
        assert not pool._open and pool._expiry_timer is not None
        assert pool._expiry_timer.cancelled()
        # The upstream ends its own connections in its own time.
        await wait_until(lambda: asyncio.all_tasks() <= tasks)


async def test_a_request_to_a_closed_pool() -> None:
    async with raw_upstream(echo) as upstream:
        pool = ConnectionPool()
        await pool.close()
        assert await kind_of(pool, upstream.origin) is FailureKind.DISCONNECT
        await wait_until(lambda: not upstream.open)


async def test_an_upstream_that_closes_immediately() -> None:
    async def leave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()

    async with raw_upstream(leave) as upstream, open_pool() as pool:
        for _ in range(5):
            assert await kind_of(pool, upstream.origin) is FailureKind.DISCONNECT
        await wait_until(lambda: not pool._open)


async def test_lookups_are_cached(names: Resolver, monkeypatch: pytest.MonkeyPatch) -> None:
    async with raw_upstream(respond_with(HELLO)) as upstream, open_pool() as pool:
        origin = upstream.origin._replace(host="upstream.test")
        for _ in range(3):
            await ask(pool, origin)
        assert names.lookups == ["upstream.test"]
        assert upstream.connections == 3
        monkeypatch.setattr("gateway.upstream.pool.DNS_CACHE_SECONDS", -1)
        await ask(pool, origin)
        assert names.lookups == ["upstream.test"] * 2


async def test_failed_lookups_are_not_cached(names: Resolver) -> None:
    async with raw_upstream(echo) as upstream, open_pool() as pool:
        origin = upstream.origin._replace(host="upstream.test")
        names.ports["upstream.test"] = socket.gaierror(-2, "Name or service not known")
        assert await kind_of(pool, origin) is FailureKind.CONNECT
        del names.ports["upstream.test"]
        assert await ask(pool, origin, b"now") == b"now"
        assert len(names.lookups) == 2


async def test_cached_names_are_bounded(names: Resolver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.upstream.pool.MAX_DNS_ENTRIES", 2)
    async with raw_upstream(respond_with(HELLO)) as upstream, open_pool() as pool:
        for number in range(5):
            await ask(pool, upstream.origin._replace(host=f"upstream-{number}.test"))
            assert len(pool._addresses) <= 2


async def test_a_slow_lookup(names: Resolver) -> None:
    names.delay = 30
    async with open_pool() as pool:
        assert await kind_of(pool, Origin("slow.test", 9, tls=False), 0.05) is FailureKind.CONNECT


@pytest.mark.parametrize("host", ["a" * 64 + ".test", "a..test"])
async def test_an_unknown_name(host: str) -> None:
    async with open_pool() as pool:
        assert await kind_of(pool, Origin(host, 9, tls=False)) is FailureKind.CONNECT


async def test_several_addresses(names: Resolver, unused_tcp_port: int) -> None:
    """Of which the first refuses."""
    async with raw_upstream(echo) as upstream, open_pool() as pool:
        names.ports["upstream.test"] = [unused_tcp_port, upstream.origin.port]
        assert await ask(pool, upstream.origin._replace(host="upstream.test"), b"x") == b"x"


async def test_a_silent_address(names: Resolver) -> None:
    """The next one is tried beside it before long."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
        port = full.getsockname()[1]
        waiting = [socket.socket() for _ in range(4)]
        for each in waiting:  # they fill the queue of those to be accepted
            each.setblocking(False)
            each.connect_ex(("127.0.0.1", port))
        await asyncio.sleep(0.05)
        async with raw_upstream(echo) as upstream, open_pool() as pool:
            names.ports["upstream.test"] = [port, upstream.origin.port]
            origin = upstream.origin._replace(host="upstream.test")
            assert await asyncio.wait_for(ask(pool, origin, b"x"), CONNECT_TIMEOUT) == b"x"
            assert await kind_of(pool, Origin("127.0.0.1", port, tls=False), 0.1) is (
                FailureKind.CONNECT
            )
        for each in waiting:
            each.close()
    await run_loop()


async def test_every_address_refuses(names: Resolver, unused_tcp_port: int) -> None:
    names.ports["upstream.test"] = [unused_tcp_port] * 3
    async with open_pool() as pool:
        assert await kind_of(pool, Origin("upstream.test", 9, tls=False)) is FailureKind.CONNECT


async def _silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()
    while await reader.read():
        pass
