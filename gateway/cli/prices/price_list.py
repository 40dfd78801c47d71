"""The list of prices of the package genai-prices, in the form of the configuration.

Only its bundled data is read: what it could download is never asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, time, timedelta
from decimal import Decimal
from importlib.metadata import version
from typing import Any, Final, NamedTuple

from genai_prices.data import providers
from genai_prices.data_snapshot import DataSnapshot
from genai_prices.types import (
    ModelInfo,
    ModelPrice,
    StartDateConstraint,
    TieredPrices,
    TimeOfDateConstraint,
)
from pydantic import ValidationError
from pydantic_core import to_json

from gateway.config.limits import DatedPrices

_TOKENS: Final = {
    "input_mtok": "input",
    "output_mtok": "output",
    "cache_read_mtok": "cache_read",
    "cache_write_mtok": "cache_write",
    "cache_write_1h_mtok": "cache_write_1h",
    "output_reasoning_mtok": "reasoning",
}
_OTHERS: Final = {"web_searches_kcount": "searches", "requests_kcount": "requests"}
_TIERS: Final = {"processing": ("batch",), "speed": ("fast",), "service_tier": None}
"""The fields of a request that choose a service tier, with the values that are read of them."""

_Prices = Mapping[str, Any]


class Entry(NamedTuple):
    """A price of the list; `source` is provider/model there, `left_out` what it has that the
    configuration cannot express."""

    price: DatedPrices
    source: str
    left_out: tuple[str, ...]


class PriceList:
    """The bundled list."""

    def __init__(self) -> None:
        self.version = version("genai-prices")
        self._snapshot = DataSnapshot(providers=providers, from_auto_update=False)

    def find(self, base_url: str, name: str) -> Entry | None:
        """Returns the price of an upstream's model: of the provider with that address, or of the
        one whose models have such names. None where the list has none."""
        for address in (base_url, None):
            try:
                provider, model = self._snapshot.find_provider_model(name, None, None, address)
            except LookupError:
                continue
            left_out: dict[str, None] = {}
            try:
                price = DatedPrices.model_validate_json(to_json(_convert(model, left_out)))
            except ValidationError:
                return None
            return Entry(price, f"{provider.id}/{model.id}", tuple(left_out))
        return None


def _convert(model: ModelInfo, left_out: dict[str, None]) -> dict[str, Any]:
    """Returns the price as the configuration states it, the first and its changes."""
    entries = model.prices
    conditional = [] if isinstance(entries, ModelPrice) else entries
    variants = model.price_variants or ()
    starts = {
        each.constraint.start_date
        for each in (*conditional, *variants)
        if isinstance(each.constraint, StartDateConstraint)
    }
    first = datetime(1970, 1, 1, tzinfo=UTC)
    days = [first, *(datetime.combine(day, time(), UTC) for day in sorted(starts))]
    stated: list[dict[str, Any]] = []
    for day in days:
        price = _at(model, day, left_out)
        if stated and price == {key: value for key, value in stated[-1].items() if key != "from"}:
            continue
        stated.append(price if day == first else {"from": f"{day:%Y-%m-%d}", **price})
    base, *changes = stated
    return base | ({"changes": changes} if changes else {})


def _at(model: ModelInfo, day: datetime, left_out: dict[str, None]) -> dict[str, Any]:
    hours = [
        each.constraint
        for each in (model.prices if isinstance(model.prices, list) else ())
        if isinstance(each.constraint, TimeOfDateConstraint)
    ]
    outside = next((each for each in _minutes(day) if not any(h.active(each) for h in hours)), day)
    standard = model.get_prices(outside)
    price = _prices(standard, left_out)
    tiers: dict[str, float] = {}
    for variant in model.price_variants or ():
        if variant.constraint is not None and not variant.constraint.active(day):
            continue
        ((field, value), *others) = variant.when.items()
        allowed = _TIERS.get(field, ())
        if others or (allowed is not None and value not in allowed):
            left_out[f"{field} {value}"] = None
        elif value != "default":
            factor = _factor(model.get_prices(outside, variant.when), standard)
            if factor is None:
                left_out[f"all of {value}"] = None
            tiers.setdefault(value, _number(_share(variant.prices, standard)))
    if tiers:
        price["service_tiers"] = {name: factor for name, factor in tiers.items() if factor != 1}
    spans = [_span(each, model, standard, day, left_out) for each in hours]
    if found := [span for span in spans if span is not None]:
        price["hours"] = found
    return price


def _span(
    hours: TimeOfDateConstraint,
    model: ModelInfo,
    standard: ModelPrice,
    day: datetime,
    left_out: dict[str, None],
) -> dict[str, Any] | None:
    within = next((each for each in _minutes(day) if hours.active(each)), None)
    factor = None if within is None else _factor(model.get_prices(within), standard)
    if factor is None:
        left_out["prices by time of day"] = None
        return None
    start, end = (
        datetime.combine(day, each).replace(tzinfo=each.tzinfo or UTC).astimezone(UTC)
        for each in (hours.start_time, hours.end_time)
    )
    return {"start": f"{start:%H:%M}", "end": f"{end:%H:%M}", "factor": _number(factor)}


def _minutes(day: datetime) -> Iterator[datetime]:
    return (day + timedelta(minutes=5 * step) for step in range(288))


def _prices(price: ModelPrice, left_out: dict[str, None]) -> dict[str, Any]:
    stated: dict[str, Any] = {"input": 0.0, "output": 0.0}
    above: dict[int, dict[str, Any]] = {}
    for key, value in _kinds(price):
        if key in _OTHERS and isinstance(value, Decimal):
            stated[_OTHERS[key]] = _number(value)
        elif key in _TOKENS:
            stated[_TOKENS[key]] = _number(_base(value))
            for tier in value.tiers if isinstance(value, TieredPrices) else ():
                above.setdefault(tier.start, {})[_TOKENS[key]] = _number(tier.price)
        else:
            left_out[key] = None
    if above:
        levels, last = [], {name: stated[name] for name in _TOKENS.values() if name in stated}
        for start, changed in sorted(above.items()):
            last = last | changed
            levels.append({"tokens": start, **last})
        stated["above"] = levels
    return stated


def _kinds(price: ModelPrice) -> Iterator[tuple[str, Decimal | TieredPrices]]:
    return ((key, value) for key, value in vars(price).items() if value is not None)


def _base(value: Decimal | TieredPrices) -> Decimal:
    return value.base if isinstance(value, TieredPrices) else value


def _factor(price: ModelPrice, standard: ModelPrice) -> Decimal | None:
    """Returns by what all prices of tokens differ; None where that is not one factor."""
    base, own = dict(_kinds(standard)), dict(_kinds(price))
    starts = {
        tier.start
        for value in (*base.values(), *own.values())
        for tier in (value.tiers if isinstance(value, TieredPrices) else ())
    }
    factors = {
        _above(own[key], start) / _above(base[key], start)
        for key in _TOKENS.keys() & own.keys() & base.keys()
        for start in (0, *starts)
        if _above(base[key], start)
    }
    return factors.pop() if len(factors) == 1 else None


def _above(value: Decimal | TieredPrices, start: int) -> Decimal:
    tiers = value.tiers if isinstance(value, TieredPrices) else ()
    return next((each.price for each in reversed(tiers) if start >= each.start), _base(value))


def _share(price: ModelPrice, standard: ModelPrice) -> Decimal:
    """Returns the factor of the output, else that of the input."""
    base, own = dict(_kinds(standard)), dict(_kinds(price))
    for key in ("output_mtok", "input_mtok"):
        if key in own and key in base and _base(base[key]):
            return _base(own[key]) / _base(base[key])
    return Decimal(1)


def _number(value: Decimal) -> float:
    return float(value)
