"""Large bodies take turns, so that they leave the event loop to everything else."""

from __future__ import annotations

import asyncio
from collections import deque


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
