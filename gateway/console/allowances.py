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

COUNTS: Final[Mapping[str, str]] = {
    "requests_per_minute": "Requests a minute",
    "tokens_per_minute": "Tokens a minute",
    "concurrent": "Requests at once",
}
BUDGETS: Final[Mapping[str, str]] = {
    "budget": "Budget in all",
    "budget_day": "Budget a day",
    "budget_month": "Budget a month",
}
"""Names of limits and their titles."""


@dataclass(frozen=True, slots=True)
class Budget:
    """A budget that is set."""

    title: str
    most: int
    spent: int

    @property
    def percent(self) -> int:
        """Whole and rounded down, so that 100 is all of it; of a budget of 0 everything is gone."""
        return min(100, self.spent * 100 // self.most) if self.most else 100


@dataclass(frozen=True, slots=True)
class Spent:
    """What is spent in all, today and this month of UTC; what still runs is not in it."""

    total: int
    day: int
    month: int


def spent_by(quota: Quota, kind: HolderKind, id: str, now: int) -> Spent:
    """By one holder of limits; `now` is in Unix microseconds."""
    return Spent(*quota.purse(kind, id).spent(now))


def budgets_of(limits: Limits, spent: Spent) -> tuple[Budget, ...]:
    """The budgets that are set."""
    amounts = {"budget": spent.total, "budget_day": spent.day, "budget_month": spent.month}
    return tuple(
        Budget(title, most, amounts[name])
        for name, title in BUDGETS.items()
        if (most := getattr(limits, name)) is not None
    )


def counts_of(limits: Limits) -> Iterator[tuple[str, int]]:
    """The titles and values of the other limits that are set."""
    for name, title in COUNTS.items():
        most = getattr(limits, name)
        if most is not None:
            yield title, most
