"""The limits of a key, a group or the gateway.

Money is in micro-units: a unit is the price of one uncached input token of a model with multiplier
1 for a group with multiplier 1.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Final

from gateway.core.value import value

MICRO_PER_UNIT: Final = 1_000_000


@value(kw_only=True)
class Limits:
    """None is no limit; 0 rejects every request.

    Requests and tokens count in a sliding minute; `concurrent` limits running requests. Budgets are
    in micro-units: `budget` is the total, the others are per day and month of UTC.
    """

    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    concurrent: int | None = None
    budget: int | None = None
    budget_day: int | None = None
    budget_month: int | None = None

    def __bool__(self) -> bool:
        """Whether any limit is set."""
        return self != UNLIMITED

    @property
    def has_budget(self) -> bool:
        budgets = self.budget, self.budget_day, self.budget_month
        return any(budget is not None for budget in budgets)


UNLIMITED: Final = Limits()

LIMIT_NAMES: Final = tuple(field.name for field in fields(Limits))
