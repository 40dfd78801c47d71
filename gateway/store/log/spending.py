"""What keys and groups have spent: in total, by day, by hour, and lately by steps of five minutes;
and what end users and sessions have spent by day.

The clock may be wrong, so it is not asked: "lately" is the last hours in which there were requests.
All but the steps comes from the hourly sums, so the number of rows of `requests` does not matter.
Sums are as they were charged: requests that got other prices later have spent what they did before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from sqlalchemy import ColumnElement, Select, literal, or_, select, true
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.core.limits import DIMENSION_BUDGETS, FREE, Cost
from gateway.store.database import Database, fetch
from gateway.store.log.costs import charged_hours
from gateway.store.log.expressions import HOURS_OF_A_DAY, IS_RUNNING, sum_of
from gateway.store.log.pages import first_id
from gateway.store.log.retention import ROWS_KEPT_SINCE
from gateway.store.records import (
    BUDGET_DIMENSIONS,
    DAY_US,
    HOUR_US,
    STEP_US,
)
from gateway.store.schema import requests, tokens, usage_hours

LAST_DAYS: Final = 9
"""Days with requests of which the hours are loaded, and the month of the first of them: a week of
168 hours and a part of one touches nine."""

LAST_HOURS: Final = 8
"""Hours with requests of which the steps are loaded: five hours and a step touch seven."""


_HOUR: Final = usage_hours.c.hour
"""The hours in the order of their index."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(slots=True)
class Spend:
    """The amounts are by the start of their day, hour or step, in Unix microseconds."""

    total: Cost = FREE
    by_day: dict[int, Cost] = field(default_factory=dict)
    by_hour: dict[int, Cost] = field(default_factory=dict)
    by_step: dict[int, Cost] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SpendByHolder:
    """The spending of every holder that has any: tokens by id, groups by name."""

    tokens: Mapping[str, Spend]
    groups: Mapping[str, Spend]


async def load_spend(database: Database) -> SpendByHolder:
    """The cost of all settled exchanges, in as much detail as budgets need.

    An hour whose rows may have been deleted counts in its last step: never too early, so that
    nothing is forgotten. Exchanges that an earlier run left running are included only after the
    recorder's start.
    """
    async with database.reader.connect() as connection:
        kept_since = int(await connection.scalar(ROWS_KEPT_SINCE) or 0)
        holders = (
            (charged_hours.c.token_id, requests.c.token_id),
            (
                charged_hours.c.group_name,
                requests.c.group_name,
            ),
        )
        spent = [await _spend_by(connection, *columns, kept_since) for columns in holders]
    return SpendByHolder(*spent)


async def load_dimension_spend(
    database: Database, day: int, token_id: str | None = None
) -> list[tuple[str, str, str, Cost]]:
    """Dimension, key, value and what was spent on the UTC day that began then (Unix µs), where each
    value has a budget; of one key or of all."""
    spending: list[tuple[str, str, str, Cost]] = []
    # An expression, as SQLite would read all days in the order of the index of keys.
    key = requests.c.token_id + literal("", literal_execute=True)
    of_key = true() if token_id is None else requests.c.token_id == token_id
    for dimension in BUDGET_DIMENSIONS:
        names = [name for name, each in DIMENSION_BUDGETS.items() if each.dimension == dimension]
        limited = select(tokens.c.id).where(or_(*(tokens.c[name].is_not(None) for name in names)))
        ids = {id for (id,) in await fetch(database, limited) if token_id in (None, id)}
        if not ids:
            continue
        value, row = requests.c[dimension], requests.c
        of_day = row.id >= first_id(day), row.id < first_id(day + DAY_US)
        query = _sums(requests, key, value).where(*of_day, of_key, value.is_not(None), ~IS_RUNNING)
        spending += (
            (dimension, id, text, Cost(*cost))
            for id, text, *cost in await fetch(database, query)
            if id in ids
        )
    return spending


async def _spend_by(
    connection: AsyncConnection,
    of_hour: ColumnElement[str],
    of_row: ColumnElement[str],
    kept_since: int,
) -> dict[str, Spend]:
    hour = charged_hours.c.hour
    day = hour // HOURS_OF_A_DAY
    spend = {
        name: Spend(Cost(units, usd))
        for name, units, usd in await connection.execute(_sums(charged_hours, of_hour))
    }
    if not spend:
        return spend
    first_day = await _first_of_last(connection, _HOUR // HOURS_OF_A_DAY, LAST_DAYS)
    month = (_EPOCH + timedelta(days=first_day)).replace(day=1)
    query = _sums(charged_hours, of_hour, day).where(hour >= (month - _EPOCH).days * 24)
    for name, number, units, usd in await connection.execute(query):
        spend[name].by_day[number * DAY_US] = Cost(units, usd)
    query = _sums(charged_hours, of_hour, hour).where(hour >= first_day * 24)
    first_hour = await _first_of_last(connection, _HOUR, LAST_HOURS)
    for name, number, units, usd in await connection.execute(query):
        spend[name].by_hour[number * HOUR_US] = Cost(units, usd)
        if first_hour <= number < kept_since:
            spend[name].by_step[(number + 1) * HOUR_US - STEP_US] = Cost(units, usd)
    step = requests.c.started_at // literal(STEP_US, literal_execute=True)
    query = _sums(requests, of_row, step).where(
        requests.c.id >= first_id(max(first_hour, kept_since) * HOUR_US), ~IS_RUNNING
    )
    for name, number, units, usd in await connection.execute(query):
        spend[name].by_step[number * STEP_US] = Cost(units, usd)
    return spend


def _sums(table: Any, *keys: ColumnElement[Any]) -> Select[Any]:
    units, usd = sum_of(table.c.cost_micro), sum_of(table.c.usd_micro)
    return select(*keys, units, usd).group_by(*keys).having(or_(units > 0, usd > 0))


async def _first_of_last(
    connection: AsyncConnection, number: ColumnElement[int], count: int
) -> int:
    """The first of the last `count` hours or days that have any requests."""
    last = select(number).distinct().order_by(number.desc()).limit(count)
    return min((await connection.execute(last)).scalars(), default=0)
