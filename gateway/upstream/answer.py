"""What an upstream answers, as it arrives; and how it is told that no answer came.

It must not know formats or accounts, nor what follows from a failure.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from gateway.core.failure import Failure, FailureKind

_AHEAD: Final = 256 * 1024
"""Bytes that may wait for their reader before the upstream is made to wait."""

_UNPACKED: Final = 1024 * 1024
"""Bytes that are unpacked at once."""


class AttemptFailed(Exception):
    """The attempt gave no reply."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class Stale(AttemptFailed):
    """A connection that was used before broke before a byte of an answer came: asking again cannot
    ask twice."""


def failed(kind: FailureKind, message: str) -> AttemptFailed:
    return AttemptFailed(Failure(kind=kind, message=message[:2000]))


class Source(Protocol):
    """The connection that an answer comes over."""

    def hold(self, on: bool) -> None: ...

    def hang_up(self, answer: Answer) -> None: ...


class Answer:
    """What an upstream answers: its status and headers, whose names are in lower case, and its
    body as it arrives. Read it with `readany` or `read`, or have it told to somebody who listens.

    `ended` is called once, when nothing more will come of it: it is complete, broken or closed."""

    __slots__ = (
        *("_chunks", "_come", "_failure", "_held", "_listener", "_over", "_raw", "_size"),
        *("_unpacker", "_waiter", "_wire", "ended", "status"),
    )

    def __init__(
        self, wire: Source, loop: asyncio.AbstractEventLoop, ended: Callable[[], None] | None
    ) -> None:
        self.status = 0
        self.ended = ended
        self._wire: Source | None = wire
        self._raw: dict[bytes, bytes] = {}
        self._come: asyncio.Future[None] = loop.create_future()
        self._chunks: list[bytes] = []
        self._size = 0
        self._held = False
        self._over = False
        self._failure: AttemptFailed | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._listener: Callable[[], None] | None = None
        self._unpacker: Any = None

    @property
    def headers(self) -> Mapping[str, str]:
        return {_text(name): _text(value) for name, value in self._raw.items()}

    def header(self, name: bytes) -> str | None:
        """The first value of that name."""
        value = self._raw.get(name)
        return None if value is None else _text(value)

    @property
    def complete(self) -> bool:
        """Whether all of it has arrived and was read."""
        return self._over and not self._chunks and self._unpacker is None

    @property
    def complete_line(self) -> bool:
        """Whether the connection has done its part, if well or not."""
        return self._wire is None

    @property
    def broken(self) -> AttemptFailed | None:
        """Why nothing more comes, once what came before that was read."""
        return self._failure if not self._chunks else None

    def take(self) -> bytes:
        """What has arrived and was not read yet."""
        chunks = self._chunks
        if not chunks:
            return b""
        if self._unpacker is not None:
            return self._unpack()
        data = chunks[0] if len(chunks) == 1 else b"".join(chunks)
        chunks.clear()
        self._size = 0
        if self._held and self._wire is not None:
            self._held = False
            self._wire.hold(False)
        return data

    async def readany(self) -> bytes:
        """What has arrived, as soon as there is some; nothing at the end. Raises `AttemptFailed`
        where it broke off, after what came before that."""
        while True:
            if self._chunks and (data := self.take()):
                return data
            if self._failure is not None:
                raise self._failure
            if self._over:
                return b""
            self._waiter = waiter = asyncio.get_running_loop().create_future()
            try:
                await waiter
            finally:
                self._waiter = None

    async def read(self, limit: int) -> bytes:
        """All of it, at most `limit` bytes after unpacking. Raises `AttemptFailed`."""
        whole = await self.readany()
        if len(whole) <= limit and self._over and not self._chunks:
            return whole
        chunks, size = [whole], len(whole)
        while size <= limit:
            chunk = await self.readany()
            if not chunk:
                return b"".join(chunks)
            chunks.append(chunk)
            size += len(chunk)
        raise failed(FailureKind.TOO_LARGE, f"the body has more than {limit} bytes")

    def listen(self, listener: Callable[[], None] | None) -> None:
        """It is called whenever something has arrived, or nothing more will."""
        self._listener = listener

    def hold(self, on: bool) -> None:
        """Makes the upstream wait, or go on."""
        if self._wire is not None:
            self._wire.hold(on)

    def close(self) -> None:
        """No more is wanted of it. A connection on which more would come is closed."""
        wire, self._wire = self._wire, None
        self._listener = None
        if wire is not None:
            wire.hang_up(self)
        self._end()

    async def __aenter__(self) -> Answer:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def _begin(self, status: int) -> None:
        self.status = status
        coding = self._raw.get(b"content-encoding")
        if coding is not None and coding.lower() not in (b"identity", b""):
            self._unpacker = _unpacker(coding.lower())

    def _arrived(self) -> None:
        """After every read of the connection."""
        if self.status and not self._come.done():
            self._come.set_result(None)
        if self._listener is not None:
            self._listener()
            return
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)
        if self._size > _AHEAD and not self._over and self._wire is not None:
            self._held = True
            self._wire.hold(True)

    def _fail(self, failure: AttemptFailed) -> None:
        self._failure = failure
        self._wire = None
        if failure.failure.kind is FailureKind.CUT:
            self._arrived()
        elif not self._come.done():
            self._come.set_exception(failure)
        self._end()

    def _end(self) -> None:
        ended, self.ended = self.ended, None
        if ended is not None:
            ended()

    def _unpack(self) -> bytes:
        packed, unpacker = b"".join(self._chunks), self._unpacker
        self._chunks.clear()
        try:
            data: bytes = unpacker.decompress(packed, _UNPACKED)
            if unpacker.unconsumed_tail:
                self._chunks.append(unpacker.unconsumed_tail)
            elif self._over:
                self._unpacker = None
                if not unpacker.eof:
                    raise zlib.error("incomplete")
        except (zlib.error, TypeError) as error:
            self._failure = failed(FailureKind.CUT, f"the body cannot be unpacked: {error}")
            return b""
        self._size = sum(map(len, self._chunks))
        if self._held and self._wire is not None and not self._chunks:
            self._held = False
            self._wire.hold(False)
        return data


def _unpacker(coding: bytes) -> Any:
    if coding in (b"gzip", b"x-gzip", b"deflate"):
        return zlib.decompressobj(wbits=47)
    raise ValueError("an unknown content-encoding")


def _text(value: bytes) -> str:
    return value.decode("utf-8", "surrogateescape")
