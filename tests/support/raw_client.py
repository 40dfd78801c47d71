"""A client on a raw socket that may behave badly: read nothing, send slowly, leave in any way.

Independent of what is asked; corrects nothing that it is told to send.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from enum import Enum
from urllib.parse import urlsplit

import orjson
from multidict import CIMultiDict

_READ = 64 * 1024
_PATIENCE = 10.0
"""Seconds for which anything is waited for."""
_LINGER = (socket.SOL_SOCKET, socket.SO_LINGER)
_ABORT = struct.pack("ii", 1, 0)


class Leave(Enum):
    """How a client hangs up."""

    CLOSE = "close"
    RESET = "reset"
    HALF_CLOSE = "half-close"


class End(Enum):
    """How an answer ended."""

    OPEN = "neatly, and the connection is open"
    EOF = "with the connection"
    RESET = "with a reset"


@dataclass(frozen=True, slots=True)
class Received:
    """An answer. `body` is without its chunks' frames. `complete` tells whether HTTP says that it
    is all of it: never, where the end of the connection is the end of the body."""

    status: int
    headers: CIMultiDict[str]
    body: bytes
    end: End
    complete: bool
    interim: tuple[int, ...] = ()
    """The statuses of the heads before it."""


class BrokenHead(Exception):
    """No head of an answer came, or not all of it: how the connection ended, and what came."""


def request(
    address: str,
    path: str,
    body: object = None,
    headers: Mapping[str, str] | None = None,
    *,
    method: str = "POST",
) -> bytes:
    """A sound request. `address` may have a path of its own, as a `base_url` has; `body` is bytes
    or what becomes JSON; `headers` overrule those that belong there."""
    place = urlsplit(address)
    written = body if isinstance(body, bytes) else b"" if body is None else orjson.dumps(body)
    named = CIMultiDict({"host": place.netloc, "content-length": str(len(written))})
    if body is not None:
        named["content-type"] = "application/json"
    named.update(headers or {})
    lines = [f"{method} {place.path.rstrip('/')}{path} HTTP/1.1"]
    lines += [f"{name}: {value}" for name, value in named.items()]
    return "\r\n".join((*lines, "", "")).encode("latin-1") + written


class RawClient:
    """One connection. `received` are the bytes that came, as they came, and were not taken for an
    answer; what nobody asked for stays with the kernel."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._loop = asyncio.get_running_loop()
        self.received = bytearray()
        self.ended: End | None = None
        """Once the other side has closed."""

    async def send(self, data: bytes) -> None:
        """At once; waits as long as the other side does not read."""
        await self._loop.sock_sendall(self._socket, data)

    async def drip(self, data: bytes, every: float, size: int = 1) -> int:
        """`size` bytes at a time, so many seconds apart, until the other side says something or
        hangs up: how many were sent."""
        for start in range(0, len(data), size):
            try:
                await self.send(data[start : start + size])
            except ConnectionError:
                return start
            await asyncio.sleep(every)
            if self._is_complete():
                return min(start + size, len(data))
        return len(data)

    async def receive(self, limit: int = _READ) -> bytes:
        """What comes next, at most so many bytes; nothing where the other side has closed."""
        try:
            chunk = await self._loop.sock_recv(self._socket, limit)
        except ConnectionError:
            self.ended = End.RESET
            return b""
        if not chunk:
            self.ended = End.EOF
        self.received += chunk
        return chunk

    async def receive_until(self, mark: bytes) -> bytes:
        """All that came, once `mark` is in it."""
        async with asyncio.timeout(_PATIENCE):
            while mark not in self.received:
                if not await self.receive():
                    raise AssertionError(f"{mark!r} never came, but: {bytes(self.received)!r}")
        return bytes(self.received)

    async def receive_bytes(self, count: int) -> bytes:
        """All that came, once it is so many bytes; not one more is taken from the kernel."""
        async with asyncio.timeout(_PATIENCE):
            while len(self.received) < count:
                if not await self.receive(count - len(self.received)):
                    raise AssertionError(f"{count} bytes never came, but: {bytes(self.received)!r}")
        return bytes(self.received)

    async def receive_all(self) -> bytes:
        """All that came, once the other side has closed."""
        async with asyncio.timeout(_PATIENCE):
            while await self.receive():
                pass
        return bytes(self.received)

    async def answer(self) -> Received:
        """The next answer, or as much of it as came. What belongs to the one after it stays in
        `received`. Raises `BrokenHead`."""
        async with asyncio.timeout(_PATIENCE):
            interim: list[int] = []
            status, headers = await self._head()
            while 100 <= status < 200:
                interim.append(status)
                status, headers = await self._head()
            if "chunked" in headers.get("transfer-encoding", ""):
                body, complete = await self._chunks()
            elif "content-length" in headers:
                length = int(headers["content-length"])
                body = await self._take(length)
                complete = len(body) == length
            else:
                body, complete = await self._remaining(), False
        end = End.OPEN if complete else self.ended or End.OPEN
        return Received(status, headers, body, end, complete, tuple(interim))

    def take(self) -> None:
        """Reads some of what has come, without waiting for it."""
        with suppress(BlockingIOError):
            self._socket.recv(_READ)

    def close(self) -> None:
        self._socket.close()

    def leave(self, how: Leave) -> None:
        """Half-closed, it may still read."""
        if how is Leave.HALF_CLOSE:
            self._socket.shutdown(socket.SHUT_WR)
            return
        if how is Leave.RESET:
            self._socket.setsockopt(*_LINGER, _ABORT)
        self._socket.close()

    async def leave_at(self, count: int, how: Leave = Leave.RESET) -> None:
        """Leaves after so many bytes of what is sent to it."""
        await self.receive_bytes(count)
        self.leave(how)

    def _is_complete(self) -> bool:
        """Whether anything came, be it the end; it stays with the kernel."""
        try:
            self._socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except ConnectionError:
            self.ended = End.RESET
        return True

    async def _head(self) -> tuple[int, CIMultiDict[str]]:
        first, *lines = await self._lines()
        headers: CIMultiDict[str] = CIMultiDict()
        for line in lines:
            name, _, value = line.decode("latin-1").partition(":")
            headers.add(name, value.strip())
        return int(first.split(b" ")[1]), headers

    async def _lines(self) -> list[bytes]:
        lines: list[bytes] = []
        while line := await self._line():
            lines.append(line)
        if line is None:
            raise BrokenHead(self.ended, b"\r\n".join((*lines, bytes(self.received))))
        return lines

    async def _chunks(self) -> tuple[bytes, bool]:
        body = bytearray()
        while (line := await self._line()) is not None:
            size = int(line.partition(b";")[0], 16)
            body += await self._take(size)
            if await self._line() is None:
                break
            if size == 0:
                return bytes(body), True
        return bytes(body), False

    async def _line(self) -> bytes | None:
        """Without its end; None where it has none."""
        while (end := self.received.find(b"\r\n")) < 0:
            if self.ended or not await self.receive():
                return None
        return self._taken(end + 2)[:-2]

    async def _take(self, count: int) -> bytes:
        while len(self.received) < count and self.ended is None:
            await self.receive()
        return self._taken(count)

    async def _remaining(self) -> bytes:
        while self.ended is None:
            await self.receive()
        return self._taken(len(self.received))

    def _taken(self, count: int) -> bytes:
        taken = bytes(self.received[:count])
        del self.received[:count]
        return taken


async def connect(address: str, *, room: int = 0) -> RawClient:
    """A connection to the host and port of an address. `room`: the size of the receive buffer, in
    bytes, where it shall be small."""
    place = urlsplit(address)
    connection = socket.socket()
    connection.setblocking(False)
    try:
        if room:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, room)
        async with asyncio.timeout(_PATIENCE):
            await asyncio.get_running_loop().sock_connect(connection, (place.hostname, place.port))
    except BaseException:
        connection.close()
        raise
    return RawClient(connection)


@asynccontextmanager
async def raw_client(address: str, *, room: int = 0) -> AsyncIterator[RawClient]:
    """Closed at the end of the block; `room` as in `connect`."""
    client = await connect(address, room=room)
    try:
        yield client
    finally:
        client.close()
