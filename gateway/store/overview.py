"""What the ledger says of a span of time: figures over time, who used most, what failed.

Figures come from the sums by the hour, failures from their own index, so that it is quick however
many rows there are. This room must not know how it is shown, nor what anything costs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

from sqlalchemy import ColumnElement, Select, func, select, text

from gateway.store.database import Database
from gateway.store.logs import FAILED, first_id, timed_reader, use_failed_index
from gateway.store.records import HOUR_US
from gateway.store.schema import requests, usage_hours
from gateway.store.statements import sum_of
from gateway.store.usage import Metrics, Totals

Rows = Sequence[Sequence[Any]]

DAY_US: Final = 24 * HOUR_US
"""Microseconds."""

_BY_THE_HOUR: Final = 3 * DAY_US  # the longest span of which each hour is told
_MOST: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeBucket(Metrics):
    """The figures of one hour or day of UTC, which begins `at` (Unix µs)."""

    at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Breakdown(Totals):
    """The amounts of one token (its id) or one model of the catalog ('' where there was none)."""

    name: str


_AMOUNTS: Final = tuple(field.name for field in fields(Totals))
_FIGURES: Final = tuple(field.name for field in fields(Metrics))


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureGroup:
    """How often exchanges ended in one way: `what` is the code that the client got, or the state
    where it got none; `last` is the id of the newest of them."""

    what: str
    upstream_status: int | None
    count: int
    last: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """A span of whole hours or days: `step` is which of them the `series` tells, in µs, and it
    tells all of them, in order. Keys and models are the dearest, failures the most frequent."""

    since: int
    until: int
    step: int
    whole: Metrics
    series: tuple[TimeBucket, ...]
    keys: tuple[Breakdown, ...]
    models: tuple[Breakdown, ...]
    failures: tuple[FailureGroup, ...]


def align_span(since: int, until: int) -> tuple[int, int, int]:
    """The whole hours of UTC (whole days, where it is long) that a span of Unix µs touches, one at
    the least: from, until, and which of them."""
    step = HOUR_US if until - since <= _BY_THE_HOUR else DAY_US
    first = since // step
    return first * step, max(-(-until // step), first + 1) * step, step


async def overview(database: Database, since: int, until: int) -> Overview:
    """Of the time from `since` to before `until` (Unix µs), widened. Raises TooMuchToRead."""
    since, until, step = align_span(since, until)
    hours = usage_hours.c
    of_span = hours.hour.between(since // HOUR_US, until // HOUR_US - 1)
    slices = _sums(_FIGURES, hours.hour).where(of_span)
    keys_of, models_of = (
        _sums(_AMOUNTS, by)
        .where(of_span)
        .order_by(text("cost_micro DESC"), text("requests DESC"), by)
        .limit(_MOST)
        for by in (hours.token_id, hours.model)
    )
    # Each of them takes the database about as long as the other.
    (of_hours, failures), (keys, models) = await asyncio.gather(
        _both(database, slices, _failures(since, until)), _both(database, keys_of, models_of)
    )
    series = _series(of_hours, range(since, until, step))
    return Overview(
        since=since,
        until=until,
        step=step,
        whole=Metrics(**_added(_FIGURES, [row[1:] for row in of_hours])),
        series=series,
        keys=_parts(keys),
        models=_parts(models),
        failures=tuple(
            FailureGroup(what=what, upstream_status=status, count=count, last=last)
            for what, status, count, last in failures
        ),
    )


async def _both(database: Database, one: Select[Any], other: Select[Any]) -> tuple[Rows, Rows]:
    async with timed_reader(database) as connection:
        first, second = await connection.execute(one), await connection.execute(other)
    return first.all(), second.all()


def _sums(names: Sequence[str], by: ColumnElement[Any]) -> Select[Any]:
    counts = (sum_of(usage_hours.c[name]).label(name) for name in names)
    return select(by, *counts).group_by(by)


def _failures(since: int, until: int) -> Select[Any]:
    row = requests.c
    what, count = func.coalesce(row.error_code, row.state), func.count()
    of_span = (FAILED, row.id >= first_id(since), row.id < first_id(until))
    query = select(what, row.upstream_status, count, func.max(row.id)).where(*of_span)
    query = query.group_by(what, row.upstream_status).order_by(count.desc(), func.max(row.id))
    return use_failed_index(query).limit(_MOST)


def _series(of_hours: Rows, starts: range) -> tuple[TimeBucket, ...]:
    """The hours are in the order of their table, so that nothing need be sorted to add them."""
    found: dict[int, list[Sequence[int]]] = {}
    for row in of_hours:
        found.setdefault(row[0] * HOUR_US // starts.step * starts.step, []).append(row[1:])
    return tuple(TimeBucket(at=at, **_added(_FIGURES, found.get(at, ()))) for at in starts)


def _parts(rows: Rows) -> tuple[Breakdown, ...]:
    return tuple(
        Breakdown(name=row[0], **dict(zip(_AMOUNTS, row[1:], strict=True))) for row in rows
    )


def _added(names: Sequence[str], rows: Sequence[Sequence[int]]) -> dict[str, int]:
    return dict(zip(names, map(sum, zip(*rows, strict=True)), strict=False))
