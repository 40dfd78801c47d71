"""One HTTP/1.1 connection to an upstream, and the answers that come over it, one at a time.

The client library's own way costs three times as much processor time as everything else that a
request needs of the line: it builds a request, a response and a stream for each. Here a request is
bytes, and an answer is what arrived. Parsing is llhttp's. It must not know formats or accounts,
nor what follows from a failure.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, Protocol

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from gateway.core.failure import Failure, FailureKind
from gateway.upstream.answer import Answer, Stale, failed

LARGEST_HEAD: Final = 256 * 1024
LARGEST_HEADER: Final = 64 * 1024
MOST_HEADERS: Final = 256

_PIECE: Final = 256 * 1024
"""Bytes of a request that are written at once, so that the loop goes on meanwhile."""

_OK: Final = 200


class Keeper(Protocol):
    """Who keeps connections while nothing is asked over them."""

    def keep(self, wire: Wire) -> None: ...

    def drop(self, wire: Wire) -> None: ...


class Wire(asyncio.Protocol):
    """One connection. `used` says whether anything was asked over it before."""

    __slots__ = (
        *("_answer", "_drained", "_head", "_keeper", "_parser", "_paused", "_spent"),
        *("door", "idle_since", "loop", "transport", "used"),
    )

    def __init__(self, keeper: Keeper, door: object, loop: asyncio.AbstractEventLoop) -> None:
        self.door = door
        self.loop = loop
        self.used = False
        self.idle_since = 0.0
        self.transport: asyncio.Transport | None = None
        self._keeper = keeper
        self._parser: Any = None
        self._answer: Answer | None = None
        self._head = 0
        self._spent = False
        self._paused = False
        self._drained: asyncio.Future[None] | None = None

    @property
    def open(self) -> bool:
        return self.transport is not None and not self.transport.is_closing()

    async def ask(self, head: bytes, body: bytes, ended: Callable[[], None] | None) -> Answer:
        """The answer, once its head is there. Raises `AttemptFailed`, of the kind `Stale` where the
        connection had gone stale."""
        self._answer = answer = Answer(self, self.loop, ended)
        self._head = 0
        transport = self.transport
        if transport is None:
            self._lost(None)
        elif len(body) <= _PIECE:
            transport.write(head + body)
        else:
            transport.write(head)
        try:
            if len(body) > _PIECE:
                await self._write(body, answer)
            await answer._come
        except BaseException:
            answer.close()
            raise
        return answer

    async def _write(self, body: bytes, answer: Answer) -> None:
        """Piece by piece; who answers already does not want the rest."""
        view = memoryview(body)
        for start in range(0, len(body), _PIECE):
            if self._paused:
                self._drained = self.loop.create_future()
                await asyncio.wait(
                    (self._drained, answer._come), return_when=asyncio.FIRST_COMPLETED
                )
            if answer._come.done() or self.transport is None:
                self._spent = True
                return
            self.transport.write(view[start : start + _PIECE])

    def hold(self, on: bool) -> None:
        if self.transport is not None and not self.transport.is_closing():
            (self.transport.pause_reading if on else self.transport.resume_reading)()

    def hang_up(self, answer: Answer) -> None:
        """Nobody wants the rest of the answer."""
        if self._answer is answer:
            self._answer = None
            self.close()

    def close(self) -> None:
        if self.transport is not None:
            self.transport.abort()

    # What the loop calls:

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]
        self._parser = HttpResponseParser(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        self._parser = None  # they know each other
        self.resume_writing()
        self._keeper.drop(self)
        self._lost(exc)

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)

    def data_received(self, data: bytes) -> None:
        answer = self._answer
        if answer is None:  # nothing was asked
            self.close()
            return
        self._head += len(data)
        try:
            self._parser.feed_data(data)
            if not answer.status and self._head > LARGEST_HEAD:
                raise HttpParserError("the head is too large")
        except (HttpParserError, HttpParserUpgrade) as error:
            if not answer._over:
                self._answer = None
                self.close()
                kind = FailureKind.CUT if answer._come.done() else FailureKind.GARBAGE
                answer._fail(failed(kind, f"no sound answer: {_reason(error)}"))
                return
            self._spent = True  # bytes behind the answer belong to nothing
        if answer._over:
            self._finish(answer)
        answer._arrived()

    # What the parser calls:

    def on_header(self, name: bytes, value: bytes) -> None:
        answer = self._answer
        if answer is not None and not answer.status:  # else it is a trailer
            answer._raw.setdefault(name.lower(), value)
            if len(value) > LARGEST_HEADER or len(answer._raw) > MOST_HEADERS:
                raise ValueError("the head is too large")

    def on_headers_complete(self) -> None:
        answer, status = self._answer, self._parser.get_status_code()
        if answer is None or answer.status:
            raise ValueError("an answer that nobody asked for")
        if status >= _OK:
            answer._begin(status)
        elif status == 101:
            raise ValueError("another protocol")

    def on_body(self, data: bytes) -> None:
        answer = self._answer
        if answer is not None:
            answer._chunks.append(data)
            answer._size += len(data)

    def on_message_complete(self) -> None:
        answer = self._answer
        if answer is None:
            return
        if answer.status:
            answer._over = True
            self._spent = self._spent or not self._parser.should_keep_alive()
        else:
            answer._raw.clear()  # only an interim word

    def _finish(self, answer: Answer) -> None:
        self._answer = None
        answer._wire = None
        if answer._held:
            self.hold(False)
        if not self._spent and self.open:
            self.used = True
            self._keeper.keep(self)
        else:
            self.close()
        answer._end()

    def _lost(self, exc: Exception | None) -> None:
        answer, self._answer = self._answer, None
        if answer is None:
            return
        why = exc or "the connection was closed"
        if answer.status:
            raw = answer._raw
            if not (
                b"content-length" in raw or b"chunked" in raw.get(b"transfer-encoding", b"").lower()
            ):
                answer._over = True  # its end is that of the connection
                answer._wire = None
                answer._arrived()
                answer._end()
            else:
                answer._fail(failed(FailureKind.CUT, f"the body broke off: {why}"))
        elif self.used and not self._head:
            answer._fail(Stale(Failure(kind=FailureKind.DISCONNECT, message=str(why))))
        else:
            answer._fail(failed(FailureKind.DISCONNECT, f"the connection broke: {why}"))


def _reason(error: BaseException) -> str:
    return str(error.__context__ or error)
