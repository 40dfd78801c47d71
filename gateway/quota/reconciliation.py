"""Explains the difference between what a vendor bills and what the request log says.

Both sides are cut into parts that belong together: one request, where the vendor names its id, else
a model's requests of a span of time. Amounts are exact, in millionths of a dollar.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from functools import reduce
from operator import add, mul, sub
from typing import Final, NamedTuple

from gateway.core.events import Usage
from gateway.quota.pricing import amounts
from gateway.quota.repricing import Rates

_ZERO = Fraction(0)
_ONE = Fraction(1)
_NO_USAGE = Usage()
_NOTHING: Final = (_ZERO,) * len(amounts(_NO_USAGE))


class Cause(StrEnum):
    NOT_OURS = "not ours"
    """Billed requests that the log does not have."""
    LOST = "lost"
    """Requests of the log that are not billed."""
    TIER = "tier"
    """Billed at another service tier."""
    CACHE = "cache"
    """The same input, of which the vendor counts another part as cached."""
    COUNT = "count"
    """The same requests with other numbers of tokens, such as estimates."""
    ROUNDING = "rounding"
    """No more than the digits of the bill and of the rows leave open."""
    PRICE = "price"
    """The vendor has other prices than the configuration."""


class Billed(NamedTuple):
    """A line of a bill, or several of one span and tier. `requests`, `tier` and `cost` are None if
    the vendor does not say."""

    usage: Usage
    requests: int | None
    tier: str | None
    cost: Fraction | None


class Finding(NamedTuple):
    """A part of the difference; positive where the vendor bills more."""

    cause: Cause
    cost: Fraction


@dataclass(slots=True)
class Own:
    """The requests of the log in one part that had one service tier, added up: `products` are sums
    of rate × amount of each kind, and `plain` the same without the tier's factor."""

    requests: int = 0
    cost: Fraction = _ZERO
    usage: Usage = _NO_USAGE
    products: Sequence[Fraction] = _NOTHING
    plain: Sequence[Fraction] = _NOTHING
    last: Rates = _NOTHING
    factor: Fraction = _ONE

    def add(self, usage: Usage, cost: int, rates: Rates, factor: Fraction) -> None:
        self.requests += 1
        self.cost += cost
        self.usage += usage
        products = [*map(mul, rates, amounts(usage))]
        self.products = [*map(add, self.products, products)]
        self.plain = [*map(add, self.plain, (each / (factor or _ONE) for each in products))]
        self.last, self.factor = rates, factor

    def rates(self) -> list[Fraction]:
        """What each kind costs, as it is mixed here."""
        counts = zip(self.products, amounts(self.usage), self.last, strict=True)
        return [total / count if count else last for total, count, last in counts]

    def plain_rates(self) -> list[Fraction]:
        """The same without the factor of the tier."""
        last = (each / (self.factor or _ONE) for each in self.last)
        counts = zip(self.plain, amounts(self.usage), last, strict=True)
        return [total / count if count else last for total, count, last in counts]

    def merge(self, other: Own) -> Own:
        return Own(
            self.requests + other.requests,
            self.cost + other.cost,
            self.usage + other.usage,
            [*map(add, self.products, other.products)],
            [*map(add, self.plain, other.plain)],
            other.last,
            other.factor,
        )


def base_tier(tier: str | None) -> str:
    """The tier, by one name where it is the usual one."""
    return "default" if tier in (None, "", "auto", "standard", "standard_only") else str(tier)


def explain(
    billed: Sequence[Billed],
    own: Mapping[str, Own],
    factor_of: Callable[[str], Fraction],
    price: Callable[[Billed], Fraction],
    digits: Fraction,
) -> list[Finding]:
    """Explains one part: what differs, without what does not. `own` and `factor_of` are by tier
    (`base_tier`), `price` is the configured one of a line without requests of ours, and `digits`
    what a line's cost leaves open."""
    if not own:
        return [Finding(Cause.NOT_OURS, price(line)) for line in billed]
    total = reduce(Own.merge, own.values())
    if not billed:
        return [Finding(Cause.LOST, -total.cost)]
    found = _by_tier(billed, own, total, factor_of)
    if all(line.cost is not None for line in billed):
        cost = sum((line.cost or _ZERO for line in billed), _ZERO)
        rest = cost - total.cost - sum((each.cost for each in found), _ZERO)
        open_ = digits * len(billed) + Fraction(total.requests, 2)
        found.append(Finding(Cause.ROUNDING if abs(rest) <= open_ else Cause.PRICE, rest))
    return [each for each in found if each.cost]


def _by_tier(
    billed: Sequence[Billed],
    own: Mapping[str, Own],
    total: Own,
    factor_of: Callable[[str], Fraction],
) -> list[Finding]:
    everything = _joined(billed)
    if any(line.tier is None for line in billed):
        return _of_tokens(everything, total, total.rates())
    tiers = {base_tier(line.tier): _ZERO for line in billed} | dict.fromkeys(own, _ZERO)
    lines = {
        tier: _joined([line for line in billed if base_tier(line.tier) == tier]) for tier in tiers
    }
    plain = total.plain_rates()
    is_moved = amounts(everything.usage) == amounts(total.usage) or any(
        _extra(lines[tier], own.get(tier) or Own()) for tier in tiers
    )
    if not is_moved or _extra(everything, total):
        return [
            each
            for tier in tiers
            for each in _of_tokens(
                lines[tier],
                own.get(tier) or Own(),
                own[tier].rates() if tier in own else [each * factor_of(tier) for each in plain],
            )
        ]
    as_ours = sum(total.products, _ZERO) / (sum(total.plain, _ZERO) or _ONE)
    tier_cost = _ZERO
    for tier in tiers:
        of_tier = sum(map(mul, plain, amounts(lines[tier].usage)), _ZERO)
        tier_cost += (factor_of(tier) - as_ours) * of_tier
    rates = [each * as_ours for each in plain]
    return [Finding(Cause.TIER, tier_cost), *_of_tokens(everything, total, rates)]


def _joined(lines: Sequence[Billed]) -> Billed:
    usage = sum((line.usage for line in lines), _NO_USAGE)
    requests = [line.requests for line in lines]
    number = None if None in requests else sum(each or 0 for each in requests)
    return Billed(usage, number, None, None)


def _extra(line: Billed, own: Own) -> int:
    """How many requests the bill has more than the log; their sign, if it does not count them."""
    if line.requests is not None:
        return line.requests - own.requests
    more = line.usage.total_tokens - own.usage.total_tokens
    return (more > 0) - (more < 0)


def _of_tokens(line: Billed, own: Own, rates: Sequence[Fraction]) -> list[Finding]:
    """What other numbers of tokens cost at these rates."""
    more = [*map(sub, amounts(line.usage), amounts(own.usage))]
    cost = sum(map(mul, rates, more), _ZERO)
    if number := _extra(line, own):
        return [Finding(Cause.NOT_OURS if number > 0 else Cause.LOST, cost)]
    fresh, _, *cached, _ = rates
    of_cache = (count * (rate - fresh) for count, rate in zip(more[2:5], cached, strict=True))
    cache = sum(of_cache, _ZERO)
    return [Finding(Cause.CACHE, cache), Finding(Cause.COUNT, cost - cache)]
