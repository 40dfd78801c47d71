"""The answer to one request as it is written, valid HTTP or not: heads, chunks, all ways to end."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Iterable
from enum import Enum

JSON = "application/json"
EVENTS = "text/event-stream"

_SLICE = 64 * 1024
"""Bytes of one write, so that a huge piece is taken by and by."""
_LINGER = (socket.SOL_SOCKET, socket.SO_LINGER)
_ABORT = struct.pack("ii", 1, 0)
_READ_TIME = 0.05
"""Seconds for the peer to read what was sent: a reset discards what it has not read yet."""


class Framing(Enum):
    """How the end of a body is told."""

    CHUNKED = "chunked"
    LENGTH = "length"
    CLOSE = "close"


class Answer:
    """`sent` counts bytes of the body that the socket took; `keep_alive`: the connection may carry
    another request; `idle`: it is closed after so many seconds without one."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        # Every drain waits until the socket has taken all of it: what is counted has left. Not 0:
        # with that TLS waits for ever.
        writer.transport.set_write_buffer_limits(high=1)
        self._writer = writer
        self._framing = Framing.CLOSE
        self.sent = 0
        self.keep_alive = True
        self.idle: float | None = None

    async def raw(self, data: bytes) -> None:
        """Any bytes, as they are."""
        self._writer.write(data)
        await self._writer.drain()

    async def head(
        self,
        status: int = 200,
        kind: str | None = JSON,
        headers: Iterable[tuple[str, str]] = (),
        *,
        framing: Framing = Framing.CHUNKED,
        length: int = 0,
    ) -> None:
        """`kind` is the content type; `length` counts with `Framing.LENGTH` alone."""
        lines = [f"HTTP/1.1 {status} Scripted"]
        lines += [f"content-type: {kind}"] if kind else []
        lines += [f"{name}: {value}" for name, value in headers]
        match framing:
            case Framing.CHUNKED:
                lines.append("transfer-encoding: chunked")
            case Framing.LENGTH:
                lines.append(f"content-length: {length}")
            case Framing.CLOSE:
                lines.append("connection: close")
        self._framing = framing
        await self.raw("\r\n".join([*lines, "", ""]).encode("latin-1"))

    async def begin_stream(self) -> None:
        """The head of an event stream in chunks."""
        await self.head(kind=EVENTS)

    async def say(self, data: bytes) -> None:
        """A part of the body."""
        for start in range(0, len(data), _SLICE):
            part = data[start : start + _SLICE]
            chunked = self._framing is Framing.CHUNKED
            await self.raw(b"%x\r\n%b\r\n" % (len(part), part) if chunked else part)
            self.sent += len(part)

    async def end(self) -> None:
        """The body's end, as the framing wants it."""
        match self._framing:
            case Framing.CHUNKED:
                await self.raw(b"0\r\n\r\n")
            case Framing.CLOSE:
                self.keep_alive = False
            case Framing.LENGTH:
                pass

    async def send_body(
        self,
        status: int,
        kind: str | None,
        body: bytes,
        headers: Iterable[tuple[str, str]] = (),
    ) -> None:
        """All at once."""
        await self.head(status, kind, headers, framing=Framing.LENGTH, length=len(body))
        await self.say(body)

    def hang_up(self) -> None:
        """FIN, whatever was promised."""
        self.keep_alive = False

    async def reset(self, after: float = _READ_TIME) -> None:
        """RST."""
        await asyncio.sleep(after)
        self.keep_alive = False
        self._writer.get_extra_info("socket").setsockopt(*_LINGER, _ABORT)
        self._writer.transport.abort()
