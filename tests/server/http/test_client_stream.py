"""The bytes of a response as a client's socket gets them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from email.utils import parsedate_to_datetime
from time import time

import pytest
from aiohttp import ClientConnectionResetError, web

from gateway.server.http.client_stream import ResponseWriter

Handler = Callable[[web.Request, ResponseWriter], Awaitable[web.StreamResponse]]

HEAD = "server: x\r\nx-name: é\udcff\r\n"
TYPE = "text/event-stream"


@asynccontextmanager
async def serving(handler: Handler) -> AsyncIterator[int]:
    async def handle(request: web.Request) -> web.StreamResponse:
        await request.read()
        return await handler(request, ResponseWriter(request))

    app = web.Application()
    app.router.add_post("/", handle)
    runner = web.AppRunner(app, shutdown_timeout=1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


def request(version: str = "1.1", connection: str = "") -> bytes:
    line = f"connection: {connection}\r\n" if connection else ""
    return f"POST / HTTP/{version}\r\nhost: x\r\n{line}content-length: 0\r\n\r\n".encode()


async def ask(port: int, *requests: bytes) -> tuple[bytes, bool]:
    """All bytes that came of the requests, sent one after the other over one connection, and
    whether the gateway closed it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    got, closed = b"", False
    try:
        for each in requests:
            writer.write(each)
            try:
                while True:
                    data = await asyncio.wait_for(reader.read(2**20), 0.2)
                    closed = not data
                    if closed:
                        return got, True
                    got += data
            except TimeoutError:
                pass
        return got, closed
    finally:
        writer.transport.abort()


def head_and_body(response: bytes) -> tuple[str, dict[str, str], bytes]:
    head, _, body = response.partition(b"\r\n\r\n")
    status, *lines = head.decode("utf-8", "surrogateescape").split("\r\n")
    fields = [line.partition(": ") for line in lines]
    headers = {name: value for name, _, value in fields}
    assert len(headers) == len(lines), "no name stands twice"
    return status, headers, body


async def send_whole(request: web.Request, writer: ResponseWriter) -> web.StreamResponse:
    return writer.send_body(HEAD, "application/json", b'{"a":1}')


async def stream(request: web.Request, writer: ResponseWriter) -> web.StreamResponse:
    writer.start(HEAD, TYPE, b"one", last=False)
    writer.send(b"")
    writer.send(b"two" * 6)
    await writer.drain()
    writer.send(b"", last=True)
    return writer.sent()


CONNECTIONS = [
    ("1.1", "", None, False),
    ("1.1", "close", "close", True),
    ("1.0", "", "close", True),
    ("1.0", "keep-alive", "keep-alive", False),
]
"""Version and header of a request, then the header and the end of the response."""


@pytest.mark.parametrize(("version", "connection", "header", "closes"), CONNECTIONS)
async def test_a_whole_body(
    version: str, connection: str, header: str | None, closes: bool
) -> None:
    async with serving(send_whole) as port:
        got, closed = await ask(port, request(version, connection))
        status, headers, body = head_and_body(got)
        assert status == f"HTTP/{version} 200 OK"
        assert body == b'{"a":1}'
        date = parsedate_to_datetime(headers.pop("date"))
        assert abs(date.timestamp() - time()) < 5
        assert headers.pop("connection", None) == header
        assert headers == {
            "content-type": "application/json",
            "content-length": "7",
            "server": "x",
            "x-name": "é\udcff",
        }
        assert closed is closes


@pytest.mark.parametrize(
    ("version", "connection", "header", "closes"),
    [*CONNECTIONS[:3], ("1.0", "keep-alive", "close", True)],
)
async def test_a_stream(version: str, connection: str, header: str | None, closes: bool) -> None:
    """In chunks, or in HTTP/1.0 until the end of the connection."""
    async with serving(stream) as port:
        got, closed = await ask(port, request(version, connection))
        _, headers, body = head_and_body(got)
        assert headers.get("connection") == header
        assert headers["cache-control"] == "no-cache"
        assert headers["x-accel-buffering"] == "no"
        assert "content-length" not in headers
        if version == "1.1":
            assert headers["transfer-encoding"] == "chunked"
            assert body == b"3\r\none\r\n12\r\ntwotwotwotwotwotwo\r\n0\r\n\r\n"
        else:
            assert "transfer-encoding" not in headers
            assert body == b"onetwotwotwotwotwotwo"
        assert closed is closes


@pytest.mark.parametrize("handler", [send_whole, stream])
async def test_the_next_request(handler: Handler) -> None:
    """Over the same connection, also when both were sent together."""
    async with serving(handler) as port:
        (once, _), (twice, _), (at_once, _) = [
            await ask(port, *requests)
            for requests in ([request()], [request()] * 2, [request() * 2])
        ]
        body = head_and_body(once)[2]
        for got in (twice, at_once):
            assert got.count(b"HTTP/1.1 200 OK\r\n") == 2
            assert got.count(body) == 2
            assert got.endswith(body)


@pytest.mark.parametrize(
    ("data", "framed"),
    [(b"", b"0\r\n\r\n"), (b"x" * 11, b"b\r\nxxxxxxxxxxx\r\n0\r\n\r\n")],
)
async def test_the_end_in_the_first_write(data: bytes, framed: bytes) -> None:
    written: list[bytes] = []

    async def handler(request: web.Request, writer: ResponseWriter) -> web.StreamResponse:
        assert request.transport is not None
        write = request.transport.write
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                writer, "_protocol", _Recording(writer._protocol, written, write), raising=True
            )
            writer.start("", TYPE, data, last=True)
        return writer.sent()

    async with serving(handler) as port:
        got, _ = await ask(port, request())
        assert head_and_body(got)[2] == framed
        assert written == [got], "one write"


@pytest.mark.parametrize("size", [0, 1, 64 * 1024, 64 * 1024 + 1, 5 * 10**6])
async def test_sizes(size: int) -> None:
    async def handler(request: web.Request, writer: ResponseWriter) -> web.StreamResponse:
        return writer.send_body("", "text/plain", bytes(size))

    async with serving(handler) as port:
        got, _ = await ask(port, request())
        _, headers, body = head_and_body(got)
        assert headers["content-length"] == str(size)
        assert body == bytes(size)


async def test_a_client_that_has_disconnected() -> None:
    failed: asyncio.Future[list[str]] = asyncio.get_running_loop().create_future()

    async def handler(request: web.Request, writer: ResponseWriter) -> web.StreamResponse:
        writer.start("", TYPE, b"one", last=False)
        try:
            while request.transport is not None:
                await asyncio.sleep(0.005)
        except asyncio.CancelledError:
            pass
        outcomes = []
        for write in (
            lambda: writer.send(b"two"),
            lambda: writer.send(b"", last=True),
            lambda: writer.start("", TYPE, b"one", last=True),
            lambda: writer.send_body("", TYPE, b"all"),
        ):
            try:
                write()
            except ClientConnectionResetError:
                outcomes.append("left")
        writer.send(b"")
        writer.abort()
        failed.set_result(outcomes)
        return writer.sent()

    async with serving(handler) as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request())
        await asyncio.sleep(0.05)
        writer.transport.abort()
        assert await asyncio.wait_for(failed, 5) == ["left"] * 4


async def test_a_client_that_does_not_read() -> None:
    """The writer says so, waits until it does, and can cut it off."""
    full: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def handler(request: web.Request, writer: ResponseWriter) -> web.StreamResponse:
        writer.start("", TYPE, b"one", last=False)
        while not writer.is_full:
            writer.send(bytes(2**20))
        full.set_result(None)
        await writer.drain()
        assert not writer.is_full
        writer.abort()
        with pytest.raises(ClientConnectionResetError):
            writer.send(b"two")
        return writer.sent()

    async with serving(handler) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**16)
        writer.write(request())
        await asyncio.wait_for(full, 5)
        got = b""
        try:
            while data := await asyncio.wait_for(reader.read(2**20), 5):
                got = data
        except ConnectionError:
            pass
        assert not got.endswith(b"0\r\n\r\n")
        writer.transport.abort()


class _Recording:
    """The protocol of a connection whose writes are recorded."""

    def __init__(self, protocol: object, written: list[bytes], write: Callable) -> None:  # type: ignore[type-arg]
        self._protocol = protocol
        self._data = written
        self._write = write

    @property
    def transport(self) -> _Recording:
        return self

    def is_closing(self) -> bool:
        return False

    def write(self, data: bytes) -> None:
        self._data.append(data)
        self._write(data)
