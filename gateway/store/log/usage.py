"""Usage by time, key, model and other columns, and the span of time that it covers.

Sums have no dimensions that requests state of themselves, as their values are too many: usage by
these is read from the rows, as far back as there are any. So is that of a channel by key or group;
by model and time alone it is read from the sums of traffic.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final

from sqlalchemy import ColumnElement, FromClause, Select, select

from gateway.store.database import Database
from gateway.store.log.expressions import (
    HOUR_KEY,
    HOURS_OF_A_DAY,
    IS_RUNNING,
    ROW_COUNTS,
    sum_of,
)
from gateway.store.log.pages import first_id, timed_reader
from gateway.store.log.traffic import has_all_usage, is_complete, traffic_between
from gateway.store.log.traffic_rows import SLOT_KEY
from gateway.store.records import DIMENSIONS, HOUR_US, USAGE_COUNTS
from gateway.store.schema import requests, usage_hours

END: Final = 2**31 - 24
"""A value after every Unix hour."""

SUM_FIELDS: Final = ("token_id", "group_name", "model", *USAGE_COUNTS)


def sums_between(
    database: Database, since: int, until: int, *, whole_days: bool = False
) -> FromClause:
    """Selects sums with the columns of `usage_hours`, from `since` to before `until` (Unix hours).
    `whole_days`: the hour is only needed for its day."""
    sums = database.sums_of_days(since, until) if whole_days else None
    if sums is not None:
        return sums
    return hours_since(since).where(usage_hours.c.hour < until).subquery()


async def usage_between(
    database: Database, names: Set[str], since: int, until: int, *, whole_days: bool = False
) -> FromClause:
    """Selects what has the columns of these names and the counts of usage, by hour: sums, if there
    are any of these columns, else rows. `whole_days`: the hour is only needed for its day."""
    of_traffic = names.isdisjoint((*DIMENSIONS, *_OF_CALLER))
    if names.isdisjoint((*DIMENSIONS, "channel")):
        # Of one key and model an hour may have one request: then their sums are as many as rows.
        are_days = whole_days and not since % 24 and (not until % 24 or until == END)
        if of_traffic and are_days and await has_all_usage(database, since, until):
            return traffic_between(since, until)
        return sums_between(database, since, until, whole_days=whole_days)
    if of_traffic and await is_complete(database, since):
        return traffic_between(since, until)
    return _rows_between(since, until)


def hours_one_by_one(hour: ColumnElement[int], since: int, until: int) -> list[ColumnElement[bool]]:
    """For sums of some keys: where their hours are stated, each of them is looked up, and the sums
    of other keys are not read. Nothing for a long span."""
    return [hour.in_(range(since, until))] if until - since <= _MOST_HOURS else []


def hours_since(since: int | ColumnElement[int]) -> Select[Any]:
    columns = (usage_hours.c[name] for name in ("hour", *SUM_FIELDS))
    return select(*columns).where(usage_hours.c.hour >= since)


def _rows_between(since: int, until: int) -> FromClause:
    """Selects settled rows as sums of one request each, with the dimensions that they state."""
    stated = {name: requests.c[name] for name in DIMENSIONS}
    columns = {**HOUR_KEY, "channel": SLOT_KEY["channel"], **stated, **ROW_COUNTS}
    first, end = first_id(since * HOUR_US), first_id(until * HOUR_US)
    return (
        select(*(column.label(name) for name, column in columns.items()))
        .where(requests.c.id >= first, requests.c.id < end, ~IS_RUNNING)
        .subquery()
    )


ROWS_TIMEOUT: Final = 30.0
"""Seconds that usage may take to be read from the rows."""

_MOST_HOURS: Final = 32 * 24
"""Which are stated one by one."""
_OF_CALLER: Final = ("token_id", "group_name")
_BATCH: Final = 1000
_RANKING: Final = ("usd_micro", "cost_micro", "requests")

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Dimension(StrEnum):
    """A dimension by which usage can be grouped; days and hours are in UTC."""

    KEY = "key"
    GROUP = "group"
    MODEL = "model"
    CHANNEL = "channel"
    DAY = "day"
    HOUR = "hour"
    END_USER = "end_user"
    SESSION = "session"
    AGENT = "agent"
    TAG = "tag"


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """The usage of settled exchanges."""

    requests: int = 0
    errors: int = 0
    input_tokens: int = 0
    cache_read_tokens: int = 0
    output_tokens: int = 0
    cost_micro: int = 0
    usd_micro: int = 0

    @property
    def cached_share(self) -> float | None:
        """The part of the input tokens that was read from a cache, from 0 to 1."""
        return self.cache_read_tokens / self.input_tokens if self.input_tokens else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics(Totals):
    """Totals with the times that the `first_events` exchanges took that had a first event."""

    estimated: int = 0
    first_events: int = 0
    first_event_us: int = 0
    total_us: int = 0

    @property
    def mean_first_event_us(self) -> int | None:
        return self.first_event_us // self.first_events if self.first_events else None

    @property
    def mean_total_us(self) -> int | None:
        return self.total_us // self.first_events if self.first_events else None


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageRow(Metrics):
    """One row of usage. Dimensions that are not grouped by are None: the id of the token, the
    group's name, the catalog's model ('' where there was none), the date as YYYY-MM-DD, the Unix
    hour, the channel ('' where none was asked), and what requests state of themselves (None where
    they do not)."""

    key: str | None = None
    group: str | None = None
    model: str | None = None
    day: str | None = None
    hour: int | None = None
    channel: str | None = None
    end_user: str | None = None
    session: str | None = None
    agent: str | None = None
    tag: str | None = None
    cache_write_tokens: int = 0
    cache_write_1h_tokens: int = 0
    reasoning_tokens: int = 0
    web_searches: int = 0


_COLUMNS: Final[Mapping[Dimension, str]] = {
    Dimension.DAY: "hour",
    Dimension.HOUR: "hour",
    Dimension.KEY: "token_id",
    Dimension.GROUP: "group_name",
    Dimension.MODEL: "model",
    Dimension.CHANNEL: "channel",
    **{Dimension(name): name for name in DIMENSIONS},
}
"""The columns in the order by which rows are sorted, time first."""


async def usage(
    database: Database,
    by: Sequence[Dimension] = (),
    *,
    since: int | None = None,
    until: int | None = None,
    token_id: str | None = None,
    group: str | None = None,
    model: str | None = None,
    channel: str | None = None,
    stated: Mapping[str, str] = MappingProxyType({}),
    limit: int | None = None,
) -> list[UsageRow]:
    """The sums of the hours from `since` to before `until` (Unix hours) that match every filter
    given; without a dimension, one row. Sorted by time where that is a dimension, then by cost,
    in dollars first, the highest first; up to `limit`. `stated` are filters by `DIMENSIONS`.
    Raises QueryTimeout where the rows have to be read, and are too many.
    """
    given = {"token_id": token_id, "group_name": group, "model": model, "channel": channel}
    filters = {name: value for name, value in {**given, **stated}.items() if value is not None}
    names = {*filters, *(_COLUMNS[each] for each in by)}
    span = since or 0, END if until is None else min(until, END)
    source = await usage_between(database, names, *span, whole_days=Dimension.HOUR not in by)
    sums = source.c
    dimensions: dict[Dimension, ColumnElement[Any]] = {
        name: sums[column] for name, column in _COLUMNS.items() if name in by
    }
    if Dimension.DAY in dimensions:
        dimensions[Dimension.DAY] = sums.hour // HOURS_OF_A_DAY
    counts = {name: sum_of(sums[name]).label(name) for name in USAGE_COUNTS}
    conditions = [sums[name] == value for name, value in filters.items()]
    if token_id is not None:
        conditions += hours_one_by_one(sums.hour, *span)
    times = [dimensions[each] for each in (Dimension.DAY, Dimension.HOUR) if each in dimensions]
    others = [column for column in dimensions.values() if column not in times]
    query = (
        select(*dimensions.values(), *counts.values())
        .where(*conditions)
        .group_by(*dimensions.values())
        .order_by(*times, *(counts[name].desc() for name in _RANKING), *others)
        .limit(limit)
    )
    async with timed_reader(database, ROWS_TIMEOUT) as connection:
        rows = await connection.execute(query)
    names_of_row = (*dimensions, *USAGE_COUNTS)
    found: list[UsageRow] = []
    for batch in rows.partitions(_BATCH):
        found += [_row(names_of_row, row) for row in batch]
        await asyncio.sleep(0)  # others run meanwhile: there can be very many rows
    return found


def _row(names: Sequence[str], values: Sequence[Any]) -> UsageRow:
    fields = dict(zip(names, values, strict=True))
    if Dimension.DAY in fields:
        fields[Dimension.DAY] = date_of(fields[Dimension.DAY])
    return UsageRow(**fields)


@lru_cache
def date_of(day: int) -> str:
    return (_EPOCH + timedelta(days=day)).date().isoformat()
