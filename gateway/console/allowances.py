"""Limits and budgets as pages show them: how much there may be, and what of it is spent. It must
not know whose they are beyond a kind and an id.

Money is in micro-units.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from gateway.core.limits import Limits
from gateway.quota.limits import HolderKind, Quota

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
