"""TLS: whom the gateway trusts, directly and through a proxy's tunnel."""

from __future__ import annotations

import asyncio
import socket
import ssl
from contextlib import suppress

import pytest
import uvloop

from gateway.core.events import FailureKind
from gateway.upstream.connection import Origin
from gateway.upstream.pool import ConnectionPool
from gateway.upstream.response import StaleConnection
from tests.upstream.certificates import Authority, make_authority
from tests.upstream.raw_upstream import (
    HELLO,
    OK,
    ask,
    echo,
    open_pool,
    raw_upstream,
    read_all,
    read_request,
    request_head,
    send,
    wait_until,
)
from tests.upstream.test_pool import kind_of
from tests.upstream.tunnel_proxy import Proxy, run_proxy

LARGE = bytes(range(256)) * 3600


def through(origin: Origin, via: Proxy | None) -> Origin:
    return origin if via is None else origin._replace(proxy=("127.0.0.1", via.port))


@pytest.fixture(params=[False, True], ids=["direct", "tunnel"])
async def via(request: pytest.FixtureRequest):  # type: ignore[no-untyped-def]
    if not request.param:
        yield None
        return
    async with run_proxy() as running:
        yield running


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
async def test_a_trusted_certificate(trusted: Authority, via: Proxy | None, host: str) -> None:
    async with raw_upstream(echo, trusted.server()) as upstream, open_pool() as pool:
        origin = through(upstream.origin._replace(host=host), via)
        for body in (b"one", LARGE, b"two"):
            assert await ask(pool, origin, body) == body
        assert upstream.connections == 1
        if via is not None:
            assert via.requests == [f"CONNECT {host}:{origin.port} HTTP/1.1"]
    await wait_until(lambda: not upstream.open)


async def test_an_untrusted_certificate(
    trusted: Authority, via: Proxy | None, tmp_path_factory: pytest.TempPathFactory
) -> None:
    stranger = make_authority(tmp_path_factory.mktemp("stranger"))
    untrusted = {
        "another host": trusted.server("DNS:other.test"),
        "expired": trusted.server(days=-1),
        "another authority": stranger.server(),
    }
    for what, server in untrusted.items():
        async with raw_upstream(echo, server) as upstream, open_pool() as pool:
            origin = through(upstream.origin._replace(host="localhost"), via)
            assert await kind_of(pool, origin) is FailureKind.TLS, what
            assert not pool._open
            await wait_until(lambda upstream=upstream: not upstream.open)


async def test_no_tls(trusted: Authority, via: Proxy | None) -> None:
    async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await writer.drain()
        await reader.read()

    async with raw_upstream(plain) as upstream, open_pool() as pool:
        origin = through(upstream.origin._replace(tls=True), via)
        assert await kind_of(pool, origin) is FailureKind.TLS
        await wait_until(lambda: not upstream.open)


@pytest.mark.parametrize("leaves", [False, True], ids=["silent", "leaves"])
async def test_no_handshake(via: Proxy | None, leaves: bool) -> None:
    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1 if leaves else -1)

    async with raw_upstream(say_nothing) as upstream, open_pool() as pool:
        origin = through(upstream.origin._replace(tls=True), via)
        assert await kind_of(pool, origin, 0.3) in (FailureKind.CONNECT, FailureKind.TLS)
        await wait_until(lambda: not upstream.open)


@pytest.mark.parametrize("neat", [False, True], ids=["cut", "neat"])
async def test_the_end_of_a_body_without_length(trusted: Authority, neat: bool) -> None:
    """It is one only where TLS was closed too: anybody on the way can cut a connection."""
    is_fast = isinstance(asyncio.get_running_loop(), uvloop.Loop)
    if not (neat or is_fast):
        pytest.skip("the loop of the standard library tells both alike")

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(OK + b"\r\nhello")
        await writer.drain()
        if not neat:
            await asyncio.sleep(0.02)
            writer.transport.abort()

    async with (
        raw_upstream(converse, trusted.server()) as upstream,
        open_pool() as pool,
        await send(pool, upstream.origin) as response,
    ):
        assert await read_all(response) == (b"hello", None if neat else FailureKind.TRUNCATED)


async def test_a_stale_connection(trusted: Authority, via: Proxy | None) -> None:
    async def answer_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(HELLO)
        await read_request(reader)

    async with raw_upstream(answer_once, trusted.server()) as upstream, open_pool() as pool:
        origin = through(upstream.origin, via)
        assert await ask(pool, origin) == b"hello"
        assert await kind_of(pool, origin) is FailureKind.REUSED
        assert await ask(pool, origin) == b"hello"
        assert upstream.connections == 2
    await _idle(pool)


async def test_a_request_that_never_arrived(trusted: Authority) -> None:
    """The upstream had closed the connection, and that is seen only after the request was sent."""

    def answer() -> ssl.SSLSocket:
        line = trusted.server().wrap_socket(server.accept()[0], server_side=True)
        line.recv(4096)
        line.sendall(HELLO)
        return line

    with socket.create_server(("127.0.0.1", 0)) as server:
        async with open_pool() as pool:
            origin = Origin("127.0.0.1", server.getsockname()[1], tls=True)
            line, _ = await asyncio.gather(asyncio.to_thread(answer), ask(pool, origin))
            (connection,) = pool._idle[origin]
            line.setblocking(False)
            with suppress(ssl.SSLWantReadError):
                line.unwrap()
            line.close()
            with pytest.raises(StaleConnection):
                await asyncio.wait_for(connection.send(request_head(), b""), 5)


@pytest.mark.slow("fills the buffers of a connection")
async def test_a_reader_that_stops(trusted: Authority) -> None:
    """TLS has buffers of its own: they are bounded as well, and reading goes on behind them."""
    sent = 0
    size = 12 * 2**20

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        while True:
            await read_request(reader)
            writer.write(OK + b"content-length: %d\r\n\r\n" % size)
            for piece in range(0, size, 65536):
                sent = piece
                writer.write(bytes(65536))
                await writer.drain()

    async with raw_upstream(converse, trusted.server()) as upstream, open_pool() as pool:
        for _ in range(2):
            async with await send(pool, upstream.origin) as response:
                await asyncio.sleep(0.2)
                assert sent < size - 65536
                body, kind = await read_all(response)
                assert (len(body), kind) == (size, None)
        assert upstream.connections == 1


async def _idle(pool: ConnectionPool) -> None:
    await wait_until(lambda: not pool._open)
