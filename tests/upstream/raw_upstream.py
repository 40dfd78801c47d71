"""Upstreams made of plain sockets, for what no well-behaved server does.

Independent of what is tested.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

from gateway.core.events import FailureKind
from gateway.upstream.connection import Connection, Origin
from gateway.upstream.pool import ConnectionPool
from gateway.upstream.response import AttemptFailed, UpstreamResponse
from tests.support.tcp_server import Talk, listening

HOST = "127.0.0.1"
CONNECT_TIMEOUT = 5.0
OK = b"HTTP/1.1 200 OK\r\n"
HELLO = OK + b"content-length: 5\r\n\r\nhello"


def request_head(length: int = 0) -> bytes:
    return b"POST /v1 HTTP/1.1\r\nhost: upstream\r\ncontent-length: %d\r\n\r\n" % length


async def send(pool: ConnectionPool, origin: Origin, body: bytes = b"") -> UpstreamResponse:
    return await pool.send(origin, request_head(len(body)), body, CONNECT_TIMEOUT)


async def ask(pool: ConnectionPool, origin: Origin, body: bytes = b"") -> bytes:
    async with asyncio.timeout(10), await send(pool, origin, body) as response:
        return await response.read_body(2**20)


async def read_all(response: UpstreamResponse) -> tuple[bytes, FailureKind | None]:
    """The body as far as it came, and why no more of it did."""
    body = b""
    try:
        async with asyncio.timeout(10):
            while chunk := await response.read_chunk():
                body += chunk
    except AttemptFailed as failed:
        return body, failed.failure.kind
    return body, None


async def run_loop(count: int = 3) -> None:
    """So many turns of the event loop: what a socket has is read meanwhile."""
    for _ in range(count):
        await asyncio.sleep(0)


async def wait_until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0.001)


@asynccontextmanager
async def open_pool() -> AsyncIterator[ConnectionPool]:
    pool = ConnectionPool()
    try:
        yield pool
    finally:
        await pool.close()


@dataclass(slots=True)
class ConnectionPair:
    """One connection and the socket at the other end of it."""

    pool: ConnectionPool
    connection: Connection
    peer: socket.socket

    async def send_request(self) -> asyncio.Task[UpstreamResponse]:
        """A request that has left."""
        request = asyncio.ensure_future(self.connection.send(request_head(), b""))
        await run_loop(1)
        return request

    async def send_parts(self, parts: Iterable[bytes]) -> None:
        """Each part is read by itself."""
        for part in parts:
            with suppress(ConnectionError):  # it was closed after an earlier part
                self.peer.send(part)
            await run_loop()

    async def exchange(
        self, parts: Iterable[bytes], *, end: bool = False
    ) -> tuple[int, dict[str, str], bytes, FailureKind | None]:
        """Status, headers, body and failure of a request that is answered so."""
        request = await self.send_request()
        await self.send_parts(parts)
        if end:
            with suppress(OSError):
                self.peer.shutdown(socket.SHUT_WR)
        try:
            async with asyncio.timeout(10):
                response = await request
        except AttemptFailed as failed:
            return 0, {}, b"", failed.failure.kind
        async with response:
            body, kind = await read_all(response)
            return response.status, dict(response.headers), body, kind


@asynccontextmanager
async def open_connection() -> AsyncIterator[ConnectionPair]:
    loop = asyncio.get_running_loop()
    with socket.create_server((HOST, 0)) as server:
        near = socket.create_connection(server.getsockname())
        peer, _ = server.accept()
    near.setblocking(False)
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    async with open_pool() as pool:
        connection = Connection(pool, Origin(HOST, 1, tls=False), loop)
        await loop.create_connection(lambda: connection, sock=near)
        with peer:
            yield ConnectionPair(pool, connection, peer)
            connection.close()
            await run_loop()


@dataclass(slots=True)
class RawUpstream:
    """`connections` counts those that were accepted, `open` those that are."""

    origin: Origin
    connections: int = 0
    open: int = 0


@asynccontextmanager
async def raw_upstream(
    converse: Talk, tls: ssl.SSLContext | None = None
) -> AsyncIterator[RawUpstream]:
    """`converse` has each connection, which is closed behind it."""

    async def counted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream.connections += 1
        upstream.open += 1
        try:
            await converse(reader, writer)
        finally:
            upstream.open -= 1

    async with listening(counted, tls) as port:
        upstream = RawUpstream(Origin(HOST, port, tls is not None))
        yield upstream


async def read_request(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """Head and body."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0] or b"0")
    return head, await reader.readexactly(length)


def respond_with(*answers: bytes) -> Talk:
    """Every connection gives these answers in turn, and is closed with the last of them."""

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for answer in answers:
            await read_request(reader)
            writer.write(answer)
            await writer.drain()

    return converse


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Every request is answered with its own body."""
    while True:
        _, body = await read_request(reader)
        writer.write(OK + b"content-length: %d\r\n\r\n" % len(body) + body)
        await writer.drain()
