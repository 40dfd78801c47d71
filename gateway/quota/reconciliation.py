"""Explains the difference between what a vendor bills and what the request log says.

Both sides are cut into parts that belong together: one request, where the vendor names its id, else
a model's requests of a span of time. Amounts are exact, in millionths of a dollar.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from fractions import Fraction
from operator import add, mul, sub
from typing import Final, NamedTuple

from gateway.core.events import Usage
from gateway.quota.pricing import amounts
from gateway.quota.repricing import Terms, with_factor

_ZERO = Fraction(0)
_NONE: Final = amounts(Usage())


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


class Own:
    """Requests of the log in one part, of one service tier or of all: `amounts` are those of
    `pricing.amounts`, by the terms that they were charged at."""

    __slots__ = ("amounts", "cost", "requests", "tokens")

    def __init__(self, parts: Iterable[Own] = ()) -> None:
        self.requests = self.cost = self.tokens = 0
        self.amounts: dict[Terms, Sequence[int]] = {}
        for part in parts:
            self._count(part.requests, part.cost, part.tokens)
            for terms, counts in part.amounts.items():
                self._add(terms, counts)

    def add(self, usage: Usage, cost: int, terms: Terms) -> None:
        self._count(1, cost, usage.total_tokens)
        self._add(terms, amounts(usage))

    def _count(self, requests: int, cost: int, tokens: int) -> None:
        self.requests += requests
        self.cost += cost
        self.tokens += tokens

    def _add(self, terms: Terms, counts: Sequence[int]) -> None:
        before = self.amounts.get(terms, _NONE)
        self.amounts[terms] = [*map(add, before, counts)]

    @property
    def total(self) -> list[int]:
        """The amounts at all terms."""
        return [*map(sum, zip(_NONE, *self.amounts.values(), strict=True))]

    def rates(self) -> list[Fraction]:
        """What each kind costs, as it is mixed here."""
        return self._mean(lambda terms: terms.rates)

    def plain_rates(self) -> list[Fraction]:
        """The same without the factors of tiers."""
        return self._mean(lambda terms: terms.plain)

    def _mean(self, rates_of: Callable[[Terms], Sequence[Fraction]]) -> list[Fraction]:
        """The last terms say what a kind costs of which there is nothing."""
        sums, last = [_ZERO] * len(_NONE), [_ZERO] * len(_NONE)
        for terms, counts in self.amounts.items():
            last = [*rates_of(terms)]
            sums = [*map(add, sums, map(mul, last, counts))]
        each = zip(sums, self.total, last, strict=True)
        return [total / count if count else rate for total, count, rate in each]


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
    total = Own(own.values())
    if not billed:
        return [Finding(Cause.LOST, Fraction(-total.cost))]
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
    everything = _Sum(billed)
    if any(line.tier is None for line in billed):
        return _of_tokens(everything, total, total.rates())
    lines: dict[str, list[Billed]] = {tier: [] for tier in own}
    for line in billed:
        lines.setdefault(base_tier(line.tier), []).append(line)
    pairs = {tier: (_Sum(of_tier), own.get(tier) or Own()) for tier, of_tier in lines.items()}
    has_more = any(theirs.more_requests(ours) for theirs, ours in pairs.values())
    if not has_more and all(theirs.amounts == ours.total for theirs, ours in pairs.values()):
        return []
    plain = total.plain_rates()
    is_moved = has_more or everything.amounts == total.total
    if not is_moved or everything.more_requests(total):
        rates = {
            tier: own[tier].rates() if tier in own else with_factor(plain, factor_of(tier))
            for tier in pairs
        }
        return [
            each
            for tier, (theirs, ours) in pairs.items()
            for each in _of_tokens(theirs, ours, rates[tier])
        ]
    paid, unscaled = (
        sum(map(mul, rates[:-1], total.total), _ZERO) for rates in (total.rates(), plain)
    )
    factor = paid / (unscaled or 1)
    cost = sum(
        (factor_of(tier) - factor) * sum(map(mul, plain[:-1], theirs.amounts), _ZERO)
        for tier, (theirs, _) in pairs.items()
    )
    moved = Finding(Cause.TIER, Fraction(cost))
    return [moved, *_of_tokens(everything, total, with_factor(plain, factor))]


class _Sum:
    """Lines of a bill, added up; `requests` is None where one of them does not count them."""

    __slots__ = ("amounts", "requests", "tokens")

    def __init__(self, lines: Sequence[Billed]) -> None:
        counts = (amounts(line.usage) for line in lines)
        self.amounts = [*map(sum, zip(_NONE, *counts, strict=True))]
        self.tokens = sum(line.usage.total_tokens for line in lines)
        requests = [line.requests for line in lines]
        self.requests = None if None in requests else sum(each or 0 for each in requests)

    def more_requests(self, own: Own) -> int:
        """How many more than the log has; the sign of that, if the bill does not count them."""
        if self.requests is not None:
            return self.requests - own.requests
        return (self.tokens > own.tokens) - (self.tokens < own.tokens)


def _of_tokens(billed: _Sum, own: Own, rates: Sequence[Fraction]) -> list[Finding]:
    """What other numbers of tokens cost at these rates."""
    more = [*map(sub, billed.amounts, own.total)]
    cost = sum(map(mul, rates, more), _ZERO)
    if number := billed.more_requests(own):
        return [Finding(Cause.NOT_OURS if number > 0 else Cause.LOST, cost)]
    fresh, _, *cached, _ = rates
    of_cache = (count * (rate - fresh) for count, rate in zip(more[2:5], cached, strict=True))
    cache = sum(of_cache, _ZERO)
    return [Finding(Cause.CACHE, cache), Finding(Cause.COUNT, cost - cache)]
