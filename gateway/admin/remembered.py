"""One answer for all who ask the same within a moment: a page and its pictures do.

It must not know what is asked, nor what it costs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

_CACHE_SECONDS: Final = 1.0
"""Seconds, from when it was asked for."""


class CoalescingCache(Generic[K, V]):
    """`make` gives the answer to what is asked. Who asks while another waits for the same waits
    with them; whoever leaves meanwhile takes it from nobody."""

    def __init__(self, make: Callable[[K], Awaitable[V]]) -> None:
        self._make = make
        self._answers: dict[K, tuple[float, asyncio.Future[V]]] = {}

    async def get(self, key: K) -> V:
        """The answer, or the exception, that is at most a moment old."""
        now = asyncio.get_running_loop().time()
        for each, (at, answer) in list(self._answers.items()):
            if answer.done() and now - at > _CACHE_SECONDS:
                del self._answers[each]
        if key not in self._answers:
            self._answers[key] = now, asyncio.ensure_future(self._make(key))
        return await asyncio.shield(self._answers[key][1])
