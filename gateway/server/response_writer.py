"""Writes one response as bytes to the client's connection: the head, then a body of known length or
in chunks.

The framework's own responses prepare a head in eight steps, which cost a quarter of a whole
request's processor time.
"""

from __future__ import annotations

from email.utils import formatdate
from time import time_ns
from typing import Final

from aiohttp import ClientConnectionResetError, HttpVersion11, web
from aiohttp.http_writer import StreamWriter

_MAX_JOINED: Final = 64 * 1024
"""Bytes of a body up to which it is copied behind its head, to be one write."""

_LAST_CHUNK: Final = b"0\r\n\r\n"


class SentResponse(web.StreamResponse):
    """A response that has been written already: the framework has nothing left to do for it."""

    def __init__(self, status: int, *, keep_alive: bool) -> None:
        # The framework's own constructor prepares what is never used.
        self._status = status
        self._keep_alive = keep_alive
        self._eof_sent = True


class ResponseWriter:
    """One response of status 200. Its methods raise `ClientConnectionResetError` where the client
    has disconnected; `head_lines` are headers, each with its line end."""

    __slots__ = ("_chunked", "_keep_alive", "_protocol", "_request", "_writer")

    def __init__(self, request: web.Request) -> None:
        self._request = request
        self._protocol = request.protocol
        # The framework declares an interface without the size that was written.
        self._writer: StreamWriter = request.writer  # type: ignore[assignment]
        self._chunked = True
        self._keep_alive = bool(request.keep_alive)

    @property
    def is_full(self) -> bool:
        """Whether the client has not read what was written, so that more should wait."""
        return self._protocol.writing_paused

    async def drain(self) -> None:
        """Waits until it has."""
        await self._writer.drain()

    def send_body(self, head_lines: str, content_type: str, body: bytes) -> SentResponse:
        """The complete response."""
        head = self._head(
            f"content-type: {content_type}\r\ncontent-length: {len(body)}", head_lines
        )
        if len(body) > _MAX_JOINED:
            self._write(head)
            self._write(body)
        else:
            self._write(head + body)
        return self.sent()

    def start(self, head_lines: str, content_type: str, data: bytes, *, last: bool) -> None:
        """The head of a body of unknown length, and its first bytes."""
        if self._request.version < HttpVersion11:
            self._chunked = self._keep_alive = False
        lines = f"content-type: {content_type}\r\ncache-control: no-cache\r\nx-accel-buffering: no"
        if self._chunked:
            lines += "\r\ntransfer-encoding: chunked"
        self._write(self._head(lines, head_lines) + self._frame(data, last=last))

    def send(self, data: bytes, *, last: bool = False) -> None:
        """More of the body, in one write; the response ends with the `last` of it."""
        if framed := self._frame(data, last=last):
            self._write(framed)

    def sent(self) -> SentResponse:
        """What the framework gets after the last byte."""
        return SentResponse(200, keep_alive=self._keep_alive)

    def abort(self) -> None:
        """Cuts the connection."""
        if self._request.transport is not None:
            self._request.transport.abort()

    def _head(self, body_lines: str, head_lines: str) -> bytes:
        major, minor = self._request.version
        connection = ""
        if not self._keep_alive:
            connection = "connection: close\r\n"
        elif minor == 0:
            connection = "connection: keep-alive\r\n"
        head = (
            f"HTTP/{major}.{minor} 200 OK\r\ndate: {_CLOCK.http_date()}\r\n{body_lines}\r\n"
            f"{connection}{head_lines}\r\n"
        )
        return head.encode("utf-8", "surrogateescape")

    def _frame(self, data: bytes, *, last: bool) -> bytes:
        if not self._chunked:
            return data
        end = _LAST_CHUNK if last else b""
        return b"%x\r\n%b\r\n%b" % (len(data), data, end) if data else end

    def _write(self, data: bytes) -> None:
        transport = self._protocol.transport
        if transport is None or transport.is_closing():
            raise ClientConnectionResetError("the client has disconnected")
        self._writer.output_size += len(data)
        transport.write(data)


class _Clock:
    """The time as headers have it, formatted once per second."""

    __slots__ = ("_second", "_text")

    def __init__(self) -> None:
        self._second = 0
        self._text = ""

    def http_date(self) -> str:
        second = time_ns() // 1_000_000_000
        if second != self._second:
            self._second, self._text = second, formatdate(second, usegmt=True)
        return self._text


_CLOCK: Final = _Clock()
