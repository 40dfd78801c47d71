"""The client's connection, written to in bytes: one head, then a body of known length or in chunks.

The framework's own responses build a head in eight steps, and cost a quarter of a whole request's
processor time. It must not know what is said.
"""

from __future__ import annotations

from email.utils import formatdate
from time import time_ns
from typing import Final

from aiohttp import ClientConnectionResetError, HttpVersion11, web
from aiohttp.http_writer import StreamWriter

from gateway.server.heading import Heading

_SMALL: Final = 64 * 1024
_LAST: Final = b"0\r\n\r\n"


class Sent(web.StreamResponse):
    """An answer that has left already: the framework has nothing to do for it."""

    def __init__(self, status: int, keep_alive: bool) -> None:
        # Without the framework's own beginning, which prepares what is never used.
        self._status = status
        self._keep_alive = keep_alive
        self._eof_sent = True


class Outlet:
    """Where one answer leaves. Everything raises `ClientConnectionResetError` where nobody is there
    any more."""

    __slots__ = ("_chunked", "_protocol", "_request", "_writer", "keep_alive")

    def __init__(self, request: web.Request) -> None:
        self._request = request
        self._protocol = request.protocol
        self._writer: StreamWriter = request.writer  # type: ignore[assignment]
        self._chunked = True
        self.keep_alive = bool(request.keep_alive)

    @property
    def full(self) -> bool:
        """Whether the client has not taken what was written, so that more should wait."""
        return self._protocol.writing_paused

    async def emptied(self) -> None:
        """It has taken it."""
        await self._writer.drain()

    def send_whole(self, heading: Heading, kind: str, body: bytes) -> Sent:
        lines = self._status(200)
        lines.append(f"content-type: {kind}\r\ncontent-length: {len(body)}")
        head = _head(lines, heading)
        if len(body) > _SMALL:
            self._write(head)
            self._write(body)
        else:
            self._write(head + body)
        return Sent(200, self.keep_alive)

    def begin(self, heading: Heading, kind: str, data: bytes) -> None:
        """The head of a body whose length nobody knows, and the beginning of it."""
        self._chunked = self._request.version >= HttpVersion11
        if not self._chunked:
            self.keep_alive = False
        lines = self._status(200)
        lines.append(f"content-type: {kind}\r\ncache-control: no-cache\r\nx-accel-buffering: no")
        if self._chunked:
            lines.append("transfer-encoding: chunked")
        self._write(_head(lines, heading) + self._framed(data))

    def send(self, data: bytes) -> None:
        self._write(self._framed(data))

    def end(self, data: bytes) -> Sent:
        """The last of it."""
        if self._chunked:
            self._write(self._framed(data) + _LAST)
        elif data:
            self._write(data)
        return Sent(200, self.keep_alive)

    def abort(self) -> None:
        """Cuts the connection."""
        if self._request.transport is not None:
            self._request.transport.abort()

    def _status(self, status: int) -> list[str]:
        request = self._request
        major, minor = request.version
        lines = [f"HTTP/{major}.{minor} {status} OK", f"date: {_DATE.now()}"]
        if minor == 0 and self.keep_alive:
            lines.append("connection: keep-alive")
        elif not self.keep_alive:
            lines.append("connection: close")
        return lines

    def _framed(self, data: bytes) -> bytes:
        if not data or not self._chunked:
            return data
        return b"%x\r\n%b\r\n" % (len(data), data)

    def _write(self, data: bytes) -> None:
        transport = self._protocol.transport
        if transport is None or transport.is_closing():
            raise ClientConnectionResetError("Cannot write to closing transport")
        self._writer.output_size += len(data)
        transport.write(data)


def _head(lines: list[str], heading: Heading) -> bytes:
    lines += [f"{name}: {value}" for name, value in heading]
    lines.append("\r\n")
    return "\r\n".join(lines).encode("utf-8", "surrogateescape")


class _Date:
    """The time as a head has it, written once in a second."""

    __slots__ = ("_second", "_text")

    def __init__(self) -> None:
        self._second = 0
        self._text = ""

    def now(self) -> str:
        second = time_ns() // 1_000_000_000
        if second != self._second:
            self._second, self._text = second, formatdate(second, usegmt=True)
        return self._text


_DATE: Final = _Date()
