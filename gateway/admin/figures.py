"""Figures for people: counts, durations, units, and what units cost where there is a price.

It must not know what was counted, nor where it is shown.
"""

from __future__ import annotations

from decimal import Decimal

from gateway.config import Money
from gateway.core.limits import MICRO_PER_UNIT
from gateway.core.plain import NARROW_SPACE


def format_count(number: int) -> str:
    """The number in groups of three digits."""
    return f"{number:,}".replace(",", NARROW_SPACE)


def format_duration(microseconds: int | None) -> str | None:
    """A duration: `850 ms`, `12.3 s`, `4 min 10 s`."""
    if microseconds is None:
        return None
    if microseconds < 1_000_000:
        return f"{microseconds // 1000} ms"
    if microseconds < 60_000_000:
        return f"{microseconds / 1_000_000:.1f} s"
    minutes, seconds = divmod(microseconds // 1_000_000, 60)
    return f"{minutes} min {seconds} s"


def format_units(micro: int) -> str:
    """Exactly: `12 345.5`."""
    whole, rest = divmod(micro, MICRO_PER_UNIT)
    decimals = f"{rest:06d}".rstrip("0")
    return f"{format_count(whole)}.{decimals}" if decimals else format_count(whole)


def format_price(micro: int, money: Money) -> str | None:
    """`12.34 USD`, of small prices four decimals; None without a price of the unit."""
    if money.unit_price is None:
        return None
    amount = Decimal(repr(money.unit_price)) * micro / MICRO_PER_UNIT
    if 0 < amount < Decimal("0.0001"):
        return f"< 0.0001 {money.currency}"
    whole, _, decimals = f"{amount:.{2 if amount >= 1 or not amount else 4}f}".partition(".")
    return f"{format_count(int(whole))}.{decimals} {money.currency}"


def format_cost(micro: int, money: Money) -> str:
    """`5 units (0.01 USD)`."""
    told = f"{format_units(micro)} {'unit' if micro == MICRO_PER_UNIT else 'units'}"
    priced = format_price(micro, money)
    return told if priced is None else f"{told} ({priced})"
