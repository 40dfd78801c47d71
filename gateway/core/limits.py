"""The limits of a key, a group or the gateway, and what a request costs.

Money is in two currencies, units and US dollars, each counted in millionths of its own. A unit is
the price of one uncached input token of a model with multiplier 1 for a group with multiplier 1.
"""

from __future__ import annotations

from dataclasses import fields
from operator import attrgetter
from typing import Final, NamedTuple

from gateway.core.value import FastStrEnum, value

MICRO_PER_UNIT: Final = 1_000_000
"""Millionths of a unit, also of a dollar."""


class Currency(FastStrEnum):
    UNITS = "units"
    USD = "usd"


class Cost(NamedTuple):
    """A cost in micro-units and in millionths of a dollar: an amount for each `Currency`, in its
    order."""

    units: int = 0
    usd: int = 0


FREE: Final = Cost()


class BudgetWindow(FastStrEnum):
    """The period of a budget. Days and months are those of UTC; five hours and a week end now."""

    TOTAL = "total"
    FIVE_HOURS = "5h"
    DAY = "day"
    WEEK = "week"
    MONTH = "month"


@value(kw_only=True)
class Limits:
    """Limits of a holder: None is no limit; 0 rejects every request.

    Requests and tokens count in a sliding minute; `concurrent` limits running requests. Budgets are
    in millionths: of units, those with `usd` of dollars; `budget` and `budget_usd` are totals, the
    others are per `BudgetWindow`.
    """

    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    concurrent: int | None = None
    budget: int | None = None
    budget_5h: int | None = None
    budget_day: int | None = None
    budget_week: int | None = None
    budget_month: int | None = None
    budget_usd: int | None = None
    budget_usd_5h: int | None = None
    budget_usd_day: int | None = None
    budget_usd_week: int | None = None
    budget_usd_month: int | None = None

    def __bool__(self) -> bool:
        """Whether any limit is set."""
        return self != UNLIMITED

    @property
    def has_budget(self) -> bool:
        return _budget_limits(self) != _NO_BUDGETS


UNLIMITED: Final = Limits()

LIMIT_NAMES: Final = tuple(field.name for field in fields(Limits))


class BudgetKind(NamedTuple):
    """`name` is a field of `Limits`."""

    name: str
    currency: Currency
    window: BudgetWindow


BUDGETS: Final = {
    name: BudgetKind(name, currency, window)
    for currency in Currency
    for window in BudgetWindow
    for prefix in ("budget" if currency is Currency.UNITS else "budget_usd",)
    for name in (prefix if window is BudgetWindow.TOTAL else f"{prefix}_{window}",)
}
"""The budgets by name, budgets in units first."""


_budget_limits = attrgetter(*BUDGETS)
_NO_BUDGETS: Final = (None,) * len(BUDGETS)


class DimensionBudget(NamedTuple):
    """A budget of each value that the requests of a key state for a `dimension`."""

    dimension: str
    kind: BudgetKind


DIMENSION_BUDGETS: Final = {
    "budget_day_per_user": DimensionBudget("end_user", BUDGETS["budget_day"]),
    "budget_usd_day_per_user": DimensionBudget("end_user", BUDGETS["budget_usd_day"]),
    "budget_day_per_session": DimensionBudget("session", BUDGETS["budget_day"]),
    "budget_usd_day_per_session": DimensionBudget("session", BUDGETS["budget_usd_day"]),
}
"""By the name of the key's setting."""

BUDGET_SETTINGS: Final = BUDGETS | {name: kind for name, (_, kind) in DIMENSION_BUDGETS.items()}
"""The kind of every budget that can be set."""


class Budget(NamedTuple):
    """A budget that is set; its limit is in millionths of its currency."""

    kind: BudgetKind
    limit: int


Budgets = tuple[Budget, ...]


def budgets_of(limits: Limits) -> tuple[Budgets, Budgets]:
    """Returns the budgets that are set, for each `Currency` in its order."""
    budgets = [
        Budget(kind, limit)
        for kind, limit in zip(BUDGETS.values(), _budget_limits(limits), strict=True)
        if limit is not None
    ]
    in_units, in_usd = (
        tuple(budget for budget in budgets if budget.kind.currency is currency)
        for currency in Currency
    )
    return in_units, in_usd
