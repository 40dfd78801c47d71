"""Limits, budgets and recent usage of keys and groups, for pages. Costs are in micro-units, days
are of UTC.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from gateway.admin.operations import AdminOperations
from gateway.admin.units import WINDOW_TITLES
from gateway.console.charts import Bucket, Chart, Series, build_chart, short_number
from gateway.core.limits import BUDGETS, MICRO_PER_UNIT, BudgetWindow, Cost, Currency, Limits
from gateway.quota.limits import Holder, HolderKind, Quota
from gateway.store.log.usage import Dimension, UsageRow, usage

LIMIT_TITLES: Final[Mapping[str, str]] = {
    "requests_per_minute": "RPM",
    "tokens_per_minute": "TPM",
    "concurrent": "Max concurrency",
}
BUDGET_TITLES: Final[Mapping[str, str]] = {
    name: f"{WINDOW_TITLES[kind.window]} budget"
    + (" in USD" if kind.currency is Currency.USD else "")
    for name, kind in BUDGETS.items()
}

DAYS: Final = 30
"""Days of recent usage, today included."""


@dataclass(frozen=True, slots=True)
class BudgetRow:
    """A configured budget; running requests are not included."""

    title: str
    currency: Currency
    limit: int
    spent: int

    @property
    def percent(self) -> int:
        """Returns the percentage, rounded down, so that 100 is all of it; a budget of 0 is always
        spent."""
        return min(100, self.spent * 100 // self.limit) if self.limit else 100


@dataclass(frozen=True, slots=True)
class Spend:
    """The amounts spent in total, today and this month; running requests are not included."""

    total: Cost
    day: Cost
    month: Cost


@dataclass(frozen=True, slots=True)
class DailyUsage:
    """`date` is YYYY-MM-DD."""

    date: str
    requests: int = 0
    cost_micro: int = 0
    usd_micro: int = 0


def spend_of(quota: Quota, kind: HolderKind, id: str, now: int) -> Spend:
    """Returns what one holder of limits has spent; `now` is in Unix microseconds."""
    trackers = [quota.budget(kind, id, currency) for currency in Currency]
    windows = BudgetWindow.TOTAL, BudgetWindow.DAY, BudgetWindow.MONTH
    return Spend(*(Cost(*(each.spent(window, now) for each in trackers)) for window in windows))


def budget_rows(quota: Quota, holder: Holder, now: int) -> tuple[BudgetRow, ...]:
    """The configured budgets."""
    return tuple(
        BudgetRow(
            BUDGET_TITLES[status.budget.kind.name],
            status.budget.kind.currency,
            status.budget.limit,
            status.spent,
        )
        for status in quota.budget_statuses((holder,), now)
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
    by_date = {
        row.day: DailyUsage(row.day or "", row.requests, row.cost_micro, row.usd_micro)
        for row in rows
    }
    dates = [(start + timedelta(days=number)).date().isoformat() for number in range(DAYS)]
    return tuple(by_date.get(date, DailyUsage(date)) for date in dates)


async def usage_by_model(operations: AdminOperations, now: int, token_id: str) -> list[UsageRow]:
    """The usage of each model in the same days, most expensive first."""
    return await _usage(operations, Dimension.MODEL, _first_day(now), token_id)


def daily_chart(days: Sequence[DailyUsage], token_id: str) -> Chart:
    """The dollars of each day, or units where nothing has a price in dollars."""
    in_usd = any(day.usd_micro for day in days)
    amounts = [(day.usd_micro if in_usd else day.cost_micro) / MICRO_PER_UNIT for day in days]
    name = "USD" if in_usd else "Units"
    buckets = [Bucket(day.date[5:], _logs_url(day.date, token_id)) for day in days]
    series = [Series(name, "c1", amounts)]
    title, min_step = f"{name} by day, last {len(days)} days", 0.01 if in_usd else 1
    return build_chart(title, buckets, series, short_number, min_step=min_step)


def _logs_url(date: str, token_id: str) -> str:
    until = datetime.fromisoformat(date) + timedelta(days=1)
    return f"/console/logs?key={token_id}&since={date}&until={until:%Y-%m-%d}"


def _first_day(now: int) -> datetime:
    midnight = datetime.fromtimestamp(now // 1_000_000, UTC).replace(hour=0, minute=0, second=0)
    return midnight - timedelta(days=DAYS - 1)


async def _usage(
    operations: AdminOperations, by: Dimension, start: datetime, token_id: str
) -> list[UsageRow]:
    since = int(start.timestamp()) // 3600
    return await usage(operations.database, (by,), since=since, token_id=token_id)
