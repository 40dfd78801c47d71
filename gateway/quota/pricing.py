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
from typing import Final, NamedTuple, Self

from gateway.config.limits import LongInputPrices, Money, TokenPrices
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
_NO_CHANNELS: Final[Mapping[str, TokenPrices]] = {}
_ONE: Final = Fraction(1)
_BASE_TIERS: Final = (None, "default", "standard", "standard_only")


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


class UsdPrices(NamedTuple):
    """US dollars of requests with `least_input` tokens of input or more, in the order of `Rates`,
    and what the row says of them."""

    least_input: int
    prices: Sequence[Fraction]
    description: str

    def cost(self, usage: Usage, factor: Fraction = _ONE) -> Fraction:
        """Dollars; `factor` is that of the service tier, which searches do not have."""
        hour = usage.cache_write_1h_tokens
        tokens = (
            *(usage.fresh_input_tokens, usage.output_tokens, usage.cache_read_tokens),
            *(usage.cache_write_tokens - hour, hour),
        )
        *prices, search = self.prices
        return factor * sum(map(Fraction.__mul__, prices, tokens)) + usage.web_searches * search


@dataclass(frozen=True, slots=True)
class PriceBook:
    """The prices in dollars of a model that depend on the request: `levels` by the length of its
    input, the least first, `factors` by service tier, and `channels` that have their own."""

    levels: Sequence[UsdPrices]
    factors: Mapping[str, Decimal]
    channels: Mapping[str, PriceBook]

    def usd(self, usage: Usage, tier: str | None) -> tuple[Fraction, str]:
        """Dollars of one upstream request, and what the row says of their prices."""
        size, text = usage.input_tokens, ""
        level = next(each for each in reversed(self.levels) if size >= each.least_input)
        factor = self.factors.get(tier or "")
        if tier == "fast" and factor is None:
            factor = self.factors.get("priority")
        if factor is not None:
            text = f"; service tier {tier}: times {_format_number(factor)}"
        elif self.factors and tier not in _BASE_TIERS:
            text = f"; service tier {ascii(tier)[:40]} has no factor"
        dollars = level.cost(usage, _ONE if factor is None else Fraction(factor))
        return dollars, level.description + text

    def highest_usd(self, usage: Usage) -> Fraction:
        """Dollars that requests with this usage together cost at most, whichever channel and
        service tier serves them, and with up to twice as much input, which may be an estimate."""
        possible = [
            [*(price * Fraction(factor) for price in level.prices[:-1]), level.prices[-1]]
            for book in (self, *self.channels.values())
            for level in book.levels
            if 2 * usage.input_tokens >= level.least_input
            for factor in (Decimal(1), *book.factors.values())
        ]
        return UsdPrices(0, [*map(max, *possible, possible[0])], "").cost(usage)


class Part(NamedTuple):
    """What one upstream request used, and the prices and service tier that apply to it."""

    usage: Usage
    book: PriceBook
    tier: str | None


@dataclass(frozen=True, slots=True)
class Price:
    """`usd` is None where nothing has a price in dollars. `description` lists the multipliers, with
    the rates that are not 1, and after a semicolon the prices in dollars. `book`: these depend on
    more than the model."""

    units: Rates
    usd: Rates | None
    description: str
    book: PriceBook | None = None

    @classmethod
    def for_model(
        cls,
        model: Model,
        group_multiplier: str,
        money: Money = _NO_MONEY,
        channels: Mapping[str, TokenPrices] = _NO_CHANNELS,
    ) -> Self:
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

        def build_book(price: TokenPrices | None, channels: Mapping[str, PriceBook]) -> PriceBook:
            if price is None:
                return PriceBook(
                    [UsdPrices(0, *_usd_prices(None, group, units, money))], {}, channels
                )
            base = {name: _parse_number(each) for name, each in _token_prices(price).items()}
            levels = [UsdPrices(0, *_usd_prices(base, group, units, money))]
            for long in price.above:
                scope = f" of requests with more than {long.tokens} input tokens"
                usd = _usd_prices(_long_prices(base, long), group, units, money, scope)
                levels.append(UsdPrices(long.tokens + 1, *usd))
            factors: dict[str, Decimal] = {
                tier: _parse_number(each) for tier, each in price.service_tiers.items()
            }
            return PriceBook(levels, factors, channels)

        own = {channel: build_book(price, {}) for channel, price in channels.items()}
        book = build_book(model.price, own)
        _, usd, usd_description = book.levels[0]
        return cls(
            Rates.exact(units),
            Rates.exact(usd) if any(usd) else None,
            _describe(shown) + usd_description,
            book if own or len(book.levels) > 1 or book.factors else None,
        )

    def cost(self, usage: Usage) -> Cost:
        return Cost(self.units.cost(usage), self.usd.cost(usage) if self.usd else 0)

    def highest_cost(self, usage: Usage) -> Cost:
        """What has to be reserved for this usage, before all is known that its price depends on."""
        if self.book is None:
            return self.cost(usage)
        return Cost(self.units.cost(usage), _round_usd(self.book.highest_usd(usage)))

    def cost_of(self, parts: Sequence[Part]) -> tuple[Cost, str]:
        """The cost of a reply's upstream requests together, and the text that their row has."""
        usage = sum((part.usage for part in parts), Usage())
        costs, texts = zip(*(part.book.usd(part.usage, part.tier) for part in parts), strict=True)
        cost = Cost(self.units.cost(usage), _round_usd(sum(costs, Fraction(0))))
        return cost, self.description.partition(";")[0] + "".join(dict.fromkeys(texts))

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


def _round_usd(dollars: Fraction) -> int:
    return min(max(0, math.floor(dollars * MICRO_PER_UNIT + Fraction(1, 2))), MAX_COST)


def _usd_prices(
    numbers: Mapping[str, Decimal] | Mapping[str, Fraction] | None,
    group: Fraction,
    units: Sequence[Fraction],
    money: Money,
    scope: str = "",
) -> tuple[list[Fraction], str]:
    """Returns the prices in the order of `Rates`, and what the row says of them. A model without
    prices, and searches without one, cost what their units do. `scope`: what the prices are for."""
    unit_price = Decimal(0)
    if money.currency == "USD" and money.unit_price is not None:
        unit_price = _parse_number(money.unit_price, most=None)
    prices, texts = [price * Fraction(unit_price) for price in units], []
    if numbers is not None:
        prices[:-1] = [Fraction(number) * group / 1_000_000 for number in numbers.values()]
        texts.append(f"USD per million tokens{scope}: {_describe(numbers)}")
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


def _long_prices(base: Mapping[str, Decimal], long: LongInputPrices) -> dict[str, Fraction]:
    """Returns the prices in the order of `base`: those of the cache that are not stated have the
    proportion to input that they have there."""
    stated, input_price = long.model_dump(exclude_none=True), Fraction(_parse_number(long.input))
    proportion = input_price / Fraction(base["input"]) if base["input"] else None
    prices: dict[str, Fraction] = {}
    for name, number in base.items():
        if (own := stated.get(name.replace(" ", "_"))) is not None:
            prices[name] = Fraction(_parse_number(own))
        else:
            prices[name] = input_price if proportion is None else Fraction(number) * proportion
    return prices


def _describe(numbers: Mapping[str, Decimal] | Mapping[str, Fraction]) -> str:
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


def _format_number(number: Decimal | Fraction) -> str:
    """1 and not 1.0, 100 and not 1E+2, but 1E-9."""
    if isinstance(number, Fraction):
        number = Decimal(number.numerator) / number.denominator
    normalized = number.normalize()
    return f"{normalized:f}" if normalized.adjusted() > 0 else str(normalized)
