"""Searching the request log: pages of rows that match a filter, however few of them there are.

Most filters fill a page at once: an index has them, or the newest rows do. For others the log is
read span by span, from the newest or from where the caller is, until the page is full or the time
is used up. Then the page has the rows found so far, and the id from which the search continues.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from time import monotonic
from typing import Final

from gateway.store.database import Database
from gateway.store.errors import QueryTimeout
from gateway.store.log import pages
from gateway.store.log.pages import NO_FILTER, LogFilter, first_id
from gateway.store.records import RequestRow, started_us

SEARCH_SECONDS: Final = 2.0
"""The time for one page. Others wait for the same few connections."""

_AT_ONCE: Final = 0.2  # seconds for a page from one statement
_STEP: Final = 0.2  # seconds that a span should take
_STEP_TIMEOUT: Final = 0.5
_FIRST_SPAN: Final = 60_000_000  # µs; of a busy gateway a million rows
_SHORTEST_SPAN: Final = 1_000_000
_GROWTH: Final = 8  # at most, from one span to the next: the next day may have more rows

_EXPORT_BATCH: Final = 500


@dataclass(frozen=True, slots=True)
class LogPage:
    """Rows, newest first. `searched_to` is None if they are all that there are, up to the limit;
    else the time was used up, and the search continues from this id: it is `before` of the next
    call, or `after` where that was given."""

    rows: list[RequestRow]
    searched_to: str | None = None


async def search(
    database: Database,
    log_filter: LogFilter = NO_FILTER,
    *,
    limit: int = 50,
    before: str | None = None,
    after: str | None = None,
    seconds: float = SEARCH_SECONDS,
) -> LogPage:
    """Reads a page as `pages.page` does, within `seconds`. Raises QueryTimeout only if nothing
    could be read."""
    deadline = monotonic() + seconds
    try:
        at_once = min(_AT_ONCE, seconds)
        return LogPage(
            await pages.page(
                database, log_filter, limit=limit, before=before, after=after, seconds=at_once
            )
        )
    except QueryTimeout:
        newest = await pages.newest_id(database, log_filter, before)
    if newest is None:
        return LogPage([])
    walk = _Walk(database, log_filter, limit, before, after, started_us(newest))
    while not walk.is_complete and (left := deadline - monotonic()) > 0:
        await walk.step(min(left, _STEP_TIMEOUT))
    if walk.is_complete:
        return LogPage(walk.rows)
    if walk.searched_to is None:
        raise QueryTimeout(seconds)
    return LogPage(walk.rows, walk.searched_to)


async def export(
    database: Database, log_filter: LogFilter = NO_FILTER
) -> AsyncIterator[list[RequestRow]]:
    """Yields all matching rows in batches, newest first, without rows of exchanges that begin
    meanwhile. A batch is empty if a search has taken its time: the reader may have gone. Raises
    QueryTimeout."""
    before: str | None = None
    while True:
        page = await search(database, log_filter, limit=_EXPORT_BATCH, before=before)
        if page.rows or page.searched_to:
            yield page.rows
        if page.searched_to is None and len(page.rows) < _EXPORT_BATCH:
            return
        before = page.searched_to or page.rows[-1].id


class _Walk:
    """A search from the time `newest` (Unix µs) to older rows, or from `after` to newer ones up to
    it. The next span is as long as can be read in `_STEP`, going by what the last one took."""

    def __init__(
        self,
        database: Database,
        log_filter: LogFilter,
        limit: int,
        before: str | None,
        after: str | None,
        newest: int,
    ) -> None:
        self.rows: list[RequestRow] = []
        self.searched_to: str | None = None
        self.is_complete = False
        self._database = database
        self._filter = log_filter
        self._limit = limit
        self._before = before
        self._after = after
        self._newest = newest
        self._position = newest if after is None else started_us(after)
        self._span = _FIRST_SPAN

    async def step(self, seconds: float) -> None:
        began = monotonic()
        try:
            await (self._read_older(seconds) if self._after is None else self._read_newer(seconds))
        except QueryTimeout:
            self._span = max(self._span // _GROWTH, _SHORTEST_SPAN)
            return
        if len(self.rows) >= self._limit:
            self.is_complete = True
        took = max(monotonic() - began, 0.001)
        self._span = max(int(self._span * min(_GROWTH, _STEP / took)), _SHORTEST_SPAN)

    async def _read_older(self, seconds: float) -> None:
        end = self._position - self._span
        is_last = end <= (self._filter.since or 0)
        span = self._filter if is_last else replace(self._filter, since=end)
        before = self.searched_to or self._before
        self.rows += await self._page(span, before, None, seconds)
        self._move(end, is_last)

    async def _read_newer(self, seconds: float) -> None:
        end = self._position + self._span
        is_last = end > self._newest
        span = self._filter if is_last else replace(self._filter, until=end)
        after = self.searched_to or self._after
        self.rows = await self._page(span, self._before, after, seconds) + self.rows
        self._move(end, is_last)

    def _move(self, end: int, is_last: bool) -> None:
        self._position, self.is_complete = end, is_last
        self.searched_to = first_id(max(end, 0))

    async def _page(
        self, span: LogFilter, before: str | None, after: str | None, seconds: float
    ) -> list[RequestRow]:
        limit = self._limit - len(self.rows)
        return await pages.page(
            self._database, span, limit=limit, before=before, after=after, seconds=seconds
        )
