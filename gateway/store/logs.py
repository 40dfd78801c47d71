"""Reads that people wait for, and the time that each of them may take.

However rare what is looked for, a reader is given back soon. This room must not know what is read.

Reading the rows of exchanges: pages, single rows, their attempts. It never writes.

Ids are time-ordered, so a page is a range of ids, and so is a time. This room must not know who
looks.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import ColumnElement, Select, func, literal_column, or_, select
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.store.database import Database
from gateway.store.errors import QueryTimeout
from gateway.store.records import AttemptRow, ExchangeState, RequestRow
from gateway.store.schema import attempts as made
from gateway.store.schema import requests
from gateway.store.statements import IS_RUNNING

READ_TIMEOUT: Final = 2.0
"""Seconds."""

_CLOCK_INTERVAL: Final = (
    20_000  # of SQLite's machine between two looks at the clock: about a millisecond
)

_CANCELLED: Final = "57014"  # what PostgreSQL calls a statement that took too long


@asynccontextmanager
async def timed_reader(
    database: Database, seconds: float = READ_TIMEOUT
) -> AsyncIterator[AsyncConnection]:
    """A connection that reads; `seconds` after the block began a statement is given up and
    TooMuchToRead raised."""
    async with database.reader.connect() as connection:
        is_file = database.dialect.name == "sqlite"
        try:
            if is_file:
                await _set_deadline(connection, time.monotonic() + seconds)
            else:
                await connection.exec_driver_sql(
                    f"SET LOCAL statement_timeout = {max(1, int(seconds * 1000))}"
                )
            yield connection
        except DBAPIError as fault:
            if not _is_timeout(fault):
                raise
            raise QueryTimeout(
                f"This was not found within {seconds:g} s: narrow the time that is searched."
            ) from fault
        finally:
            if is_file and not connection.invalidated:
                await _set_deadline(connection, None)


async def _set_deadline(connection: AsyncConnection, deadline: float | None) -> None:
    driver: Any = (await connection.get_raw_connection()).driver_connection

    def is_late() -> bool:
        return deadline is not None and time.monotonic() > deadline

    await driver.set_progress_handler(None if deadline is None else is_late, _CLOCK_INTERVAL)


def _is_timeout(fault: DBAPIError) -> bool:
    cause = fault.orig
    if isinstance(cause, sqlite3.OperationalError):
        return cause.sqlite_errorcode == sqlite3.SQLITE_INTERRUPT
    return getattr(cause, "sqlstate", None) == _CANCELLED


MAX_PAGE: Final = 1000

FAILED: Final = requests.c.state.not_in([literal_column("'ok'"), literal_column("'open'")])
"""Of what has ended, all that did not go well. Spoken as literals: with parameters SQLite could
not use the partial index."""

_LATE_US: Final = 10_000_000
"""A row appears when the body of its request was read, later than rows of younger ids may: so far
back one looks for those that have."""

_EXPORT_BATCH: Final = 500
_EXPORT_TIMEOUT: Final = 10.0  # seconds: whoever exports everything waits for rare rows too


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFilter:
    """Which rows are looked for: those that match everything that is not None.

    `since` and before `until` (Unix µs) is when they started. `id` is how their ids begin. `model`
    is the catalog's or as the client sent it. `status` is a range of statuses, `error_code` looks
    among what failed. `text` stands anywhere in the upstream's error, the code or the client's
    own id of the request, in letters of either case.
    """

    since: int | None = None
    until: int | None = None
    id: str | None = None
    token_id: str | None = None
    group_name: str | None = None
    model: str | None = None
    channel: str | None = None
    account: str | None = None
    state: ExchangeState | None = None
    status: range | None = None
    error_code: str | None = None
    text: str | None = None


NO_FILTER: Final = LogFilter()


async def page(
    database: Database,
    log_filter: LogFilter = NO_FILTER,
    *,
    limit: int = 50,
    before: str | None = None,
    after: str | None = None,
) -> list[RequestRow]:
    """At most `limit` rows (and LONGEST_PAGE) of those wanted, newest first.

    `before` and `after` are ids and bound the page, themselves excluded: `before` the last row of
    a page is the next page. With `after` the page is the one that follows it most closely, so
    that a reader who goes on from its first row misses none. Raises TooMuchToRead.
    """
    query = _query(log_filter, max(1, min(limit, MAX_PAGE)), before, after)
    async with timed_reader(database) as connection:
        result = await connection.execute(query)
    rows = [_row(fields) for fields in result.mappings()]
    return rows if after is None else rows[::-1]


async def export(
    database: Database, log_filter: LogFilter = NO_FILTER
) -> AsyncIterator[list[RequestRow]]:
    """All rows wanted, some at a time, newest first; those of exchanges that begin meanwhile are
    not among them. Raises TooMuchToRead, with more patience than others."""
    before: str | None = None
    while True:
        query = _query(log_filter, _EXPORT_BATCH, before)
        async with timed_reader(database, _EXPORT_TIMEOUT) as connection:
            result = await connection.execute(query)
        rows = [_row(fields) for fields in result.mappings()]
        if rows:
            yield rows
        if len(rows) < _EXPORT_BATCH:
            return
        before = rows[-1].id


async def tail(
    database: Database,
    log_filter: LogFilter = NO_FILTER,
    *,
    after: str | None,
    running_ids: Sequence[str] = (),
    limit: int = 200,
) -> list[RequestRow]:
    """The newest rows wanted that began after the id `after`, or soon enough before it to have
    been missed, and those `watched` (ids, of rows that were open when they were shown) that have
    ended; newest first. Rows may come again: whoever shows them puts each in its own's place.

    After None there are only the watched ones and the newest `limit`.
    """
    rows = {row.id: row for row in await page(database, log_filter, limit=limit)}
    if after is not None:
        start = first_id(max(0, started_us(after) - _LATE_US))
        rows = {each: row for each, row in rows.items() if each > start}
    if running_ids:
        query = select(requests).where(
            requests.c.id.in_(running_ids[:MAX_PAGE]), requests.c.state != ExchangeState.RUNNING
        )
        async with timed_reader(database) as connection:
            result = await connection.execute(query)
        rows |= {row.id: row for row in map(_row, result.mappings())}
    return [rows[each] for each in sorted(rows, reverse=True)]


async def get_many(
    database: Database, ids: Sequence[str], log_filter: LogFilter = NO_FILTER
) -> dict[str, RequestRow]:
    """The rows of these ids that are wanted, by their ids. Raises TooMuchToRead."""
    query = select(requests).where(requests.c.id.in_(ids), *_conditions(log_filter))
    async with timed_reader(database) as connection:
        result = await connection.execute(query)
    return {row.id: row for row in map(_row, result.mappings())}


async def ended_in_earlier_runs(database: Database, boot_id: str | None, limit: int) -> list[str]:
    """The ids of rows that ended in earlier runs than `boot_id`, of the newest `limit` of them, in
    the order that they ended in. Nobody knows when an interrupted one did: those are the last.
    """
    row = requests.c
    newest = (
        select(row.id, row.state, row.started_at + func.coalesce(row.total_us, 0))
        .where(row.boot_id != boot_id, row.state != ExchangeState.RUNNING)
        .order_by(row.id.desc())
        .limit(limit)
    )
    async with timed_reader(database) as connection:
        found = (await connection.execute(newest)).all()
    return [
        id_
        for id_, *_ in sorted(
            found, key=lambda each: (each[1] == ExchangeState.INTERRUPTED, each[2], each[0])
        )
    ]


async def get(database: Database, request_id: str) -> RequestRow | None:
    """The row of one exchange, or None."""
    async with database.reader.connect() as connection:
        result = await connection.execute(select(requests).where(requests.c.id == request_id))
    fields = result.mappings().one_or_none()
    return None if fields is None else _row(fields)


async def attempts(database: Database, request_id: str) -> list[AttemptRow]:
    """The attempts of one exchange in their order; none before it has ended."""
    columns = (made.c[name] for name in AttemptRow._fields)
    query = select(*columns).where(made.c.request_id == request_id).order_by(made.c.number)
    async with database.reader.connect() as connection:
        return [AttemptRow(*row) for row in await connection.execute(query)]


def first_id(moment_us: int) -> str:
    """What sorts before the ids of all exchanges that started at that moment (Unix µs) or later,
    and after all earlier ones: an id begins with the microsecond of its start."""
    return f"req_{moment_us:014x}"


def started_us(request_id: str) -> int:
    """The moment (Unix µs) that an id begins with; 0 where it is none of ours."""
    try:
        return int(request_id.removeprefix("req_")[:14], 16)
    except ValueError:
        return 0


def _query(
    log_filter: LogFilter, limit: int, before: str | None = None, after: str | None = None
) -> Select[Any]:
    """The rows wanted that are next to the ids: newest first, with `after` oldest first."""
    bounds = list(_conditions(log_filter))
    if before is not None:
        bounds.append(requests.c.id < before)
    if after is not None:
        bounds.append(requests.c.id > after)
    order = requests.c.id.desc() if after is None else requests.c.id
    if log_filter.state is ExchangeState.RUNNING:
        found = _through("requests_open", select(requests.c.id).where(IS_RUNNING, *bounds))
    elif _uses_failed_index(log_filter):
        found = use_failed_index(select(requests.c.id).where(FAILED, *bounds))
    else:
        return select(requests).where(*bounds).order_by(order).limit(limit)
    # Ids first: only those that are found are looked up in the table.
    ids = found.order_by(order).limit(limit).scalar_subquery()
    return select(requests).where(requests.c.id.in_(ids)).order_by(order)


def use_failed_index(query: Select[Any]) -> Select[Any]:
    """The same by the index of what failed; the query must ask for FAILED."""
    return _through("requests_failed", query)


def _through(index: str, query: Select[Any]) -> Select[Any]:
    """SQLite cannot know how few rows are in a partial index."""
    return query.with_hint(requests, f"INDEXED BY {index}", "sqlite")


def _uses_failed_index(log_filter: LogFilter) -> bool:
    """Whether only what failed can match."""
    return (
        log_filter.error_code is not None
        or (log_filter.state is not None and log_filter.state not in ("ok", "open"))
        or (log_filter.status is not None and log_filter.status.start >= 400)
    )


def _conditions(log_filter: LogFilter) -> Iterator[ColumnElement[bool]]:
    row = requests.c
    if log_filter.since is not None:
        yield row.id >= first_id(log_filter.since)
    if log_filter.until is not None:
        yield row.id < first_id(log_filter.until)
    if log_filter.id:
        yield row.id >= log_filter.id
        yield row.id < f"{log_filter.id}~"  # sorts after all that ids are made of
    for name in ("token_id", "group_name", "channel", "account", "state", "error_code"):
        if (value := getattr(log_filter, name)) is not None:
            yield row[name] == value
    if log_filter.model is not None:
        yield or_(row.catalog_model == log_filter.model, row.model == log_filter.model)
    if log_filter.status is not None:
        yield row.status.between(log_filter.status.start, log_filter.status.stop - 1)
    if log_filter.text:
        places = (row.upstream_error, row.error_code, row.client_request_id)
        yield or_(*(place.icontains(log_filter.text, autoescape=True) for place in places))


def _row(fields: Mapping[Any, Any]) -> RequestRow:
    return RequestRow(**{**fields, "state": ExchangeState(fields["state"])})
