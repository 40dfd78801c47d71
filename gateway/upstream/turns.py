"""Turns of large bodies and of connections with much to read, so that others are served."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final


class BulkTurns:
    """Large bodies move piece by piece, one piece of them all in an iteration of the event loop:
    whatever else is ready runs between two."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def take(self) -> None:
        """Waits for a turn before the next piece."""
        loop = asyncio.get_running_loop()
        if not self._waiting:
            loop.call_soon(self._grant)
        self._waiting.append(turn := loop.create_future())
        await turn

    def _grant(self) -> None:
        while self._waiting and (turn := self._waiting.popleft()).done():
            pass  # cancelled
        if not turn.done():
            turn.set_result(None)
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._grant)


READ_SIZE: Final = 64 * 1024
"""Bytes of one read, at most. After so many a connection waits for its turn."""

_PER_ITERATION: Final = 16
"""Connections that read on in one iteration of the event loop."""


class ReadTurns:
    """The connections that wait, as functions that let one read on. `buffer` is for every read,
    because what is in it is processed at once."""

    __slots__ = ("_loop", "_waiting", "buffer")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.buffer = memoryview(bytearray(READ_SIZE))
        self._loop = loop
        self._waiting: deque[Callable[[], None]] = deque()

    def wait(self, read_on: Callable[[], None]) -> None:
        """`read_on` is called in a later iteration of the loop."""
        if not self._waiting:
            self._loop.call_soon(self._next)
        self._waiting.append(read_on)

    def _next(self) -> None:
        for _ in range(min(len(self._waiting), _PER_ITERATION)):
            self._waiting.popleft()()
        if self._waiting:
            self._loop.call_soon(self._next)
