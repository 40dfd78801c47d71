"""Requests as they begin and end: what was committed last, and how far each subscriber has read.

Only ids are remembered, a bounded number of them. Subscribers read the rows from the ledger, each
at its own pace, and one that is too slow is told that it has missed some. It must not know HTTP.
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
from gateway.store import logs
from gateway.store.logs import LogFilter
from gateway.store.records import Entry, ExchangeState, RequestRow, Settlement

CAPACITY: Final = 5000
MAX_SUBSCRIBERS: Final = 20
IDLE_SECONDS: Final = 1.0
"""Seconds after which a subscriber gets an empty answer where there is nothing new."""

_BATCH_SIZE = 200  # entries that are read at once
_GATHER_SECONDS = (
    0.2  # seconds from the first new entry to the reading: a busy ledger commits often
)


FeedEntry = tuple[str, bool]
"""An entry of the feed: the id of a request, and whether it has ended or begun."""


@dataclass(frozen=True, slots=True)
class FeedBatch:
    """Rows in the order that they were committed in: each is open, or has ended. Where `skipped`,
    entries before them are no longer remembered: those that follow the end of the request
    `after`."""

    rows: Sequence[RequestRow] = ()
    skipped: bool = False
    after: str | None = None


class Feed:
    """Used inside one running event loop. At most `capacity` entries are remembered."""

    def __init__(
        self,
        operations: AdminOperations,
        *,
        capacity: int = CAPACITY,
        max_subscribers: int = MAX_SUBSCRIBERS,
    ) -> None:
        self.closed = False
        self._operations = operations
        self._capacity = capacity
        self._most = max_subscribers
        self._marks: deque[FeedEntry] = deque(maxlen=capacity)
        self._end = 0
        self._subscribers = 0
        self._changed = asyncio.Event()
        self._knows_earlier_runs = False

    @property
    def end(self) -> int:
        """The number of the next entry; they are counted from the start of the process."""
        return self._end

    @property
    def start(self) -> int:
        """The number of the oldest entry that is remembered, below 0 for those of earlier runs."""
        return self._end - len(self._marks)

    @property
    def subscribers(self) -> int:
        return self._subscribers

    def publish(self, entries: Sequence[Entry]) -> None:
        """These were committed, in this order."""
        self._marks.extend([(each.id, isinstance(each, Settlement)) for each in entries])
        self._end += len(entries)
        if self._subscribers:
            self._wake()

    def close(self) -> None:
        """Subscribers get what there is, and then the end."""
        self.closed = True
        self._wake()

    @asynccontextmanager
    async def subscribe(
        self, log_filter: LogFilter, *, after: str | None = None, opened: bool = False
    ) -> AsyncIterator[Subscription]:
        """From the end of the request `after` on, from now on where it is None. With `opened` also
        requests that begin. Raises TooManySubscribers."""
        if self._subscribers >= self._most:
            raise TooManySubscribers(self._most)
        self._subscribers += 1
        try:
            position = self._end
            if after is not None:
                position = await self._behind(after)
            yield Subscription(self, self._operations, log_filter, position, after, opened=opened)
        finally:
            self._subscribers -= 1

    def entries(self, start: int, count: int) -> list[FeedEntry]:
        """At most so many entries from the number `start` on, which must be remembered."""
        first = start - self.start
        return list(islice(self._marks, first, first + count))

    async def wait(self) -> None:
        """Until there is something new, at most `IDLE` seconds."""
        try:
            async with asyncio.timeout(IDLE_SECONDS):
                await self._changed.wait()
        except TimeoutError:
            return
        if not self.closed:
            await asyncio.sleep(_GATHER_SECONDS)

    async def _behind(self, id_: str) -> int:
        """The number that follows the end of that request; before all that are remembered where it
        is not among them."""
        position = self._find(id_)
        if position is None and not self._knows_earlier_runs:
            await self._remember_earlier_runs()
            position = self._find(id_)
        return self.start - 1 if position is None else position

    def _find(self, id_: str) -> int | None:
        for back, mark in enumerate(reversed(self._marks)):
            if mark == (id_, True):
                return self._end - back
        return None

    async def _remember_earlier_runs(self) -> None:
        """So that whoever followed the gateway before it was restarted can go on."""
        if self.start > 0:
            return  # some of this run are forgotten: there would be a gap between
        ids = await logs.ended_in_earlier_runs(
            self._operations.database, self._operations.boot_id, self._capacity
        )
        if self._knows_earlier_runs or self.start > 0:
            return  # both may have changed meanwhile
        self._knows_earlier_runs = True
        room = self._capacity - len(self._marks)
        self._marks.extendleft((each, True) for each in islice(reversed(ids), room))

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
        if self.closed:
            self._changed.set()


class Subscription:
    """An iterator over what is new, which ends when the feed is closed."""

    def __init__(
        self,
        feed: Feed,
        operations: AdminOperations,
        log_filter: LogFilter,
        position: int,
        after: str | None,
        *,
        opened: bool,
    ) -> None:
        self._feed = feed
        self._operations = operations
        self._log_filter = log_filter
        self._position = position
        self._after = after
        self._opened = opened

    def __aiter__(self) -> Subscription:
        return self

    async def __anext__(self) -> FeedBatch:
        """Empty where nothing is new for a while: so that whoever waits can look around."""
        feed = self._feed
        if self._position == feed.end and not feed.closed:
            await feed.wait()
        if self._position == feed.end and feed.closed:
            raise StopAsyncIteration
        skipped, after = self._position < feed.start, self._after
        start = max(self._position, feed.start)
        marks = feed.entries(start, _BATCH_SIZE)
        self._position = start + len(marks)
        return FeedBatch(await self._rows(marks), skipped, after)

    async def _rows(self, marks: Sequence[FeedEntry]) -> list[RequestRow]:
        self._after = next((id_ for id_, ended in reversed(marks) if ended), self._after)
        ids = [id_ for id_, ended in marks if ended or self._opened]
        if not ids:
            return []
        found = await logs.get_many(self._operations.database, ids, self._log_filter)
        # A request that has ended in the meantime comes with its end.
        return [
            found[id_]
            for id_, ended in marks
            if id_ in found and (found[id_].state is not ExchangeState.RUNNING) is ended
        ]
