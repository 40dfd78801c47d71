"""The prices of a model for a group, in units and in US dollars, and the cost of a request.

The arithmetic is exact: prices are decimals, products are integers over one denominator, and only
the sum is rounded, half up, to millionths. The two currencies are independent of each other: one is
never derived from the rounded other.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from fractions import Fraction
from typing import Final, Self

from gateway.config.limits import Money, TokenPrices
from gateway.config.schema import Model
from gateway.core.events import Usage
from gateway.core.limits import MICRO_PER_UNIT, Cost

MAX_MULTIPLIER: Final = 1_000_000
"""The largest multiplier of models, groups, rates and prices."""

MIN_MULTIPLIER: Final = Decimal("1e-45")
"""A smaller one counts as 0, because it cannot result in a millionth."""

MAX_COST: Final = 10**14
"""Millionths of one request, so that sums fit 64 bits: a million tokens at 100 units each."""

_REQUIRED_RATES: Final = ("model", "group")

_DECIMAL_CONTEXT: Final = Context(prec=28)
"""More digits than a float or a group's multiplier has."""

_NO_MONEY: Final = Money()


@dataclass(frozen=True, slots=True)
class Rates:
    """Millionths of a currency for one token of each kind and one web search, over a denominator;
    `half` is half of it."""

    denominator: int
    half: int
    fresh: int
    output: int
    cache_read: int
    cache_write: int
    cache_write_1h: int
    search: int

    @classmethod
    def exact(cls, prices: Sequence[Fraction]) -> Self:
        """`prices` are in the currency, in the order of the fields."""
        prices = [price * MICRO_PER_UNIT for price in prices]
        half = math.lcm(*(price.denominator for price in prices))
        return cls(2 * half, half, *(int(price * 2 * half) for price in prices))

    def cost(self, usage: Usage) -> int:
        """Millionths, from 0 to `MAX_COST`."""
        return self.round(
            usage.fresh_input_tokens * self.fresh
            + usage.cache_read_tokens * self.cache_read
            + (usage.cache_write_tokens - usage.cache_write_1h_tokens) * self.cache_write
            + usage.cache_write_1h_tokens * self.cache_write_1h
            + usage.output_tokens * self.output
            + usage.web_searches * self.search
        )

    def round(self, numerator: int) -> int:
        return min(max(0, (numerator + self.half) // self.denominator), MAX_COST)


@dataclass(frozen=True, slots=True)
class Price:
    """`usd` is None where nothing has a price in dollars. `description` lists the multipliers, with
    the rates that are not 1, and after a semicolon the prices in dollars."""

    units: Rates
    usd: Rates | None
    description: str

    @classmethod
    def for_model(cls, model: Model, group_multiplier: str, money: Money = _NO_MONEY) -> Self:
        """Raises ValueError for a multiplier that is not a number from 0 to `MAX_MULTIPLIER`."""
        rates = model.rates
        multipliers = {
            "model": _parse_number(model.multiplier),
            "group": _parse_multiplier(group_multiplier),
            "completion": _parse_number(rates.completion),
            "cache read": _parse_number(rates.cache_read),
            "cache write": _parse_number(rates.cache_write),
            "cache write 1h": _parse_number(rates.cache_write_1h),
        }
        searches = _parse_number(money.web_searches)
        of_model, group, *factors = map(Fraction, multipliers.values())
        fresh = of_model * group
        units = [fresh, *(fresh * factor for factor in factors), Fraction(searches) * group / 1000]
        shown = {
            name: number
            for name, number in multipliers.items()
            if number != 1 or name in _REQUIRED_RATES
        }
        if searches:
            shown["1000 searches"] = searches
        usd, usd_description = _usd_prices(model, group, units, money)
        return cls(
            Rates.exact(units),
            Rates.exact(usd) if any(usd) else None,
            _describe(shown) + usd_description,
        )

    def cost(self, usage: Usage) -> Cost:
        return Cost(self.units.cost(usage), self.usd.cost(usage) if self.usd else 0)

    def input_cost(self, tokens: int) -> Cost:
        """The cost of uncached input tokens."""
        units, usd = self.units, self.usd
        return Cost(units.round(tokens * units.fresh), usd.round(tokens * usd.fresh) if usd else 0)


def token_costs(model: Model, group_multiplier: str, money: Money) -> dict[str, float]:
    """Returns the US dollars for a token of each kind, as clients show them; empty where nothing
    has a price in dollars. What is billed is exact."""
    prices: dict[str, float] = {}
    factor, group = 1.0, float(group_multiplier)
    if model.price is not None:
        prices, factor = _token_prices(model.price), group / 1_000_000
    elif money.currency == "USD" and money.unit_price is not None:
        rates, factor = model.rates, money.unit_price * model.multiplier * group
        prices = {
            "input": 1.0,
            "output": rates.completion,
            "cache read": rates.cache_read,
            "cache write": rates.cache_write,
        }
    return {kind: price * factor for kind, price in prices.items()}


def _usd_prices(
    model: Model, group: Fraction, units: Sequence[Fraction], money: Money
) -> tuple[list[Fraction], str]:
    """Returns the prices in the order of `Rates`, and what the row says of them. A model without
    prices, and searches without one, cost what their units do."""
    unit_price = Decimal(0)
    if money.currency == "USD" and money.unit_price is not None:
        unit_price = _parse_number(money.unit_price, most=None)
    prices, texts = [price * Fraction(unit_price) for price in units], []
    if model.price is not None:
        numbers = {name: _parse_number(each) for name, each in _token_prices(model.price).items()}
        prices[:-1] = [Fraction(number) * group / 1_000_000 for number in numbers.values()]
        texts.append(f"USD per million tokens: {_describe(numbers)}")
    elif unit_price:
        texts.append(f"USD per million units: {_format_number(unit_price * 1_000_000)}")
    if money.web_search_price is not None:
        search_price = _parse_number(money.web_search_price)
        prices[-1] = Fraction(search_price) * group / 1000
        texts.append(f"USD per 1000 searches: {_format_number(search_price)}")
    return prices, "".join(f"; {text}" for text in texts)


def _token_prices(price: TokenPrices) -> dict[str, float]:
    """Returns the price of each kind of token, in the order of `Rates`."""
    cache_write = price.input if price.cache_write is None else price.cache_write
    return {
        "input": price.input,
        "output": price.output,
        "cache read": price.input if price.cache_read is None else price.cache_read,
        "cache write": cache_write,
        "cache write 1h": (cache_write if price.cache_write_1h is None else price.cache_write_1h),
    }


def _describe(numbers: Mapping[str, Decimal]) -> str:
    return ", ".join(f"{name} {_format_number(number)}" for name, number in numbers.items())


def _parse_number(number: float, most: int | None = MAX_MULTIPLIER) -> Decimal:
    """A number of the configuration, as its digits say."""
    return _parse_multiplier(repr(number), most)


def _parse_multiplier(text: str, most: int | None = MAX_MULTIPLIER) -> Decimal:
    try:
        number = _DECIMAL_CONTEXT.create_decimal(text)
        if number >= 0 and (most is None or number <= most):
            return number if number >= MIN_MULTIPLIER else Decimal(0)
    except ArithmeticError:
        raise ValueError(f"not a number: {text!r}") from None
    raise ValueError(f"a multiplier is from 0 to {MAX_MULTIPLIER:,}, not {text}")


def _format_number(number: Decimal) -> str:
    """1 and not 1.0, 100 and not 1E+2, but 1E-9."""
    normalized = number.normalize()
    return f"{normalized:f}" if normalized.adjusted() > 0 else str(normalized)
