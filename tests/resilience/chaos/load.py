"""Requests at a steady rate, as long as not too many are under way.

Independent of who answers.
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
    """`rate` is requests a second; with `max_concurrent` of them running the next ones wait, so
    that a busy machine is not overloaded. `took` are the seconds of each request that has ended."""

    ask: Ask
    rate: int
    max_concurrent: int = 1000
    took: list[float] = field(default_factory=list)
    sent: int = 0

    async def go_on(self, over: Callable[[], bool]) -> None:
        """Until it is over, and all requests have ended."""
        loop, semaphore = asyncio.get_running_loop(), asyncio.Semaphore(self.max_concurrent)
        due = loop.time()
        async with asyncio.TaskGroup() as group:
            while not over():
                await asyncio.sleep(due - loop.time())
                await semaphore.acquire()
                group.create_task(self._one(self.sent, semaphore))
                self.sent += 1
                due = max(due + 1 / self.rate, loop.time() - _BEHIND)

    async def go_on_for(self, seconds: float) -> None:
        last = self.sent + round(seconds * self.rate)
        await self.go_on(lambda: self.sent >= last)

    async def _one(self, number: int, semaphore: asyncio.Semaphore) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        await self.ask(number)
        self.took.append(loop.time() - began)
        semaphore.release()
