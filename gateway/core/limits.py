"""What one holder of an allowance may use: a key, a group, the whole gateway. It must not know who
counts it, nor what anything costs.

Money is in micro-units: a unit is what one fresh input token of a model with multiplier 1 costs a
group with multiplier 1, and a million micro-units are one unit.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Final

from gateway.core.value import value

MICRO_PER_UNIT: Final = 1_000_000
"""Micro-units in a unit."""


@value(kw_only=True)
class Limits:
    """None is no limit; 0 lets nothing pass.

    Requests and tokens count in a sliding minute, `concurrent` requests at any moment. Budgets are
    in micro-units: `budget` in all, the others in a day or a month of UTC.
    """

    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    concurrent: int | None = None
    budget: int | None = None
    budget_day: int | None = None
    budget_month: int | None = None

    def __bool__(self) -> bool:
        """Whether there is any."""
        return self != UNLIMITED


UNLIMITED: Final = Limits()

LIMIT_NAMES: Final = tuple(field.name for field in fields(Limits))
"""The names of all limits, in their order."""
