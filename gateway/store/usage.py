"""What was used, summed up by whatever is asked for, and what is spent so far.

Only the sums by the hour are read, so the number of rows of requests does not matter. This room
must not know what anything costs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Final, NamedTuple

from sqlalchemy import ColumnElement, case, literal, select

from gateway.store.database import Database
from gateway.store.records import HOUR_US, HourDelta
from gateway.store.schema import usage_hours
from gateway.store.statements import sum_of

COUNTS: Final = HourDelta._fields[4:]
"""Everything that is counted for an hour."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Dimension(StrEnum):
    """By what usage can be told apart; days and hours are those of UTC."""

    KEY = "key"
    GROUP = "group"
    MODEL = "model"
    DAY = "day"
    HOUR = "hour"


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageRow:
    """What was used, by settled exchanges. Dimensions that were not asked for are None: the id of
    the token, the group's name, the catalog's model ('' where there was none), the date as
    YYYY-MM-DD and the whole Unix hour. The times are sums over the `first_events` exchanges that
    had a first event.
    """

    key: str | None = None
    group: str | None = None
    model: str | None = None
    day: str | None = None
    hour: int | None = None
    requests: int
    errors: int
    estimated: int
    input_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    cache_write_1h_tokens: int
    output_tokens: int
    reasoning_tokens: int
    cost_micro: int
    first_events: int = 0
    first_event_us: int = 0
    total_us: int = 0


class Spend(NamedTuple):
    """Micro-units: in all, and of the day and month of UTC that are asked about."""

    total: int = 0
    day: int = 0
    month: int = 0


@dataclass(frozen=True, slots=True)
class SpendByHolder:
    """Who has spent anything: tokens by their ids, groups by their names."""

    tokens: Mapping[str, Spend]
    groups: Mapping[str, Spend]


_COLUMNS: Final[Mapping[Dimension, ColumnElement[Any]]] = {
    # Spoken as a literal: a server would take two parameters for two different expressions.
    Dimension.DAY: usage_hours.c.hour // literal(24, literal_execute=True),
    Dimension.HOUR: usage_hours.c.hour,
    Dimension.KEY: usage_hours.c.token_id,
    Dimension.GROUP: usage_hours.c.group_name,
    Dimension.MODEL: usage_hours.c.model,
}
"""In the order that rows are told apart in, time first."""


async def usage(
    database: Database,
    by: Sequence[Dimension] = (),
    *,
    since: int | None = None,
    until: int | None = None,
    token_id: str | None = None,
    group: str | None = None,
    model: str | None = None,
) -> list[UsageRow]:
    """The sums of the hours from `since` to before `until` (whole Unix hours) that match every
    filter given; with no dimension the one row of everything.

    In order of time where that is asked for, otherwise and within it the dearest first.
    """
    dimensions = {each: column for each, column in _COLUMNS.items() if each in by}
    hours = usage_hours.c
    counts = {name: sum_of(hours[name]).label(name) for name in COUNTS}
    asked = {hours.token_id: token_id, hours.group_name: group, hours.model: model}
    bounds = [column == value for column, value in asked.items() if value is not None]
    if since is not None:
        bounds.append(hours.hour >= since)
    if until is not None:
        bounds.append(hours.hour < until)
    times = [dimensions[each] for each in (Dimension.DAY, Dimension.HOUR) if each in dimensions]
    names = [column for column in dimensions.values() if column not in times]
    query = (
        select(*dimensions.values(), *counts.values())
        .where(*bounds)
        .group_by(*dimensions.values())
        .order_by(*times, counts["cost_micro"].desc(), counts["requests"].desc(), *names)
    )
    async with database.reader.connect() as connection:
        rows = await connection.execute(query)
    return [_row((*dimensions, *COUNTS), row) for row in rows]


async def load_spend(database: Database, now_us: int) -> SpendByHolder:
    """What was spent by all settled exchanges, and of that in the day and the month of UTC that
    `now_us` (Unix µs) is in: an exchange belongs to those that it started in.

    What an earlier run left open is among it only after the recorder's start.
    """
    midnight = (_EPOCH + timedelta(microseconds=now_us)).replace(
        hour=0, minute=0, second=0, microsecond=0
    )
    first = midnight.replace(day=1)
    spans = (
        (midnight, midnight + timedelta(days=1)),
        (first, (first + timedelta(days=31)).replace(day=1)),
    )
    sums = [sum_of(usage_hours.c.cost_micro)]
    for begin, end in spans:
        of_span = usage_hours.c.hour.between(_hour(begin), _hour(end) - 1)
        sums.append(sum_of(case((of_span, usage_hours.c.cost_micro), else_=0)))

    async with database.reader.connect() as connection:

        async def of_each(holder: ColumnElement[str]) -> dict[str, Spend]:
            rows = await connection.execute(
                select(holder, *sums).group_by(holder).having(sums[0] > 0)
            )
            return {name: Spend(*amounts) for name, *amounts in rows}

        return SpendByHolder(
            await of_each(usage_hours.c.token_id), await of_each(usage_hours.c.group_name)
        )


def _hour(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(microseconds=HOUR_US)


def _row(names: Sequence[str], values: Sequence[Any]) -> UsageRow:
    fields = dict(zip(names, values, strict=True))
    if Dimension.DAY in fields:
        fields[Dimension.DAY] = (_EPOCH + timedelta(days=fields[Dimension.DAY])).date().isoformat()
    return UsageRow(**fields)


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """What was used, by settled exchanges, as in `gateway.store.usage`."""

    requests: int = 0
    errors: int = 0
    input_tokens: int = 0
    cache_read_tokens: int = 0
    output_tokens: int = 0
    cost_micro: int = 0

    @property
    def cached_share(self) -> float | None:
        """Of the input tokens those that were read from a cache, from 0 to 1."""
        return self.cache_read_tokens / self.input_tokens if self.input_tokens else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics(Totals):
    """The same, and how long it took those that had a first event."""

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
