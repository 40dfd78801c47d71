"""One HTTP/1.1 connection to an upstream: requests and their responses, one at a time.

llhttp parses. aiohttp's client builds a request, a response and a stream object for each request,
which cost three times as much processor time as everything else that a request needs of its
connection.
"""

from __future__ import annotations

import asyncio
import fcntl
import select
import sys
import termios
from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol, cast

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from gateway.core.buffers import Buffers
from gateway.core.events import Failure, FailureKind
from gateway.upstream.response import (
    AttemptFailed,
    StaleConnection,
    UpstreamResponse,
    attempt_failed,
)
from gateway.upstream.turns import READ_SIZE, BulkTurns, ReadTurns


def has_unread(descriptor: int) -> bool:
    """Whether there is something to read: bytes, an error or the end."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))


def unacknowledged(descriptor: int) -> int:
    """Bytes that were written and that the other end has not confirmed, nor will after a reset; 0
    if the system does not tell, as of a closed socket."""
    try:
        size = fcntl.ioctl(descriptor, termios.TIOCOUTQ, bytes(4))
    except (OSError, ValueError):
        return 0
    return int.from_bytes(size, sys.byteorder)


MAX_OVERHEAD: Final = 256 * 1024
"""Bytes without any of a body: interim responses, the head, trailers."""

MAX_HEADER: Final = 64 * 1024
MAX_HEADERS: Final = 256
MAX_HEADER_NAME: Final = 256
MAX_INTERIM: Final = 16
"""Interim responses (100, 103) before one response."""

WRITE_SIZE: Final = 256 * 1024
"""Bytes of a request per write: other tasks run between two writes."""

STALE_WINDOW: Final = 0.5
"""Seconds after a request was sent in which the end of its connection suggests that the upstream
was closing it already, although the request has arrived."""

UNSOLICITED: Final = "response to no request"
PREMATURE: Final = "response before its request"
UNANSWERED: Final = "no response on a reused connection"
"""Why an upstream's connections are not reused for a time."""

_FIRST_STATUS: Final = 100
_FIRST_FINAL_STATUS: Final = 200
_FIRST_ERROR_STATUS: Final = 400
_SWITCHING_PROTOCOLS: Final = 101


class Origin(NamedTuple):
    """`proxy` is the host and port of an http proxy. Requests of one `scope` share connections;
    with None each has its own."""

    host: str
    port: int
    tls: bool
    proxy: tuple[str, int] | None = None
    scope: str | None = ""

    @property
    def upstream(self) -> tuple[Any, ...]:
        """Returns the origin without the scope."""
        return self[:-1]


class Pool(Protocol):
    """The pool that a connection belongs to, with what the connection needs of it."""

    read_turns: ReadTurns
    bulk_turns: BulkTurns

    def keep(self, connection: Connection) -> None:
        """Keeps a connection that can be reused."""

    def discard(self, connection: Connection) -> None:
        """Discards a connection that is lost."""

    def distrust(self, origin: Origin, cause: str) -> None:
        """Distrusts an origin whose upstream did what none may do."""


class Connection(asyncio.BufferedProtocol):
    """`is_reused`: it has served a request before. `idle_since` is a time of the loop, `descriptor`
    the number of the open socket. `round_trip` are the seconds in which it was opened, so that no
    response to a request comes sooner."""

    __slots__ = (
        *("_can_write", "_chunks", "_has_body", "_has_received", "_head", "_interim", "_is_ended"),
        *("_not_reusable", "_overhead", "_pool", "_parser", "_response", "_sent_at", "_size"),
        *("_transport", "descriptor", "idle_since", "is_reused", "loop", "origin", "round_trip"),
    )

    def __init__(self, pool: Pool, origin: Origin, loop: asyncio.AbstractEventLoop) -> None:
        self.origin = origin
        self.loop = loop
        self.is_reused = False
        self.round_trip = 0.0
        self.idle_since = 0.0
        self.descriptor = -1
        self._pool = pool
        self._transport: asyncio.Transport | None = None
        self._parser: Any = None
        self._response: UpstreamResponse | None = None
        self._head: dict[bytes, bytes] = {}
        self._chunks: list[bytes] = []
        self._sent_at = 0.0
        self._size = self._overhead = self._interim = 0
        self._has_received = False
        self._has_body = False
        self._is_ended = False
        self._not_reusable = False
        self._can_write: asyncio.Future[None] | None = None

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    async def send(
        self, head: bytes, body: bytes | Buffers, on_sent: Callable[[], None] | None = None
    ) -> UpstreamResponse:
        """The response, once its head has arrived; `on_sent` is called when the request is written.
        Raises `AttemptFailed`, in particular `StaleConnection` if a reused connection cannot
        have brought the request to the upstream."""
        self._response = response = UpstreamResponse(self, self.loop)
        self._sent_at = self.loop.time()
        self._size = len(head) + len(body)
        self._overhead = self._interim = 0
        self._has_received = self._has_body = False
        transport = self._transport
        try:
            if transport is None or transport.is_closing():
                self._size = 0
                self._connection_ended(None)
            elif type(body) is bytes and len(body) <= WRITE_SIZE:
                transport.write(head + body)
            else:
                transport.write(head)
                await self._write_in_pieces(body, response)
            if on_sent is not None:
                on_sent()
            await response.head_received
        except BaseException:
            response.close()
            raise
        return response

    async def _write_in_pieces(self, body: bytes | Buffers, response: UpstreamResponse) -> None:
        """Stops where the upstream responds early. It would read the next request as the rest of
        this one, so the connection is not reused then."""
        if isinstance(body, bytes):
            body = Buffers([memoryview(body)])
        self._not_reusable = True
        for piece in body.pieces(WRITE_SIZE):
            if self._can_write is not None:
                await asyncio.wait(
                    (self._can_write, response.head_received),
                    return_when=asyncio.FIRST_COMPLETED,
                )
            else:
                await self._pool.bulk_turns.take()
            if response.head_received.done() or self._transport is None:
                return
            self._transport.write(piece)
        self._not_reusable = False

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # Called by the response:

    def pause_reading(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def release(self, response: UpstreamResponse) -> None:
        if self._response is response:
            self._response = None
            self.close()

    # Called by the event loop:

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by inheritance
        self.descriptor = transport.get_extra_info("socket").fileno()
        self._parser = HttpResponseParser(_ParserCallbacks(self, self._head, self._chunks))

    def connection_lost(self, exc: Exception | None) -> None:
        if self.origin.tls:
            self.descriptor = -1  # the socket below is closed, and its number another's, maybe
        self._connection_ended(exc)
        self._transport = None
        self._parser = None  # it refers back to this object
        self.resume_writing()
        self._pool.discard(self)

    def eof_received(self) -> None:
        self._is_ended = True
        self._connection_ended(None)  # now, as the socket below TLS is soon closed
        self.close()  # a graceful close would wait until the upstream has read everything

    def pause_writing(self) -> None:
        self._can_write = self.loop.create_future()

    def resume_writing(self) -> None:
        can_write, self._can_write = self._can_write, None
        if can_write is not None and not can_write.done():
            can_write.set_result(None)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._pool.read_turns.buffer

    def buffer_updated(self, nbytes: int) -> None:
        data = self._pool.read_turns.buffer[:nbytes]
        response = self._response
        if response is None:
            start = bytes(data[:12]).strip()  # a 408 only announces the end of an idle connection
            if self.is_open and start and not start.endswith(b" 408"):
                self._pool.distrust(self.origin, UNSOLICITED)
            self.close()
            return
        self._has_received = True
        chunks_before = len(self._chunks)
        try:
            self._parser.feed_data(data)
            if len(self._chunks) > chunks_before:
                self._has_body = True
                self._overhead = 0
            else:
                self._overhead += nbytes
                if self._overhead > MAX_OVERHEAD:
                    raise HttpParserError("too many bytes without any of a body")
        except (HttpParserError, HttpParserUpgrade) as error:
            if not response.is_complete:
                self._has_body = self._has_body or len(self._chunks) > chunks_before
                self._parse_failed(response, error)
                return
            self._not_reusable = True  # bytes after the response belong to no request
            self._pool.distrust(self.origin, UNSOLICITED)
        if response.is_complete:
            self._response_ended(response)
        elif nbytes == READ_SIZE:
            self.pause_reading()
            self._pool.read_turns.wait(self._read_on)
        response.notify()

    def _read_on(self) -> None:
        if self._response is None or not self._response.is_paused:
            self.resume_reading()

    # Called by the parser:

    def on_message_begin(self) -> None:
        if self._response is None or self._response.is_complete:
            raise ValueError("a response to no request")

    def on_headers_complete(self) -> None:
        response, status, head = self._response, self._parser.get_status_code(), self._head
        if response is None:
            raise ValueError("a response to no request")
        if status == _SWITCHING_PROTOCOLS:
            raise ValueError("another protocol")
        if len(head) > MAX_HEADERS or max(map(len, head.values()), default=0) > MAX_HEADER:
            raise ValueError("the head is too large")
        if max(map(len, head), default=0) > MAX_HEADER_NAME:
            raise ValueError("a header has too long a name")
        if status >= _FIRST_FINAL_STATUS:
            if self.is_reused:
                self._check_request_arrived(status)
            # Reversed, so that the first of names counts that differ only in case.
            headers = {name.lower(): value for name, value in reversed(head.items())}
            response.start(status, headers, self._chunks)
        elif status < _FIRST_STATUS or _announces_body(head):
            raise ValueError("no interim response has a body")
        else:
            self._interim += 1
            if self._interim > MAX_INTERIM:
                raise ValueError("too many interim responses")
        head.clear()

    def on_message_complete(self) -> None:
        response = self._response
        if response is not None and response.status:
            response.is_complete = True
            if not self._parser.should_keep_alive():
                self._not_reusable = True

    def _check_request_arrived(self, status: int) -> None:
        """Raises `AttemptFailed` if the upstream does not have what it seems to respond to: that
        was an earlier request. An error may precede the end of its request, but not the start."""
        is_incomplete = self._is_incomplete()
        # Within a round trip even a response to this request would be too soon.
        is_early = self.loop.time() - self._sent_at < self.round_trip
        missing = unacknowledged(self.descriptor) if is_early or is_incomplete else 0
        is_error = status >= _FIRST_ERROR_STATUS
        if missing >= self._size if is_error else is_incomplete or missing:
            self._pool.distrust(self.origin, PREMATURE)
            kind = StaleConnection if is_incomplete else AttemptFailed
            raise kind(Failure(kind=FailureKind.REUSED, message=PREMATURE))

    def _response_ended(self, response: UpstreamResponse) -> None:
        self._response = None
        response.detach(list(self._chunks))
        self._chunks.clear()
        self._head.clear()  # trailers
        if self._not_reusable or self._can_write is not None or not self.is_open:
            self.close()
        else:
            self.is_reused = True
            self._pool.keep(self)

    def _parse_failed(self, response: UpstreamResponse, error: Exception) -> None:
        self._response = None
        self.close()
        kind = FailureKind.TRUNCATED if self._has_body else FailureKind.MALFORMED
        reason = error.__context__ or error  # llhttp wraps the error of a callback
        if not isinstance(reason, AttemptFailed):
            reason = attempt_failed(kind, f"no valid HTTP response: {reason}")
        response.fail(reason)

    def _connection_ended(self, exc: Exception | None) -> None:
        response, self._response = self._response, None
        if response is None:
            return
        reason = exc or "the connection was closed"
        # Without a delimiter the end of the connection is the end of the body, but only if the
        # upstream ended it, and within TLS properly.
        if response.status and self._is_ended and not _is_delimited(response):
            response.is_complete = True
            response.detach(list(self._chunks))
            response.notify()
        elif response.status:
            response.fail(attempt_failed(FailureKind.TRUNCATED, f"the body broke off: {reason}"))
        else:
            response.fail(self._request_failed(reason))

    def _request_failed(self, reason: object) -> AttemptFailed:
        if self.is_reused and not self._has_received:
            failure = Failure(kind=FailureKind.REUSED, message=f"{UNANSWERED}: {reason}")
            if self._is_incomplete() or unacknowledged(self.descriptor) >= self._size:
                return StaleConnection(failure)
            if self.loop.time() - self._sent_at < STALE_WINDOW:
                self._pool.distrust(self.origin, UNANSWERED)
                return AttemptFailed(failure)
        return attempt_failed(FailureKind.DISCONNECT, f"the connection broke: {reason}")

    def _is_incomplete(self) -> bool:
        """Whether a part of the request has not left the process, so that it cannot be served."""
        transport = self._transport
        is_buffered = transport is not None and transport.get_write_buffer_size() > 0
        return self._not_reusable or is_buffered


class _ParserCallbacks:
    """The callbacks of the parser. Headers and pieces of the body go directly into a dict and a
    list, as a Python function for each would cost more than the parsing; a header's first value
    counts."""

    __slots__ = (
        *("on_body", "on_header", "on_headers_complete", "on_message_begin"),
        "on_message_complete",
    )

    def __init__(
        self, connection: Connection, head: dict[bytes, bytes], chunks: list[bytes]
    ) -> None:
        self.on_header = head.setdefault
        self.on_body = chunks.append
        self.on_message_begin = connection.on_message_begin
        self.on_headers_complete = connection.on_headers_complete
        self.on_message_complete = connection.on_message_complete


def _is_delimited(response: UpstreamResponse) -> bool:
    """Whether the head or the body itself says where the body ends."""
    headers = (b"content-length", b"transfer-encoding")
    return any(response.header(name) is not None for name in headers)


def _announces_body(head: dict[bytes, bytes]) -> bool:
    headers = {name.lower(): value.strip() for name, value in head.items()}
    return b"transfer-encoding" in headers or headers.get(b"content-length", b"0") != b"0"
