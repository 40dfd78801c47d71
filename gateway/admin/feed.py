"""The feed of requests that begin and end, in the order in which they were committed.

Only a bounded number of ids is in memory. Subscribers read the rows from the database at their own
pace; one that is too slow is told that it missed some.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Final

from gateway.admin.errors import TooManySubscribers
from gateway.admin.operations import AdminOperations
from gateway.store.log import pages
from gateway.store.log.pages import LogFilter
from gateway.store.records import ExchangeState, LogEntry, RequestRow

CAPACITY: Final = 5000
MAX_SUBSCRIBERS: Final = 20
IDLE_SECONDS: Final = 1.0
"""The time after which a subscriber gets an empty batch if there is no news."""

_BATCH_SIZE: Final = 200
_GATHER_SECONDS: Final = 0.2  # from the first new entry to the read: commits come often

FeedEntry = tuple[str, bool]
"""The id of a request, and whether it has ended (or begun)."""


@dataclass(frozen=True, slots=True)
class FeedBatch:
    """Rows in the order of their commits. `skipped`: entries between the end of the request `after`
    and these rows are no longer in memory."""

    rows: Sequence[RequestRow] = ()
    skipped: bool = False
    after: str | None = None


class Feed:
    """The feed of one event loop. `start` and `end` are the numbers of the oldest entry in memory
    and of the next one; entries of earlier runs have numbers below 0."""

    def __init__(
        self,
        operations: AdminOperations,
        *,
        capacity: int = CAPACITY,
        max_subscribers: int = MAX_SUBSCRIBERS,
    ) -> None:
        self.closed = False
        self.end = 0
        self.subscribers = 0
        self._operations = operations
        self._max_subscribers = max_subscribers
        self._entries: deque[FeedEntry] = deque(maxlen=capacity)
        self._capacity = capacity
        self._changed = asyncio.Event()
        self._has_earlier_runs = False

    @property
    def start(self) -> int:
        return self.end - len(self._entries)

    def publish(self, entries: Sequence[LogEntry]) -> None:
        """Adds entries that have been committed, in this order."""
        self._entries.extend([(entry.row.id, not entry.is_intent) for entry in entries])
        self.end += len(entries)
        if self.subscribers:
            self._wake()

    def close(self) -> None:
        """Closes the feed: subscribers get the remaining rows; then their iteration ends."""
        self.closed = True
        self._wake()

    @asynccontextmanager
    async def subscribe(
        self, log_filter: LogFilter, *, after: str | None = None, opened: bool = False
    ) -> AsyncIterator[AsyncIterator[FeedBatch]]:
        """Subscribes from the end of the request `after` on, by default from now on; with `opened`
        also requests that begin. An empty batch comes regularly. Raises TooManySubscribers."""
        if self.subscribers >= self._max_subscribers:
            raise TooManySubscribers(self._max_subscribers)
        self.subscribers += 1
        try:
            position = self.end if after is None else await self._position_after(after)
            yield self._batches(log_filter, position, after, opened)
        finally:
            self.subscribers -= 1

    async def _batches(
        self, log_filter: LogFilter, position: int, after: str | None, opened: bool
    ) -> AsyncIterator[FeedBatch]:
        while True:
            if position == self.end and not self.closed:
                await self._wait()
            if position == self.end and self.closed:
                return
            start = max(position, self.start)
            skipped, missed_after = position < start, after
            first = start - self.start
            entries = list(islice(self._entries, first, first + _BATCH_SIZE))
            position = start + len(entries)
            after = next((id_ for id_, ended in reversed(entries) if ended), after)
            rows = await self._rows([each for each in entries if each[1] or opened], log_filter)
            yield FeedBatch(rows, skipped, missed_after)

    async def _rows(self, entries: Sequence[FeedEntry], log_filter: LogFilter) -> list[RequestRow]:
        if not entries:
            return []
        ids = [id_ for id_, _ in entries]
        rows = await pages.get_many(self._operations.database, ids, log_filter)
        # A request that has ended in the meantime comes with its end.
        return [
            rows[id_]
            for id_, ended in entries
            if id_ in rows and (rows[id_].state is not ExchangeState.RUNNING) is ended
        ]

    async def _wait(self) -> None:
        """Waits until there are new entries, at most IDLE_SECONDS."""
        try:
            async with asyncio.timeout(IDLE_SECONDS):
                await self._changed.wait()
        except TimeoutError:
            return
        if not self.closed:
            await asyncio.sleep(_GATHER_SECONDS)

    async def _position_after(self, id_: str) -> int:
        """Returns the position after the end of that request; before `start` if it is not in
        memory."""
        position = self._find(id_)
        if position is None and not self._has_earlier_runs:
            await self._load_earlier_runs()
            position = self._find(id_)
        return self.start - 1 if position is None else position

    def _find(self, id_: str) -> int | None:
        for back, entry in enumerate(reversed(self._entries)):
            if entry == (id_, True):
                return self.end - back
        return None

    async def _load_earlier_runs(self) -> None:
        """Lets subscribers continue after a restart of the gateway, unless entries of this run are
        already missing."""
        if self.start > 0:
            return
        operations = self._operations
        ids = await pages.ended_in_earlier_runs(
            operations.database, operations.boot_id, self._capacity
        )
        if self._has_earlier_runs or self.start > 0:
            return  # changed meanwhile
        self._has_earlier_runs = True
        free = self._capacity - len(self._entries)
        self._entries.extendleft((each, True) for each in islice(reversed(ids), free))

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
        if self.closed:
            self._changed.set()
