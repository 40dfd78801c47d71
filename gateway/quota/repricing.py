"""What settled requests cost in US dollars under another book of prices."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Final, NamedTuple

from gateway.config.limits import DatedPrices, Money
from gateway.config.schema import Model
from gateway.core.events import Usage
from gateway.core.limits import MICRO_PER_UNIT
from gateway.quota.pricing import Part, Price, Rates, UsdPrices, price_periods

_GROUP: Final = re.compile(r"\bgroup ([0-9.E+-]+)")
_TIER: Final = re.compile(r"; service tier (?:'([^']*)' has|(\S+): times)")
_LOST: Final = re.compile(r"; USD of failed attempts: ([0-9.]+)")


class SettledRequest(NamedTuple):
    """What a row of the request log says of its price. `is_split`: several requests to upstreams
    have served it; `started_at` is in Unix microseconds."""

    model: str
    channel: str | None
    started_at: int
    usage: Usage
    tariff: str
    is_split: bool = False


def stated_tier(tariff: str) -> str | None:
    """Returns the service tier of a row whose prices depend on it."""
    found = _TIER.search(tariff)
    return (found[1] or found[2]) if found else None


class Terms:
    """What requests pay that have the same terms: millionths of a dollar for one of each of
    `pricing.amounts` (`rates`), the same without the factor of the tier and the hour (`plain`), and
    that factor. Equal only to itself."""

    __slots__ = ("factor", "plain", "rates")

    def __init__(self, plain: Sequence[Fraction], factor: Fraction) -> None:
        self.plain, self.factor = plain, factor
        self.rates = with_factor(plain, factor)


def with_factor(rates: Sequence[Fraction], factor: Fraction) -> list[Fraction]:
    """Returns the rates with a factor that searches, the last, do not have."""
    return [*(rate * factor for rate in rates[:-1]), rates[-1]]


class VendorCost(NamedTuple):
    """Millionths of a dollar of a request, and its terms."""

    usd: int
    terms: Terms


class Book:
    """Prices of models by id, and of channels by name and model."""

    def __init__(
        self,
        models: Iterable[Model],
        channels: Mapping[str, Mapping[str, DatedPrices]],
        money: Money,
    ) -> None:
        self._models = {model.id: model for model in models}
        self._channels, self._money = channels, money
        self._periods: dict[tuple[str, str], list[tuple[int, Price]]] = {}
        self._terms: dict[tuple[int, Fraction], Terms] = {}

    def cost(self, request: SettledRequest) -> tuple[int, str] | None:
        """Returns millionths of a dollar, and the tariff that the row has then; None where it keeps
        its own: the book has no price for it, or one that depends on each of several requests.

        The group's multiplier, the service tier and the cost of failed attempts are the row's."""
        group = _GROUP.search(request.tariff)
        price = self._price(request, group[1]) if group else None
        if price is None:
            return None
        book, tariff = price.book, price.description
        if book is None:
            usd = price.cost(request.usage).usd
        elif request.is_split:
            return None
        else:
            book = book.channels.get(request.channel or "", book)
            part = Part(request.usage, book, stated_tier(request.tariff), request.started_at)
            (_, usd), tariff = price.cost_of([part])
        _, _, dollars = tariff.partition("; ")
        tariff = f"{request.tariff.partition('; ')[0]}; {dollars}"
        if lost := _LOST.search(request.tariff):
            usd, tariff = usd + int(Decimal(lost[1]) * MICRO_PER_UNIT), tariff + lost[0]
        return usd, tariff

    def vendor_cost(self, request: SettledRequest, tier: str | None) -> VendorCost | None:
        """Returns what a request with this service tier costs without the group's multiplier; None
        without a price."""
        if (price := self._price(request, "1")) is None:
            return None
        usage = request.usage
        if price.book is not None:
            book = price.book.channels.get(request.channel or "", price.book)
            part = Part(usage, book, tier, request.started_at)
            level, factor, _ = book.terms(usage.input_tokens, tier, request.started_at)
            return VendorCost(price.cost_of([part])[0].usd, self._terms_of(level, factor))
        if (usd := price.usd) is None:
            return None
        return VendorCost(price.cost(usage).usd, self._terms_of(usd, Fraction(1)))

    def _terms_of(self, prices: UsdPrices | Rates, factor: Fraction) -> Terms:
        """Terms of prices that last as long as the book."""
        key = id(prices), factor
        if (terms := self._terms.get(key)) is None:
            if isinstance(prices, UsdPrices):
                plain = [price * MICRO_PER_UNIT for price in prices.prices]
            else:
                plain = [Fraction(price, prices.denominator) for price in prices.prices]
            terms = self._terms[key] = Terms(plain, factor)
        return terms

    def _price(self, request: SettledRequest, group: str) -> Price | None:
        """Returns the price in dollars when the request started."""
        key = request.model, group
        if key not in self._periods:
            if (model := self._models.get(request.model)) is None:
                return None
            own = {name: of[model.id] for name, of in self._channels.items() if model.id in of}
            self._periods[key] = price_periods(model, group, self._money, own)
        time = request.started_at
        price = next(price for start, price in self._periods[key] if start <= time)
        return None if price.usd is None and price.book is None else price
