"""Limits and budgets of keys and groups, for pages. Costs are in micro-units."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from gateway.admin.units import DIMENSION_BUDGET_TITLES, WINDOW_TITLES
from gateway.core.limits import BUDGETS, DIMENSION_BUDGETS, BudgetWindow, Cost, Currency, Limits
from gateway.quota.limits import Holder, HolderKind, Quota
from gateway.store.records import Token

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
DIMENSION_TITLES: Final[Mapping[str, str]] = {
    name: DIMENSION_BUDGET_TITLES[name] + (" in USD" if kind.currency is Currency.USD else "")
    for name, (_, kind) in DIMENSION_BUDGETS.items()
}


@dataclass(frozen=True, slots=True)
class BudgetRow:
    """A configured budget; running requests are not included. `resets_at` is in Unix microseconds,
    None: never."""

    title: str
    currency: Currency
    limit: int
    spent: int
    resets_at: int | None = None

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
            status.resets_at,
        )
        for status in quota.budget_statuses((holder,), now)
    )


def limit_rows(limits: Limits) -> Iterator[tuple[str, int]]:
    """Titles and values of the other configured limits."""
    for name, title in LIMIT_TITLES.items():
        if (limit := getattr(limits, name)) is not None:
            yield title, limit


def dimension_rows(token: Token) -> Iterator[tuple[str, int, Currency]]:
    """Titles, limits and currencies of the budgets of each end user and each session."""
    for name, (_, kind) in DIMENSION_BUDGETS.items():
        if (limit := getattr(token, name)) is not None:
            yield DIMENSION_BUDGET_TITLES[name], limit, kind.currency
