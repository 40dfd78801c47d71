"""The price of a model for a group, and the cost of a request.

The arithmetic is exact: multipliers are decimals, products are integers over one denominator, and
only the sum is rounded, half up, to micro-units.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Context, Decimal
from fractions import Fraction
from typing import Final, Self

from gateway.config.schema import Model
from gateway.core.events import Usage
from gateway.core.limits import MICRO_PER_UNIT

MAX_MULTIPLIER: Final = 1_000_000
"""Of models, groups and rates."""

MIN_MULTIPLIER: Final = Decimal("1e-45")
"""A smaller one counts as 0, because it cannot result in a micro-unit."""

MAX_COST: Final = 10**14
"""Micro-units of one request, so that sums fit 64 bits: a million tokens at 100 units each."""

_REQUIRED_RATES: Final = ("model", "group")

_DECIMAL_CONTEXT: Final = Context(prec=28)
"""More digits than a float or a group's multiplier has."""


@dataclass(frozen=True, slots=True)
class Price:
    """Micro-units for one token of each kind and one web search, over a denominator; `half` is half
    of it.
    `description` lists the multipliers, and the rates that are not 1."""

    denominator: int
    half: int
    description: str
    fresh: int
    output: int
    cache_read: int
    cache_write: int
    cache_write_1h: int
    search: int

    @classmethod
    def for_model(cls, model: Model, group_multiplier: str, searches: float = 0.0) -> Self:
        """`searches` is the price of 1,000 web searches in units, without the group's multiplier.
        Raises ValueError for a multiplier that is not a number from 0 to `MAX_MULTIPLIER`."""
        rates = model.rates
        numbers = {
            "model": _parse_multiplier(repr(model.multiplier)),
            "group": _parse_multiplier(group_multiplier),
            "completion": _parse_multiplier(repr(rates.completion)),
            "cache read": _parse_multiplier(repr(rates.cache_read)),
            "cache write": _parse_multiplier(repr(rates.cache_write)),
            "cache write 1h": _parse_multiplier(repr(rates.cache_write_1h)),
        }
        model_multiplier, group, *factors = map(Fraction, numbers.values())
        fresh = model_multiplier * group * MICRO_PER_UNIT
        search_price = _parse_multiplier(repr(searches))
        search = Fraction(search_price) * group * MICRO_PER_UNIT / 1000
        prices = [fresh, *(fresh * factor for factor in factors), search]
        half = math.lcm(*(price.denominator for price in prices))
        description = ", ".join(
            f"{name} {_format_multiplier(number)}"
            for name, number in numbers.items()
            if number != 1 or name in _REQUIRED_RATES
        )
        if searches:
            description += f", 1000 searches {_format_multiplier(search_price)}"
        return cls(2 * half, half, description, *(int(price * 2 * half) for price in prices))

    def cost(self, usage: Usage) -> int:
        """Micro-units, from 0 to `MAX_COST`."""
        return self._round(
            usage.fresh_input_tokens * self.fresh
            + usage.cache_read_tokens * self.cache_read
            + (usage.cache_write_tokens - usage.cache_write_1h_tokens) * self.cache_write
            + usage.cache_write_1h_tokens * self.cache_write_1h
            + usage.output_tokens * self.output
            + usage.web_searches * self.search
        )

    def input_cost(self, tokens: int) -> int:
        """The cost of uncached input tokens, in micro-units."""
        return self._round(tokens * self.fresh)

    def _round(self, numerator: int) -> int:
        return min(max(0, (numerator + self.half) // self.denominator), MAX_COST)


def _parse_multiplier(text: str) -> Decimal:
    try:
        number = _DECIMAL_CONTEXT.create_decimal(text)
        if 0 <= number <= MAX_MULTIPLIER:
            return number if number >= MIN_MULTIPLIER else Decimal(0)
    except ArithmeticError:
        raise ValueError(f"not a number: {text!r}") from None
    raise ValueError(f"a multiplier is from 0 to {MAX_MULTIPLIER:,}, not {text}")


def _format_multiplier(number: Decimal) -> str:
    """1 and not 1.0, 100 and not 1E+2, but 1E-9."""
    normalized = number.normalize()
    return f"{normalized:f}" if normalized.adjusted() > 0 else str(normalized)
