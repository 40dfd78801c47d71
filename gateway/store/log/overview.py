"""A summary of a span of time: metrics over time, top keys and models, failures.

Metrics come from the sums of hours and days, failures from an index of their own, so the number of
rows does not matter.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

from sqlalchemy import ColumnElement, FromClause, Select, func, literal, select, text

from gateway.store.database import Database
from gateway.store.log.expressions import sum_of
from gateway.store.log.pages import FAILED, first_id, timed_reader, use_failed_index
from gateway.store.log.usage import Metrics, Totals, hours_one_by_one, usage_between
from gateway.store.records import DAY_US, HOUR_US
from gateway.store.schema import requests

Rows = Sequence[Sequence[Any]]


_MAX_HOURLY_SPAN: Final = 3 * DAY_US
_MAX_ROWS: Final = 10  # keys, models, failures


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeBucket(Metrics):
    """One hour or day of UTC, which begins `at` (Unix µs)."""

    at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Breakdown(Totals):
    """One token (its id) or one model of the catalog ('' where there was none)."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureGroup:
    """Failures of one kind: `what` is the error code that the client got, else the state; `last` is
    the id of the newest of them."""

    what: str
    upstream_status: int | None
    count: int
    last: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """A span of whole hours or days. `series` has a bucket for each `step` (µs), in order. Keys and
    models are those with the highest cost, in dollars first; failures the most frequent."""

    since: int
    until: int
    step: int
    whole: Metrics
    series: tuple[TimeBucket, ...]
    keys: tuple[Breakdown, ...]
    models: tuple[Breakdown, ...]
    failures: tuple[FailureGroup, ...]


_TOTALS: Final = tuple(field.name for field in fields(Totals))
_RANKING: Final = ("usd_micro DESC", "cost_micro DESC", "requests DESC")
_METRICS: Final = tuple(field.name for field in fields(Metrics))


def align_span(since: int, until: int) -> tuple[int, int, int]:
    """The hours of UTC (days, of a long span) that a span of Unix µs touches, at least one: from,
    until, and the step."""
    step = HOUR_US if until - since <= _MAX_HOURLY_SPAN else DAY_US
    first = since // step
    return first * step, max(-(-until // step), first + 1) * step, step


async def overview(database: Database, since: int, until: int) -> Overview:
    """Reads the overview from `since` to before `until` (Unix µs), aligned. Raises QueryTimeout."""
    since, until, step = align_span(since, until)
    span = since // HOUR_US, until // HOUR_US
    series = await usage_between(database, set(), *span, whole_days=step == DAY_US)
    top_keys, top_models = [
        _sums(sums, _TOTALS, by).order_by(*map(text, _RANKING), sums.c[by]).limit(_MAX_ROWS)
        for by in ("token_id", "model")
        for sums in (await usage_between(database, {by}, *span, whole_days=True),)
    ]
    # Both pairs take the database about as long.
    (by_hour, failures), (keys, models) = await asyncio.gather(
        _read(database, _sums(series, _METRICS, "hour"), _failures(since, until)),
        _read(database, top_keys, top_models),
    )
    # The hours are in the order of their table: adding them needs no sorting.
    buckets: dict[int, list[Sequence[int]]] = {}
    for hour, *counts in by_hour:
        buckets.setdefault(hour * HOUR_US // step * step, []).append(counts)
    return Overview(
        since=since,
        until=until,
        step=step,
        whole=Metrics(**_added([counts for _, *counts in by_hour])),
        series=tuple(
            TimeBucket(at=at, **_added(buckets.get(at, ()))) for at in range(since, until, step)
        ),
        keys=_breakdowns(keys),
        models=_breakdowns(models),
        failures=tuple(
            FailureGroup(what=what, upstream_status=status, count=count, last=last)
            for what, status, count, last in failures
        ),
    )


async def _read(database: Database, *queries: Select[Any]) -> list[Rows]:
    async with timed_reader(database) as connection:
        return [(await connection.execute(query)).all() for query in queries]


def _sums(sums: FromClause, names: Sequence[str], by: str) -> Select[Any]:
    counts = (sum_of(sums.c[name]).label(name) for name in names)
    return select(sums.c[by], *counts).group_by(sums.c[by])


def _failures(since: int, until: int) -> Select[Any]:
    row = requests.c
    what, last = func.coalesce(row.error_code, row.state), func.max(row.id)
    count = sum_of(row.requests)
    query = (
        select(what, row.upstream_status, count, last)
        .where(FAILED, row.id >= first_id(since), row.id < first_id(until))
        .group_by(what, row.upstream_status)
        .order_by(count.desc(), last)
    )
    return use_failed_index(query).limit(_MAX_ROWS)


def _breakdowns(rows: Rows) -> tuple[Breakdown, ...]:
    return tuple(
        Breakdown(name=name, **dict(zip(_TOTALS, counts, strict=True))) for name, *counts in rows
    )


def _added(rows: Sequence[Sequence[int]]) -> dict[str, int]:
    return dict(zip(_METRICS, map(sum, zip(*rows, strict=True)), strict=False))


async def read_spending(
    database: Database,
    since: int,
    until: int,
    by: str | None = None,
    names: Sequence[str] = (),
    where: Mapping[str, str] = {},
    *,
    whole_days: bool = False,
) -> Rows:
    """Reads the hours of a span of whole hours (Unix µs), each with its name, micro-units and
    millionths of a dollar: of these names of the column `by`, or without one of all, by ''. `where`
    are values of other columns; `whole_days`: the hour is only needed for its day. Raises
    QueryTimeout."""
    names_of = {*where, *(() if by is None else (by,))}
    span = max(0, since // HOUR_US), until // HOUR_US
    sums = (await usage_between(database, names_of, *span, whole_days=whole_days)).c
    name: ColumnElement[Any] = literal("", literal_execute=True) if by is None else sums[by]
    query = select(sums.hour, name, sum_of(sums.cost_micro), sum_of(sums.usd_micro))
    conditions: list[ColumnElement[bool]] = [
        sums[column] == value for column, value in where.items()
    ]
    if by is not None:
        conditions.append(sums[by].in_(names))
    if "token_id" in names_of:
        conditions += hours_one_by_one(sums.hour, *span)
    key: list[ColumnElement[Any]] = [sums.hour] if by is None else [sums.hour, name]
    (rows,) = await _read(database, query.where(*conditions).group_by(*key))
    return rows
