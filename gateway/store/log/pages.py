"""Reading the rows of exchanges: pages, single rows, their attempts.

Ids are time-ordered, so a page is a range of ids, and so is a span of time. Reads of many rows
have a deadline: however rare what is searched for, the connection is soon free again. A search
for rare rows is `search`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from typing import Any, Final

from sqlalchemy import (
    ColumnElement,
    Row,
    Select,
    Table,
    and_,
    func,
    literal_column,
    or_,
    select,
    union_all,
)
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.store.database import Database, fetch
from gateway.store.log.expressions import IS_RUNNING, id_between
from gateway.store.log.outcomes import Outcome, has_outcome
from gateway.store.records import (
    DIMENSIONS,
    AttemptRow,
    ExchangeState,
    RequestRow,
    SearchRow,
    started_us,
)
from gateway.store.schema import attempts as attempts_table
from gateway.store.schema import requests
from gateway.store.schema import searches as searches_table

MAX_PAGE: Final = 1000

READ_TIMEOUT: Final = 2.0  # seconds

FAILED: Final = requests.c.state.not_in([literal_column("'ok'"), literal_column("'running'")])
"""The condition of rows that ended without success. Literals: with parameters SQLite could not use
the partial index."""

_EQUAL_FIELDS: Final = ("token_id", "group_name", "channel", "account", "state", "error_code")

_LATE_US: Final = 10_000_000
"""A row is inserted when the body of its request was read, which may be after rows with later ids:
`tail` looks back this far for such rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFilter:
    """Selects the rows that match every field that is not None.

    They started at `since` or later and before `until` (Unix µs). `id` is a prefix of their ids.
    `model` is the catalog's or as the client sent it. `status` is a range of statuses;
    `error_code` selects among failures. `text` occurs in the upstream's error, the message or
    code of the client's, or the client's own request id, in either case. Those that begin with
    `min_` are the least that a row has: attempts, µs to its first event, millionths of a dollar.
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
    outcome: Outcome | None = None
    min_attempts: int | None = None
    min_first_event_us: int | None = None
    min_usd_micro: int | None = None
    end_user: str | None = None
    session: str | None = None
    agent: str | None = None
    tag: str | None = None


NO_FILTER: Final = LogFilter()


def timed_reader(
    database: Database, seconds: float = READ_TIMEOUT
) -> AbstractAsyncContextManager[AsyncConnection]:
    """A connection that reads; `seconds` after the block began its statement is cancelled and
    QueryTimeout raised."""
    return database.read_within(seconds)


async def page(
    database: Database,
    log_filter: LogFilter = NO_FILTER,
    *,
    limit: int = 50,
    before: str | None = None,
    after: str | None = None,
    seconds: float = READ_TIMEOUT,
) -> list[RequestRow]:
    """Reads at most `limit` matching rows (and MAX_PAGE), newest first.

    `before` and `after` are ids that bound the page, exclusively: `before` the last row of a page
    is the next page. With `after` the page is the one that follows it most closely, so that a
    reader who continues from its first row misses none. Raises QueryTimeout after `seconds`.
    """
    query = _query(database, log_filter, max(1, min(limit, MAX_PAGE)), before, after)
    rows = await _fetch(database, query, seconds)
    return rows if after is None else rows[::-1]


async def newest_id(
    database: Database, log_filter: LogFilter = NO_FILTER, before: str | None = None
) -> str | None:
    """The greatest id in the filter's time and with its prefix, whatever else the row has."""
    id_ = requests.c.id
    query = select(id_).where(*_id_bounds(log_filter, before)).order_by(id_.desc()).limit(1)
    async with timed_reader(database) as connection:
        newest: str | None = await connection.scalar(query)
        return newest


async def tail(
    database: Database,
    log_filter: LogFilter = NO_FILTER,
    *,
    after: str | None,
    running_ids: Sequence[str] = (),
    limit: int = 200,
) -> list[RequestRow]:
    """The newest matching rows that began after the id `after`, or shortly enough before it to
    have been missed, and those of `running_ids` that have ended since; newest first. A repeated
    row replaces the earlier one.

    With `after` None, the newest `limit` rows and those of `running_ids`.
    """
    if after is not None:
        start = max(0, started_us(after) - _LATE_US)
        log_filter = replace(log_filter, since=max(start, log_filter.since or 0))
    rows = {row.id: row for row in await page(database, log_filter, limit=limit)}
    if running_ids:
        query = select(requests).where(
            requests.c.id.in_(running_ids[:MAX_PAGE]), requests.c.state != ExchangeState.RUNNING
        )
        rows |= {row.id: row for row in await _fetch(database, query)}
    return [rows[id_] for id_ in sorted(rows, reverse=True)]


async def get_many(
    database: Database, ids: Sequence[str], log_filter: LogFilter = NO_FILTER
) -> dict[str, RequestRow]:
    """The matching rows among those of these ids, by id. Raises QueryTimeout."""
    query = select(requests).where(requests.c.id.in_(ids), *_conditions(log_filter))
    return {row.id: row for row in await _fetch(database, query)}


async def ended_in_earlier_runs(database: Database, boot_id: str | None, limit: int) -> list[str]:
    """The ids of the newest `limit` rows that ended in earlier runs than `boot_id`, in the order in
    which they ended. The end of interrupted ones is unknown: they come last."""
    row = requests.c
    query = (
        select(row.id, row.state, row.started_at + func.coalesce(row.total_us, 0))
        .where(row.boot_id != boot_id, row.state != ExchangeState.RUNNING)
        .order_by(row.id.desc())
        .limit(limit)
    )
    async with timed_reader(database) as connection:
        ended = (await connection.execute(query)).all()
    return [
        id_
        for _, _, id_ in sorted(
            (state == ExchangeState.INTERRUPTED, ended_at, id_) for id_, state, ended_at in ended
        )
    ]


async def get(database: Database, request_id: str) -> RequestRow | None:
    rows = await _fetch(database, select(requests).where(requests.c.id == request_id))
    return rows[0] if rows else None


async def searches(database: Database, request_id: str) -> list[SearchRow]:
    """The searches that the gateway ran for one exchange, in their order."""
    rows = await _numbered(database, searches_table, SearchRow._fields, request_id)
    return [*map(SearchRow._make, rows)]


async def attempts(database: Database, request_id: str) -> list[AttemptRow]:
    """The attempts of one exchange in their order; none before it has ended."""
    rows = await _numbered(database, attempts_table, AttemptRow._fields, request_id)
    return [*map(AttemptRow._make, rows)]


async def _numbered(
    database: Database, table: Table, fields: Sequence[str], request_id: str
) -> Sequence[Row[Any]]:
    """The rows of a table that belong to one exchange, in their order."""
    columns = table.c
    query = (
        select(*(columns[name] for name in fields))
        .where(columns.request_id == request_id)
        .order_by(columns.number)
    )
    return await fetch(database, query)


def first_id(time_us: int) -> str:
    """Sorts before the ids of all exchanges that started at that time (Unix µs) or later, and
    after all earlier ones: an id begins with the microsecond of its start."""
    return f"req_{time_us:014x}"


async def _fetch(
    database: Database, query: Select[Any], seconds: float = READ_TIMEOUT
) -> list[RequestRow]:
    async with timed_reader(database, seconds) as connection:
        result = await connection.execute(query)
    return [RequestRow._make(row)._replace(state=ExchangeState(row.state)) for row in result]


def _query(
    database: Database,
    log_filter: LogFilter,
    limit: int,
    before: str | None = None,
    after: str | None = None,
) -> Select[Any]:
    """The matching rows closest to the ids: newest first, with `after` oldest first."""
    order = requests.c.id.desc() if after is None else requests.c.id
    by_name = (
        log_filter.model is not None
        and database.has_model_indexes
        and log_filter.state is not ExchangeState.RUNNING
        and not _uses_failed_index(log_filter)
    )
    rest = replace(log_filter, model=None) if by_name else log_filter
    bounds = list(_conditions(rest, before, after))
    ids = select(requests.c.id).order_by(order).limit(limit)
    # Ids first: only those that match are looked up in the table.
    if log_filter.state is ExchangeState.RUNNING:
        found = _use_index("requests_running", ids.where(IS_RUNNING, *bounds)).scalar_subquery()
    elif _uses_failed_index(log_filter):
        found = use_failed_index(ids.where(FAILED, *bounds)).scalar_subquery()
    elif log_filter.model is not None and by_name:
        # Each name from its own index, in order: nothing depends on an estimate how rare it is.
        named = (ids.where(name, *bounds) for name in _model_names(log_filter.model))
        found = union_all(*(each.subquery().select() for each in named)).scalar_subquery()
    else:
        return select(requests).where(*bounds).order_by(order).limit(limit)
    return select(requests).where(requests.c.id.in_(found)).order_by(order).limit(limit)


def use_failed_index(query: Select[Any]) -> Select[Any]:
    """The query must select FAILED."""
    return _use_index("requests_failed", query)


def _use_index(index: str, query: Select[Any]) -> Select[Any]:
    """A hint, as SQLite cannot know how few rows are in a partial index."""
    return query.with_hint(requests, f"INDEXED BY {index}", "sqlite")


def _uses_failed_index(log_filter: LogFilter) -> bool:
    """Whether only failures can match."""
    return (
        log_filter.error_code is not None
        or log_filter.outcome not in (None, Outcome.SUCCESS)
        or log_filter.state not in (None, ExchangeState.OK, ExchangeState.RUNNING)
        or (log_filter.status is not None and log_filter.status.start >= 400)
    )


def _id_bounds(
    log_filter: LogFilter, before: str | None = None, after: str | None = None
) -> Iterator[ColumnElement[bool]]:
    times = (log_filter.since, log_filter.until)
    since, until = (None if time is None else first_id(time) for time in times)
    prefix = log_filter.id or None
    end = None if prefix is None else f"{prefix}~"  # sorts after all characters of ids
    return id_between(requests.c.id, first=[since, prefix], end=[until, end, before], after=after)


def _conditions(
    log_filter: LogFilter, before: str | None = None, after: str | None = None
) -> Iterator[ColumnElement[bool]]:
    row = requests.c
    yield from _id_bounds(log_filter, before, after)
    for name in (*_EQUAL_FIELDS, *DIMENSIONS):
        if (value := getattr(log_filter, name)) is not None:
            yield row[name] == value
    if log_filter.model is not None:
        yield or_(*_model_names(log_filter.model))
    if log_filter.status is not None:
        yield row.status.between(log_filter.status.start, log_filter.status.stop - 1)
    if log_filter.outcome is not None:
        yield has_outcome(log_filter.outcome)
    for name in ("attempts", "first_event_us", "usd_micro"):
        if (least := getattr(log_filter, f"min_{name}")) is not None:
            yield row[name] >= least
    if log_filter.text:
        places = (row.upstream_error, row.error_message, row.error_code, row.client_request_id)
        yield or_(*(place.icontains(log_filter.text, autoescape=True) for place in places))


def _model_names(model: str) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    """The catalog's name, or another one that the client sent: a row matches one at most. As a
    server has them in its indexes."""
    row = requests.c
    is_other = row.catalog_model.is_distinct_from(row.model)
    return row.catalog_model == model, and_(row.model == model, is_other)
