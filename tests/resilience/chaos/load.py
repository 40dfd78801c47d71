"""Requests at a steady rate, as long as not too many are under way.

It must not know who answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

Ask = Callable[[int], Awaitable[None]]

_BEHIND = 0.1
"""Seconds that are made up for; what is missed beyond them stays missed."""


@dataclass(slots=True)
class Load:
    """`rate` is requests a second; with `most` of them under way the next ones wait, so that a
    machine that is busy with other things is not buried. `took` are the seconds of each request
    that has ended."""

    ask: Ask
    rate: int
    most: int = 1000
    took: list[float] = field(default_factory=list)
    asked: int = 0

    async def go_on(self, over: Callable[[], bool]) -> None:
        """Until it is over, and all that was asked is answered."""
        loop, room = asyncio.get_running_loop(), asyncio.Semaphore(self.most)
        due = loop.time()
        async with asyncio.TaskGroup() as group:
            while not over():
                await asyncio.sleep(due - loop.time())
                await room.acquire()
                group.create_task(self._one(self.asked, room))
                self.asked += 1
                due = max(due + 1 / self.rate, loop.time() - _BEHIND)

    async def go_on_for(self, seconds: float) -> None:
        last = self.asked + round(seconds * self.rate)
        await self.go_on(lambda: self.asked >= last)

    async def _one(self, number: int, room: asyncio.Semaphore) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        await self.ask(number)
        self.took.append(loop.time() - began)
        room.release()
