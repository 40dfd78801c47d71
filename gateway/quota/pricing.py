"""The prices of a model for a group, in units and in US dollars, and the cost of a request.

The arithmetic is exact: prices are decimals, products are integers over one denominator, and only
the sum is rounded, half up, to millionths. The two currencies are independent of each other: one is
never derived from the rounded other.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from fractions import Fraction
from operator import mul
from typing import Final, NamedTuple, Self

from gateway.config.limits import DatedPrices, DayHours, LongInputPrices, Money, TokenPrices
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
_NO_CHANNELS: Final[Mapping[str, DatedPrices]] = {}
_ONE: Final = Fraction(1)
_MINUTE_US: Final = 60_000_000
_DAY_MINUTES: Final = 1440
_BASE_TIERS: Final = (None, "default", "standard", "standard_only")


def amounts(usage: Usage) -> tuple[int, ...]:
    """Returns what has a price of its own: uncached input, output, tokens read from a cache and
    written to one, for minutes and for an hour, and web searches."""
    hour, read = usage.cache_write_1h_tokens, usage.cache_read_tokens
    minutes = usage.cache_write_tokens - hour
    return usage.fresh_input_tokens, usage.output_tokens, read, minutes, hour, usage.web_searches


@dataclass(frozen=True, slots=True)
class Rates:
    """Millionths of a currency for one of each of `amounts`, over a denominator; `half` is half of
    it."""

    denominator: int
    half: int
    prices: tuple[int, ...]

    @classmethod
    def exact(cls, prices: Sequence[Fraction]) -> Self:
        """`prices` are in the currency."""
        prices = [price * MICRO_PER_UNIT for price in prices]
        half = math.lcm(*(price.denominator for price in prices))
        return cls(2 * half, half, tuple(int(price * 2 * half) for price in prices))

    def cost(self, usage: Usage) -> int:
        """Millionths, from 0 to `MAX_COST`."""
        return self.round(sum(map(mul, self.prices, amounts(usage))))

    def round(self, numerator: int) -> int:
        return min(max(0, (numerator + self.half) // self.denominator), MAX_COST)


class UsdPrices(NamedTuple):
    """US dollars of requests with `least_input` tokens of input or more, for one of each of
    `amounts`, and what the row says of them; `reasoning` is the price of such tokens of the
    output."""

    least_input: int
    prices: Sequence[Fraction]
    description: str
    reasoning: Fraction

    def cost(self, usage: Usage, factor: Fraction = _ONE) -> Fraction:
        """Dollars; `factor` is that of the tier and the hour, which searches do not have."""
        costs: list[Fraction] = [*map(mul, self.prices, amounts(usage))]
        of_tokens = sum(costs[:-1], Fraction(0))
        if (more := self.reasoning - self.prices[1]) and usage.reasoning_tokens:
            of_tokens += more * min(usage.reasoning_tokens, usage.output_tokens)
        return factor * of_tokens + costs[-1]


@dataclass(frozen=True, slots=True)
class PriceBook:
    """The prices in dollars of a model that depend on the request: `levels` by the length of its
    input, the least first, `factors` by service tier, `hours` by the time of day, `request` besides
    its tokens, and `channels` that have their own."""

    levels: Sequence[UsdPrices]
    factors: Mapping[str, Decimal]
    channels: Mapping[str, PriceBook]
    hours: Sequence[DayHours] = ()
    request: Fraction = Fraction(0)

    @property
    def is_flat(self) -> bool:
        """Tells whether each token of a kind always costs the same."""
        (first, *more), others = self.levels, (self.factors, self.channels, self.hours)
        return not (more or any(others) or self.request or first.reasoning != first.prices[1])

    def usd(self, usage: Usage, tier: str | None, time: int) -> tuple[Fraction, str]:
        """Dollars of one upstream request of an exchange that started then (Unix microseconds), and
        what the row says of their prices."""
        level, factor, text = self.terms(usage.input_tokens, tier, time)
        dollars = level.cost(usage, factor)
        if self.request and usage.total_tokens:
            dollars += self.request
        return dollars, level.description + text

    def terms(
        self, input_tokens: int, tier: str | None, time: int
    ) -> tuple[UsdPrices, Fraction, str]:
        """The prices of a request with so much input, the factor of its tokens, and its text."""
        text, total = "", _ONE
        level = next(each for each in reversed(self.levels) if input_tokens >= each.least_input)
        factor = self.factors.get(tier or "")
        if tier == "fast" and factor is None:
            factor = self.factors.get("priority")
        if factor is not None:
            text, total = f"; service tier {tier}: times {_format_number(factor)}", Fraction(factor)
        elif self.factors and tier not in _BASE_TIERS:
            text = f"; service tier {ascii(tier)[:40]} has no factor"
        hours = self._hours(time)
        if hours is not None:
            of_day = _parse_number(hours.factor)
            text += (
                f"; {_clock(hours.start)} to {_clock(hours.end)}: times {_format_number(of_day)}"
            )
            total *= Fraction(of_day)
        return level, total, text

    def _hours(self, time: int) -> DayHours | None:
        minute = time // _MINUTE_US % _DAY_MINUTES
        for each in self.hours:
            length = (each.end - each.start) % _DAY_MINUTES or _DAY_MINUTES
            if (minute - each.start) % _DAY_MINUTES < length:
                return each
        return None

    def highest_usd(self, usage: Usage, requests: int) -> Fraction:
        """Dollars that so many requests with this usage together cost at most, whichever channel
        and service tier serves them, and with up to twice as much input, which may be an estimate.
        """
        books = (self, *self.channels.values())
        possible = [
            [
                *(price * Fraction(factor) * Fraction(hour) for price in prices[:-1]),
                prices[-1],
            ]
            for book in books
            for level in book.levels
            if 2 * usage.input_tokens >= level.least_input
            for prices in (_with_output(level.prices, max(level.prices[1], level.reasoning)),)
            for factor in (Decimal(1), *book.factors.values())
            for hour in (Decimal(1), *(_parse_number(each.factor) for each in book.hours))
        ]
        highest = [*map(max, *possible, possible[0])]
        request = max(book.request for book in books)
        return UsdPrices(0, highest, "", highest[1]).cost(usage) + requests * request


class Part(NamedTuple):
    """What one upstream request used, the prices and service tier that apply to it, and when its
    exchange started (Unix microseconds)."""

    usage: Usage
    book: PriceBook
    tier: str | None
    time: int

    def usd(self) -> tuple[Fraction, str]:
        """Returns dollars, and what the row says of their prices."""
        return self.book.usd(self.usage, self.tier, self.time)


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
        channels: Mapping[str, DatedPrices] = _NO_CHANNELS,
        time: int = 0,
    ) -> Self:
        """Returns the price of requests that start then (Unix microseconds). Raises ValueError for
        a multiplier that is not a number from 0 to `MAX_MULTIPLIER`."""
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

        def build_book(stated: DatedPrices | None, channels: Mapping[str, PriceBook]) -> PriceBook:
            if stated is None:
                usd, text = _usd_prices(None, group, units, money)
                return PriceBook([UsdPrices(0, usd, text, usd[1])], {}, channels)
            price = stated.at(time)
            base = {name: _parse_number(each) for name, each in _token_prices(price).items()}
            if price.searches is not None:
                charged = money.model_copy(update={"web_search_price": price.searches})
            else:
                charged = money
            levels, of_requests = [], ""
            if request := _parse_number(price.requests):
                of_requests = f"; USD per 1000 requests: {_format_number(request)}"
            for least, scope, numbers, reasoning in _levels(price, base):
                usd, text = _usd_prices(numbers, group, units, charged, scope, reasoning)
                own = numbers["output"] if reasoning is None else reasoning
                of_reasoning = Fraction(own) * group / 1_000_000
                levels.append(UsdPrices(least, usd, text + of_requests, of_reasoning))
            factors: dict[str, Decimal] = {
                tier: _parse_number(each) for tier, each in price.service_tiers.items()
            }
            return PriceBook(
                levels, factors, channels, price.hours, Fraction(request) * group / 1000
            )

        own = {channel: build_book(price, {}) for channel, price in channels.items()}
        book = build_book(model.price, own)
        _, usd, usd_description, _ = book.levels[0]
        return cls(
            Rates.exact(units),
            Rates.exact(usd) if any(usd) else None,
            _describe(shown) + usd_description,
            None if book.is_flat else book,
        )

    def cost(self, usage: Usage) -> Cost:
        return Cost(self.units.cost(usage), self.usd.cost(usage) if self.usd else 0)

    def highest_cost(self, usage: Usage, requests: int = 1) -> Cost:
        """What has to be reserved for this usage of so many upstream requests, before all is known
        that its price depends on."""
        if self.book is None:
            return self.cost(usage)
        return Cost(self.units.cost(usage), _round_usd(self.book.highest_usd(usage, requests)))

    def cost_of(self, parts: Sequence[Part]) -> tuple[Cost, str]:
        """The cost of a reply's upstream requests together, and the text that their row has."""
        usage = sum((part.usage for part in parts), Usage())
        costs, texts = zip(*map(Part.usd, parts), strict=True)
        cost = Cost(self.units.cost(usage), _round_usd(sum(costs, Fraction(0))))
        return cost, self.description.partition(";")[0] + "".join(dict.fromkeys(texts))

    def input_cost(self, tokens: int) -> Cost:
        """The cost of uncached input tokens."""
        units, usd = self.units, self.usd
        in_usd = usd.round(tokens * usd.prices[0]) if usd else 0
        return Cost(units.round(tokens * units.prices[0]), in_usd)


def price_periods(
    model: Model, group_multiplier: str, money: Money, channels: Mapping[str, DatedPrices]
) -> list[tuple[int, Price]]:
    """Returns the price from each time on (Unix microseconds), the latest first. Raises as
    `Price.for_model`."""
    stated = [price for price in (model.price, *channels.values()) if price is not None]
    starts = {0, *(change.start for price in stated for change in price.changes)}
    return [
        (start, Price.for_model(model, group_multiplier, money, channels, start))
        for start in sorted(starts, reverse=True)
    ]


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
    numbers: Mapping[str, Decimal | Fraction] | None,
    group: Fraction,
    units: Sequence[Fraction],
    money: Money,
    scope: str = "",
    reasoning: Decimal | None = None,
) -> tuple[list[Fraction], str]:
    """Returns the prices in the order of `amounts`, and what the row says of them. A model without
    prices, and searches without one, cost what their units do. `scope`: what the prices are for;
    `reasoning`: such tokens have their own."""
    unit_price = Decimal(0)
    if money.currency == "USD" and money.unit_price is not None:
        unit_price = _parse_number(money.unit_price, most=None)
    prices, texts = [price * Fraction(unit_price) for price in units], []
    if numbers is not None:
        prices[:-1] = [Fraction(number) * group / 1_000_000 for number in numbers.values()]
        text = _describe(numbers if reasoning is None else {**numbers, "reasoning": reasoning})
        texts.append(f"USD per million tokens{scope}: {text}")
    elif unit_price:
        texts.append(f"USD per million units: {_format_number(unit_price * 1_000_000)}")
    if money.web_search_price is not None:
        search_price = _parse_number(money.web_search_price)
        prices[-1] = Fraction(search_price) * group / 1000
        texts.append(f"USD per 1000 searches: {_format_number(search_price)}")
    return prices, "".join(f"; {text}" for text in texts)


def _token_prices(price: TokenPrices) -> dict[str, float]:
    """Returns the price of each kind of token, in the order of `amounts`."""
    cache_write = price.input if price.cache_write is None else price.cache_write
    return {
        "input": price.input,
        "output": price.output,
        "cache read": price.input if price.cache_read is None else price.cache_read,
        "cache write": cache_write,
        "cache write 1h": (cache_write if price.cache_write_1h is None else price.cache_write_1h),
    }


def _levels(
    price: TokenPrices, base: Mapping[str, Decimal]
) -> Iterator[tuple[int, str, Mapping[str, Decimal | Fraction], Decimal | None]]:
    """Yields, by the length of the input, from which on, for what, the price of each kind of token,
    and that of reasoning where it has its own."""
    yield 0, "", base, None if price.reasoning is None else _parse_number(price.reasoning)
    for long in price.above:
        scope = f" of requests with more than {long.tokens} input tokens"
        reasoning = None if long.reasoning is None else _parse_number(long.reasoning)
        yield long.tokens + 1, scope, _long_prices(base, long), reasoning


def _with_output(prices: Sequence[Fraction], output: Fraction) -> list[Fraction]:
    return [prices[0], output, *prices[2:]]


def _clock(minute: int) -> str:
    return f"{minute // 60:02}:{minute % 60:02}"


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


def _describe(numbers: Mapping[str, Decimal | Fraction]) -> str:
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
