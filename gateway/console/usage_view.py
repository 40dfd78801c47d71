"""Limits, budgets and recent usage of keys and groups, for pages. Costs are in micro-units, days
are of UTC.
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
    "requests_per_minute": "RPM",
    "tokens_per_minute": "TPM",
    "concurrent": "Max concurrency",
}
BUDGET_TITLES: Final[Mapping[str, str]] = {
    "budget": "Total budget",
    "budget_day": "Daily budget",
    "budget_month": "Monthly budget",
}

DAYS: Final = 30
"""Days of recent usage, today included."""


@dataclass(frozen=True, slots=True)
class BudgetRow:
    """A configured budget."""

    title: str
    limit: int
    spent: int

    @property
    def percent(self) -> int:
        """Rounded down, so that 100 is all of it; a budget of 0 is always spent."""
        return min(100, self.spent * 100 // self.limit) if self.limit else 100


@dataclass(frozen=True, slots=True)
class Spend:
    """In total, today and this month; running requests are not included."""

    total: int
    day: int
    month: int


@dataclass(frozen=True, slots=True)
class DailyUsage:
    """`date` is YYYY-MM-DD."""

    date: str
    requests: int = 0
    cost_micro: int = 0


def spend_of(quota: Quota, kind: HolderKind, id: str, now: int) -> Spend:
    """By one holder of limits; `now` is in Unix microseconds."""
    return Spend(*quota.budget(kind, id).spent(now))


def budget_rows(limits: Limits, spent: Spend) -> tuple[BudgetRow, ...]:
    """The configured budgets."""
    amounts = {"budget": spent.total, "budget_day": spent.day, "budget_month": spent.month}
    return tuple(
        BudgetRow(title, limit, amounts[name])
        for name, title in BUDGET_TITLES.items()
        if (limit := getattr(limits, name)) is not None
    )


def limit_rows(limits: Limits) -> Iterator[tuple[str, int]]:
    """Titles and values of the other configured limits."""
    for name, title in LIMIT_TITLES.items():
        if (limit := getattr(limits, name)) is not None:
            yield title, limit


async def daily_usage(
    operations: AdminOperations, now: int, token_id: str
) -> tuple[DailyUsage, ...]:
    """The usage of a key on each of the last days, oldest first; `now` is in Unix microseconds."""
    start = _first_day(now)
    rows = await _usage(operations, Dimension.DAY, start, token_id)
    by_date = {row.day: DailyUsage(row.day or "", row.requests, row.cost_micro) for row in rows}
    dates = [(start + timedelta(days=number)).date().isoformat() for number in range(DAYS)]
    return tuple(by_date.get(date, DailyUsage(date)) for date in dates)


async def usage_by_model(operations: AdminOperations, now: int, token_id: str) -> list[UsageRow]:
    """The usage of each model in the same days, most expensive first."""
    return await _usage(operations, Dimension.MODEL, _first_day(now), token_id)


def daily_chart(days: Sequence[DailyUsage]) -> Chart:
    """The units of each day."""
    units = Series("Units", Colour.MAIN, [day.cost_micro / MICRO_PER_UNIT for day in days])
    labels = [day.date[5:] for day in days]
    return build_chart(f"Units by day, last {len(days)} days", labels, [units], short_number)


def _first_day(now: int) -> datetime:
    midnight = datetime.fromtimestamp(now // 1_000_000, UTC).replace(hour=0, minute=0, second=0)
    return midnight - timedelta(days=DAYS - 1)


async def _usage(
    operations: AdminOperations, by: Dimension, start: datetime, token_id: str
) -> list[UsageRow]:
    since = int(start.timestamp()) // 3600
    return await usage(operations.database, (by,), since=since, token_id=token_id)
