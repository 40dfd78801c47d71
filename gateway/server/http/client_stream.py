"""Responses as bytes on the client's connection: a complete body, or a stream with pings.

The framework's own responses prepare a head in eight steps, which cost a quarter of a whole
request's processor time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from email.utils import formatdate
from functools import lru_cache
from time import time_ns
from typing import Any, Final, Protocol, Self

import orjson
from aiohttp import ClientConnectionResetError, HttpVersion11, web

from gateway.config.channel import Timeouts
from gateway.errors import GatewayError
from gateway.server.http.framework import SentResponse, StreamWriter
from gateway.server.http.headers import reply_head
from gateway.server.record.deadlines import AbortableTimeout
from gateway.server.record.exchange import EXCHANGE, Exchange

PING_INTERVAL: Final = 15.0
"""Seconds of silence after which a ping is sent."""

MIN_RATE: Final = 32 * 1024
"""Bytes per second that a client has to read of what is sent to it."""

_STALLED_INTERVAL: Final = 1.0
"""Seconds between two checks of a client that does not read."""

_MAX_JOINED: Final = 64 * 1024
"""Bytes of a body up to which it is copied behind its head, to be one write."""

_SMALL: Final = 64 * 1024
"""Bytes of a body that are read at once, and that a connection may have unread; a thread reads
more."""

JSON: Final = "application/json"
EVENT_STREAM: Final = "text/event-stream"
_EVENT_STREAM: Final = "text/event-stream; charset=utf-8"
_LAST_CHUNK: Final = b"0\r\n\r\n"


class ReplySink(Protocol):
    """The destination of a streamed reply: a client's connection, or the log of a background
    response. `ping` renders a ping, and the relay replaces it; `write_started` is the loop's time
    since which it has not taken what was written, or None."""

    ping: Callable[[], bytes]
    write_started: float | None

    def write(self, data: bytes, headers: Mapping[str, str], *, last: bool = False) -> bool:
        """Complete frames; `headers` go before the first of them. Whether more can follow at once:
        if not, await `drained`."""
        ...

    async def drained(self) -> None: ...

    def abort(self) -> None: ...

    def close(self) -> None: ...

    def sent(self) -> web.StreamResponse: ...


class UnreadReply(AbortableTimeout):
    """`with UnreadReply(exchange, transport)`, around the wait for a client: books what it has not
    read as memory of its request. Raises as `BodyPool.check`, and `TimeoutError` where it has read
    nothing for `timeouts.write`, or is slower than `MIN_RATE` for longer than that."""

    __slots__ = ("_exchange", "_size", "_transport", "_unread", "_until", "_write")

    def __init__(self, exchange: Exchange, transport: asyncio.WriteTransport) -> None:
        timeouts, candidate = Timeouts(), exchange.candidate
        if candidate is not None:
            timeouts = exchange.snapshot.upstream.channel(candidate).timeouts
        self._exchange, self._transport = exchange, transport
        self._size = self._unread = transport.get_write_buffer_size()
        self._write, now = timeouts.write, asyncio.get_running_loop().time()
        self._until = now + self._write + self._size / MIN_RATE
        super().__init__(exchange.runtime, now + self._write)

    def __enter__(self) -> Self:
        self._exchange.book_body(self._size)
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        self._exchange.release_body(self._size)
        super().__exit__(*error)

    def on_deadline(self, now: float) -> None:
        unread = self._transport.get_write_buffer_size()
        if unread >= self._unread or now >= self._until:
            super().on_deadline(now)
        else:
            self._unread = unread
            self.when = min(now + self._write, self._until)


class ResponseWriter:
    """One response of status 200. Its methods raise `ClientConnectionResetError` where the client
    has disconnected; `head_lines` are headers, each with its line end."""

    __slots__ = ("_chunked", "_keep_alive", "_protocol", "_request", "_writer")

    def __init__(self, request: web.Request) -> None:
        self._request = request
        self._protocol = request.protocol
        # The framework declares an interface without the size that was written.
        self._writer: StreamWriter = request.writer  # type: ignore[assignment]
        self._chunked = self._keep_alive = True

    @property
    def is_full(self) -> bool:
        """Tells whether the client has not read what was written, so that more should wait."""
        return self._protocol.writing_paused

    async def drain(self) -> None:
        """Waits until it has. A client that takes too long is cut off, and so is one where others
        leave no memory for what it has not read."""
        if not self.is_full:
            return
        transport, exchange = self._request.transport, self._request[EXCHANGE]
        if transport is None:
            raise ClientConnectionResetError("the client has disconnected")
        try:
            with UnreadReply(exchange, transport):
                # Shielded, as the framework's next `drain` waits for the same future.
                await asyncio.shield(self._writer.drain())
        except (TimeoutError, GatewayError):
            exchange.client_stalled()
            self.abort()
            raise ClientConnectionResetError("the client does not read") from None

    def send_body(self, head_lines: str, content_type: str, body: bytes) -> SentResponse:
        """The complete response."""
        lines = f"content-type: {content_type}\r\ncontent-length: {len(body)}"
        head = self._head(lines, head_lines)
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
        """Sends more of the body, in one write; the response ends with the `last` of it."""
        if framed := self._frame(data, last=last):
            self._write(framed)

    def sent(self) -> SentResponse:
        """Returns the response that the framework gets after the last byte."""
        return SentResponse(200, keep_alive=self._keep_alive)

    def abort(self) -> None:
        """Cuts the connection."""
        if self._request.transport is not None:
            self._request.transport.abort()

    def _head(self, body_lines: str, head_lines: str) -> bytes:
        major, minor = self._request.version
        connection = ""
        # Now, not earlier: a drain may have begun since.
        self._keep_alive = self._keep_alive and bool(self._request.keep_alive)
        if not self._keep_alive:
            connection = "connection: close\r\n"
        elif minor == 0:
            connection = "connection: keep-alive\r\n"
        date = _http_date(time_ns() // 10**9)
        head = (
            f"HTTP/{major}.{minor} 200 OK\r\ndate: {date}\r\n{body_lines}\r\n"
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


class ClientStream(ResponseWriter):
    """One streamed reply. The head is sent with its first frames, or with the first ping where the
    reply is late.

    `ping` renders a ping; the relay replaces it. `when` is the loop's time of the next one.
    `write_started` is the loop's time since which the client has not read what was written, or
    None."""

    __slots__ = ("_exchange", "_loop", "_scheduler", "ping", "when", "write_started")

    def __init__(
        self, request: web.Request, ping: Callable[[], bytes], first_ping_after: float
    ) -> None:
        """`first_ping_after` is in seconds."""
        super().__init__(request)
        self.ping = ping
        self.write_started: float | None = None
        self._exchange = request[EXCHANGE]
        self._loop = asyncio.get_running_loop()
        self.when = self._loop.time() + first_ping_after
        self._scheduler = self._exchange.runtime.scheduler
        self._scheduler.add(self)

    def write(self, data: bytes, headers: Mapping[str, str], *, last: bool = False) -> bool:
        """Complete frames, in one write; `headers` go before the first of them, the end of the body
        after the `last`. Whether the client can take more at once: if not, await `drained`."""
        now = self._loop.time()
        if last:
            self._scheduler.discard(self)
        else:
            next_ping = now + PING_INTERVAL
            is_sooner, self.when = next_ping < self.when, next_ping
            if is_sooner:
                self._scheduler.add(self)
        self._send(data, headers, last=last)
        if not self.is_full:
            return True
        self.write_started = now
        return False

    async def drained(self) -> None:
        """Waits until the client has read what was written."""
        if self.write_started is not None:
            await self.drain()
            self.write_started = None

    def close(self) -> None:
        """Ends the pings; call it however the reply ended."""
        self._scheduler.discard(self)

    def on_deadline(self, now: float) -> None:
        if self.write_started is not None:
            self.when = now + _STALLED_INTERVAL
            return
        self.when = now + PING_INTERVAL
        # Where the client has disconnected, the handler is cancelled.
        with suppress(ConnectionError, RuntimeError):
            self._send(self.ping(), {})

    def on_abort(self) -> None:
        """The relay ends the stream."""

    def _send(self, data: bytes, headers: Mapping[str, str], *, last: bool = False) -> None:
        exchange = self._exchange
        exchange.bytes_out += len(data)
        if exchange.headers_sent:
            self.send(data, last=last)
            return
        head = reply_head(self._request, exchange, headers)
        exchange.headers_sent = True
        self.start(head, _EVENT_STREAM, data, last=last)


@lru_cache(maxsize=1)
def _http_date(second: int) -> str:
    """The time as headers have it, formatted once per second."""
    return formatdate(second, usegmt=True)


async def render_json(
    exchange: Exchange, size: int, build: Callable[..., Any], *args: Any
) -> bytes:
    """Renders as JSON what `build` returns of `args`, which have `size` bytes. Await it in the
    arguments of `send_json`, and keep none of the `args`: they are no longer booked then."""

    def render() -> bytes:
        text = orjson.dumps(build(*args))
        if exchange.long_texts is not None:
            return bytes(exchange.long_texts.restore(text))
        return text

    return await exchange.run_in_thread(render) if size > _SMALL else render()


async def send_json(request: web.Request, body: bytes) -> web.StreamResponse:
    """A small one is left to the framework. A large one is booked until the client has read it, in
    place of what it was made of; raises as `BodyPool.check` where there is no memory, or as
    `ResponseWriter.drain`."""
    exchange = request[EXCHANGE]
    if len(body) <= _SMALL:
        exchange.complete()
        return web.Response(body=body, content_type=JSON)
    exchange.long_texts = None
    exchange.release_body(exchange.booked)
    exchange.check_body(len(body))
    head, writer = reply_head(request, exchange, {}), ResponseWriter(request)
    exchange.headers_sent = True
    exchange.bytes_out = len(body)
    response = writer.send_body(head, JSON, body)
    del body
    await writer.drain()
    exchange.complete()
    return response
