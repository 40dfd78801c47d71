"""Limits and budgets as pages show them: how much there may be, and what of it is spent. It must
not know whose they are beyond a kind and an id.

Money is in micro-units.

What was used lately, by the day and by the model, for a table and a chart. It must not know what
a unit costs.

Money is in micro-units, days are those of UTC.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from gateway.admin.operations import AdminOperations
from gateway.console.charts import Chart, Colour, Series, build_chart, short_number
from gateway.core.limits import MICRO_PER_UNIT, Limits
from gateway.quota.limits import HolderKind, Quota
from gateway.store.usage import Dimension, UsageRow, usage

LIMIT_TITLES: Final[Mapping[str, str]] = {
    "requests_per_minute": "Requests a minute",
    "tokens_per_minute": "Tokens a minute",
    "concurrent": "Requests at once",
}
BUDGET_TITLES: Final[Mapping[str, str]] = {
    "budget": "Budget in all",
    "budget_day": "Budget a day",
    "budget_month": "Budget a month",
}
"""Names of limits and their titles."""


@dataclass(frozen=True, slots=True)
class BudgetRow:
    """A budget that is set."""

    title: str
    limit: int
    spent: int

    @property
    def percent(self) -> int:
        """Whole and rounded down, so that 100 is all of it; of a budget of 0 everything is gone."""
        return min(100, self.spent * 100 // self.limit) if self.limit else 100


@dataclass(frozen=True, slots=True)
class Spend:
    """What is spent in all, today and this month of UTC; what still runs is not in it."""

    total: int
    day: int
    month: int


def spend_of(quota: Quota, kind: HolderKind, id: str, now: int) -> Spend:
    """By one holder of limits; `now` is in Unix microseconds."""
    return Spend(*quota.budget(kind, id).spent(now))


def budget_rows(limits: Limits, spent: Spend) -> tuple[BudgetRow, ...]:
    """The budgets that are set."""
    amounts = {"budget": spent.total, "budget_day": spent.day, "budget_month": spent.month}
    return tuple(
        BudgetRow(title, most, amounts[name])
        for name, title in BUDGET_TITLES.items()
        if (most := getattr(limits, name)) is not None
    )


def limit_rows(limits: Limits) -> Iterator[tuple[str, int]]:
    """The titles and values of the other limits that are set."""
    for name, title in LIMIT_TITLES.items():
        most = getattr(limits, name)
        if most is not None:
            yield title, most


DAYS: Final = 30
"""Today is among them."""


@dataclass(frozen=True, slots=True)
class DailyUsage:
    """`date` is YYYY-MM-DD."""

    date: str
    requests: int = 0
    cost_micro: int = 0


async def daily_usage(desk: AdminOperations, now: int, token_id: str) -> tuple[DailyUsage, ...]:
    """What a key has used on each of the last days, the earliest first; `now` is in Unix
    microseconds."""
    first = _first(now)
    rows = await usage(desk.database, (Dimension.DAY,), since=_hour(first), token_id=token_id)
    used = {row.day: DailyUsage(row.day or "", row.requests, row.cost_micro) for row in rows}
    dates = [(first + timedelta(days=number)).date().isoformat() for number in range(DAYS)]
    return tuple(used.get(date, DailyUsage(date)) for date in dates)


async def usage_by_model(desk: AdminOperations, now: int, token_id: str) -> list[UsageRow]:
    """What a key has used of each model in those days, the dearest first."""
    return await usage(
        desk.database, (Dimension.MODEL,), since=_hour(_first(now)), token_id=token_id
    )


def daily_chart(days: Sequence[DailyUsage]) -> Chart:
    """The units of each day."""
    units = Series("Units", Colour.MAIN, [day.cost_micro / MICRO_PER_UNIT for day in days])
    labels = [day.date[5:] for day in days]
    return build_chart(f"Units by day, last {len(days)} days", labels, [units], short_number)


def _first(now: int) -> datetime:
    """When the first of the last days began."""
    midnight = datetime.fromtimestamp(now // 1_000_000, UTC).replace(hour=0, minute=0, second=0)
    return midnight - timedelta(days=DAYS - 1)


def _hour(moment: datetime) -> int:
    return int(moment.timestamp()) // 3600
