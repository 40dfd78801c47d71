"""Work that only few may do at once, in turns of keys."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from weakref import WeakValueDictionary


class KeyTurns:
    """Turns of at most `limit` pieces of work at once and one of each key, so that a key with many
    of them waits for itself; for one event loop."""

    def __init__(self, limit: int) -> None:
        self._free = asyncio.Semaphore(limit)
        self._of_keys = WeakValueDictionary[str, asyncio.Lock]()

    @asynccontextmanager
    async def turn(self, key: str) -> AsyncIterator[None]:
        own = self._of_keys.setdefault(key, asyncio.Lock())
        async with own, self._free:
            yield
