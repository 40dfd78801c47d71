"""Checks that the rows of the request log are those of their links, and that no link is missing.

Rows are compared link by link. The ids of all links are noted in a temporary file, in which those
of the rows are looked up at the end: so any number of rows takes the same memory.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import closing
from operator import itemgetter
from typing import Any, Final

from sqlalchemy import Table, select
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.store.log.expressions import IS_RUNNING
from gateway.store.log.links import (
    LASTING,
    LINKED_SINCE,
    RECOVERY,
    digest_link,
    digest_values,
    first_kept_day,
)
from gateway.store.log.pages import first_id
from gateway.store.records import HOUR_US, AttemptRow, Discrepancy, LinkRow, SearchRow
from gateway.store.schema import attempts, links, requests, searches

_LINKS: Final = 100  # that are read at once
_IDS: Final = 1000
_LAST_ID: Final = "~"


async def wrong_links(
    connection: AsyncConnection, rows_kept_since: int, heads: Iterable[str], limit: int
) -> list[Discrepancy]:
    """At most `limit` differences, for rows that are kept since that Unix hour. `heads` are digests
    that some link must have."""
    linked_since = await connection.scalar(LINKED_SINCE)
    since = max(int(linked_since or 0), rows_kept_since * HOUR_US)
    first = _LAST_ID if linked_since == "" else first_id(since) if since else ""
    with closing(_LinkCheck(connection, first, first_kept_day(rows_kept_since))) as check:
        await check.read_links(heads, limit)
        if len(check.found) < limit:
            await check.read_rows(limit)
        return check.found[:limit]


class _LinkCheck:
    """One run. Links of rows with ids before `first`, and of days before `first_day`, may have been
    deleted."""

    def __init__(self, connection: AsyncConnection, first: str, first_day: int) -> None:
        self._connection = connection
        self._first = first
        self._first_day = first_day
        self._named = sqlite3.connect("", isolation_level=None)
        self._named.execute("CREATE TABLE named (id TEXT PRIMARY KEY, times) WITHOUT ROWID")
        self._named.execute("BEGIN")
        self._last: LinkRow | None = None
        self._changed: dict[str, LinkRow] = {}
        """By id, links of interrupted rows that have changed: another link can have the truth."""
        self.found: list[Discrepancy] = []
        self.close = self._named.close

    async def read_links(self, heads: Iterable[str], limit: int) -> None:
        """Checks all links, and the rows that they name."""
        query = select(*links.c).order_by(*links.primary_key).execution_options(yield_per=_LINKS)
        opening = select(links.c.day, links.c.previous).where(links.c.number == 1)
        awaited = {
            digest
            for day, previous in await self._connection.execute(opening)
            if day >= self._first_day
            for digest in previous.split()
        }
        awaited.update(heads)
        async with self._connection.stream(query) as batches:
            async for batch in batches.partitions():
                read = [LinkRow._make(row) for row in batch]
                for link in read:
                    self._check_place(link)
                    awaited.discard(link.digest)
                await self._check_rows(read)
                if len(self.found) >= limit:
                    return
        self.found += [_missing("links.digest", link=digest) for digest in sorted(awaited)]
        for id, link in self._changed.items():
            if self._count(id) == 1:
                self.found.append(_missing("links.rows_digest", link=_name(link)))

    async def read_rows(self, limit: int) -> None:
        """Finds rows in no link."""
        row = requests.c
        query = select(row.id).where(row.id >= self._first, ~IS_RUNNING).order_by(row.id)
        options = {"yield_per": _IDS}
        async with self._connection.stream(query, execution_options=options) as batches:
            async for batch in batches.partitions():
                ids = [id for (id,) in batch]
                between = "SELECT id FROM named WHERE id BETWEEN ? AND ?"
                named = {id for (id,) in self._named.execute(between, (ids[0], ids[-1]))}
                self.found += [
                    _missing("links.ids", request_id=id) for id in ids if id not in named
                ]
                if len(self.found) >= limit:
                    return

    def _check_place(self, link: LinkRow) -> None:
        last, self._last = self._last, link
        if digest_link(link) != link.digest:
            self.found.append(_missing("links.digest", link=_name(link)))
        if last is None or last[:2] != link[:2]:
            follows = link.number == 1
        else:
            follows = (link.number, link.previous) == (last.number + 1, last.digest)
        if not follows and link.day >= self._first_day:
            self.found.append(_missing("links.previous", link=_name(link)))

    async def _check_rows(self, read: Sequence[LinkRow]) -> None:
        """Compares the rows of links, some at a time."""
        some: list[tuple[LinkRow, list[str]]] = []
        count = 0
        for link in read:
            ids = link.ids.split(" ")
            kept = [(id,) for id in ids if id >= self._first]
            self._named.executemany(
                "INSERT INTO named VALUES (?, 1) ON CONFLICT DO UPDATE SET times = times + 1", kept
            )
            if not kept:
                continue
            some.append((link, ids))
            count += len(ids)
            if count >= _IDS:
                await self._compare(some)
                some, count = [], 0
        if some:
            await self._compare(some)

    async def _compare(self, some: Sequence[tuple[LinkRow, list[str]]]) -> None:
        all_ids = {id for _, ids in some for id in ids}
        fields = [requests.c[name] for name in LASTING]
        query = select(*fields).where(requests.c.id.in_(all_ids))
        rows = {row[0]: tuple(row) for row in await self._connection.execute(query)}
        tried = await self._by_request(attempts, AttemptRow._fields, all_ids)
        searched = await self._by_request(searches, SearchRow._fields, all_ids)
        for link, ids in some:
            gone = [id for id in ids if id not in rows]
            self.found += [
                _missing("requests.id", request_id=id, link=_name(link))
                for id in gone
                if id >= self._first
            ]
            if gone:
                continue
            values = (
                [rows[id] for id in ids],
                [row for id in ids for row in tried[id]],
                [row for id in ids for row in searched[id]],
            )
            if digest_values(*values) == link.rows_digest:
                continue
            if link.writer == RECOVERY:
                self._changed[ids[0]] = link
            else:
                self.found.append(_missing("links.rows_digest", link=_name(link)))

    async def _by_request(
        self, table: Table, fields: Sequence[str], ids: Iterable[str]
    ) -> dict[str, list[tuple[Any, ...]]]:
        names = ("request_id", "number", *fields)
        query = select(*map(table.c.__getitem__, names)).where(table.c.request_id.in_(ids))
        found = defaultdict(list)
        for row in sorted(map(tuple, await self._connection.execute(query)), key=itemgetter(0, 1)):
            found[row[0]].append(row)
        return found

    def _count(self, id: str) -> int:
        (count,) = self._named.execute("SELECT times FROM named WHERE id = ?", (id,)).fetchone()
        return int(count)


def _name(link: LinkRow) -> str:
    return f"{link.day}/{link.writer}/{link.number}"


def _missing(column: str, *, request_id: str | None = None, link: str | None = None) -> Discrepancy:
    return Discrepancy(column=column, stands=0, counted=1, request_id=request_id, link=link)
