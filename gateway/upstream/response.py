"""An upstream's response as it arrives, or the failure of the attempt."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol

from gateway.core.events import Failure, FailureKind
from gateway.upstream.inflater import Inflater

MAX_BUFFERED: Final = 256 * 1024
"""Unread bytes above which the upstream is paused."""

MAX_PIECE: Final = 32 * 1024
"""Bytes that are taken at once: other tasks run before the next ones are handled."""

MAX_MESSAGE: Final = 2000
"""Characters of an error message."""

_IDENTITY: Final = (b"", b"identity")
_DEFLATE: Final = (b"gzip", b"x-gzip", b"deflate")
_ALL: Final = sys.maxsize


class AttemptFailed(Exception):
    """The attempt has no reply."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class StaleConnection(AttemptFailed):
    """A reused connection cannot have brought the whole request to the upstream, so the request can
    be sent again without being served twice."""


def attempt_failed(kind: FailureKind, message: str) -> AttemptFailed:
    return AttemptFailed(Failure(kind=kind, message=message[:MAX_MESSAGE]))


class Source(Protocol):
    """The source of a response: a connection, as a rule."""

    loop: asyncio.AbstractEventLoop

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def release(self, response: UpstreamResponse) -> None:
        """Ends the response: nothing more of it will be read."""
        ...


class UpstreamResponse:
    """Status, headers and body. Read the body with `read_chunk` or `read_body`, or `subscribe` and
    `take` what has arrived at each call.

    `on_done` is called once: when the response is complete, broken or closed. `is_complete`: the
    whole body has arrived. `head_received` is done once the status is known. Header names are in
    lower case.
    """

    __slots__ = (
        *("_chunks", "_error", "_headers", "_inflater", "_connection", "_subscriber"),
        *("_waiter", "head_received", "is_complete", "is_paused", "on_done", "status"),
    )

    def __init__(self, connection: Source, loop: asyncio.AbstractEventLoop) -> None:
        self.status = 0
        self.on_done: Callable[[], None] | None = None
        self.head_received: asyncio.Future[None] = loop.create_future()
        self.is_complete = False
        self._connection: Source | None = connection
        self._headers: Mapping[bytes, bytes] = {}
        self._chunks: list[bytes] = []
        self.is_paused = False
        self._error: AttemptFailed | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._subscriber: Callable[[], None] | None = None
        self._inflater: Inflater | None = None

    @property
    def headers(self) -> Mapping[str, str]:
        return {_decoded(name): _decoded(value) for name, value in self._headers.items()}

    @property
    def header_names(self) -> Iterable[bytes]:
        return self._headers

    def header(self, name: bytes) -> str | None:
        """The first value; `name` is in lower case."""
        value = self._headers.get(name)
        return None if value is None else _decoded(value)

    @property
    def is_read(self) -> bool:
        """Whether the whole body was read."""
        return self.is_complete and not self._chunks and self._inflater is None

    @property
    def is_done(self) -> bool:
        """Whether it no longer uses the connection."""
        return self._connection is None

    @property
    def error(self) -> AttemptFailed | None:
        """Tells why the body broke off, once everything before that was read."""
        return None if self._chunks else self._error

    @property
    def has_more(self) -> bool:
        """Whether there is something to `take`, or may be."""
        return bool(self._chunks)

    def take(self, limit: int = MAX_PIECE) -> bytes:
        """Returns what has arrived and was not read yet, at most `limit` bytes, or `MAX_PIECE` if
        it has to be decompressed; does not wait."""
        chunks = self._chunks
        if not chunks:
            return b""
        if self._inflater is not None:
            return self._inflate(self._inflater)
        data = chunks[0] if len(chunks) == 1 else b"".join(chunks)
        if len(data) > limit:
            chunks[:] = [data[limit:]]
            return data[:limit]
        chunks.clear()
        if self.is_paused:
            self.resume()
        return data

    async def read_chunk(self, limit: int = MAX_PIECE) -> bytes:
        """Waits for the next bytes; empty at the end. Raises `AttemptFailed` if the body broke
        off, after everything before that was read."""
        while True:
            if self._chunks:
                data = self.take(limit)
                if self._chunks:
                    await asyncio.sleep(0)  # there is more: other tasks run before it is read
                if data:
                    return data
                continue
            if self._error is not None:
                raise self._error
            if self.is_complete:
                return b""
            self._waiter = waiter = asyncio.get_running_loop().create_future()
            try:
                await waiter
            finally:
                self._waiter = None

    async def read_body(self, limit: int) -> bytes:
        """The whole body, `limit` bytes at most after decompression. Raises `AttemptFailed`."""
        chunk = await self.read_chunk(_ALL)
        if len(chunk) <= limit and self.is_read:
            return chunk
        chunks, size = [chunk], len(chunk)
        while size <= limit:
            chunk = await self.read_chunk(_ALL)
            if not chunk:
                return b"".join(chunks)
            chunks.append(chunk)
            size += len(chunk)
        raise attempt_failed(FailureKind.TOO_LARGE, f"the body has more than {limit} bytes")

    def subscribe(self, subscriber: Callable[[], None] | None) -> None:
        """`subscriber` is called after each read of the connection, and at the end. It controls the
        flow: only `pause`, and what it leaves, pause the upstream."""
        self._subscriber = subscriber

    def pause(self) -> None:
        if self._connection is not None:
            self.is_paused = True
            self._connection.pause_reading()

    def resume(self) -> None:
        self.is_paused = False
        if self._connection is not None:
            self._connection.resume_reading()

    def close(self) -> None:
        """The rest will not be read: a connection on which more would arrive is closed."""
        connection, self._connection = self._connection, None
        self._subscriber = None
        if connection is not None:
            connection.release(self)
            self._error = attempt_failed(FailureKind.TRUNCATED, "the response was closed")
            self._wake()
        self._finish()

    def discard_rest(self, seconds: float) -> None:
        """The rest is not needed. The connection can be reused where the body ends within
        `seconds`, and is closed where it does not."""
        if self._connection is not None:
            self._subscriber = self._chunks.clear
            self._chunks.clear()
            if self.is_paused:
                self.resume()
            self._connection.loop.call_later(seconds, self.close)

    async def __aenter__(self) -> UpstreamResponse:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    # Called by the connection:

    def start(self, status: int, headers: Mapping[bytes, bytes], chunks: list[bytes]) -> None:
        """The head has arrived; the connection adds the body to `chunks`. Raises ValueError if
        the body's coding is unknown."""
        coding = headers.get(b"transfer-encoding")
        if coding is not None and coding.strip().lower() != b"chunked":
            raise ValueError("an unknown transfer-encoding")
        coding = headers.get(b"content-encoding")
        if coding is not None and (coding := coding.strip().lower()) not in _IDENTITY:
            if coding not in _DEFLATE:
                raise ValueError("an unknown content-encoding")
            self._inflater = Inflater(coding)
        self.status = status
        self._headers = headers
        self._chunks = chunks

    def detach(self, unread: list[bytes]) -> None:
        """The connection is free for the next request, or closed; `unread` is the rest of the
        body."""
        self._chunks = unread
        if self.is_paused and self._connection is not None:
            self._connection.resume_reading()
        self._connection = None
        if self._inflater is not None and not unread:
            self._end_inflating()
        if self.on_done is not None:
            self._finish()

    def notify(self) -> None:
        """Wakes the reader after each read of the connection."""
        if not self.head_received.done():
            if not self.status:
                return
            self.head_received.set_result(None)
        if self._subscriber is not None:
            self._subscriber()
        else:
            self._wake()
        if self._chunks and not self.is_complete and sum(map(len, self._chunks)) > MAX_BUFFERED:
            self.pause()

    def fail(self, error: AttemptFailed) -> None:
        """Fails the response: before the head, the request has failed; after it, the body ends with
        the error."""
        self._error = error
        self._connection = None
        if self.status or self.head_received.done():
            self.notify()
        else:
            self.head_received.set_exception(error)
            self.head_received.exception()  # the waiting task may be cancelled meanwhile
        self._finish()

    def _wake(self) -> None:
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def _finish(self) -> None:
        on_done, self.on_done = self.on_done, None
        if on_done is not None:
            on_done()

    def _inflate(self, inflater: Inflater) -> bytes:
        packed, chunks = b"", self._chunks
        if not inflater.has_more:
            packed = b"".join(chunks)
            chunks.clear()
        try:
            data = inflater.feed(packed, MAX_PIECE)
        except ValueError as error:
            chunks.clear()
            self._inflating_failed(error)
            return b""
        if inflater.has_more:
            chunks[:] = chunks or [b""]
        elif not chunks:
            if self.is_complete:
                self._end_inflating()
            if self.is_paused:
                self.resume()
        return data

    def _end_inflating(self) -> None:
        if self._inflater is not None and self._inflater.is_complete:
            self._inflater = None
        else:
            self._inflating_failed("it ends too early")

    def _inflating_failed(self, reason: object) -> None:
        self._error = attempt_failed(
            FailureKind.TRUNCATED, f"the body cannot be decompressed: {reason}"
        )


def _decoded(value: bytes) -> str:
    return value.strip().decode("utf-8", "surrogateescape")  # the parser leaves trailing spaces
