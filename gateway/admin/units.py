"""What people type: amounts, times, durations, in options, cells of a file and forms of a page. It
must not know what an amount is for, nor what time it is.

Amounts may have k, M or G behind them. Dates are days of UTC, as the ledger's are; a date is the
moment at which its day begins. Every reader raises ValueError with what would be right.

Figures for people: counts, durations, units, and what units cost where there is a price.

It must not know what was counted, nor where it is shown.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from decimal import Decimal
from typing import Final

from gateway.config import Money
from gateway.core.limits import MICRO_PER_UNIT
from gateway.core.text import NARROW_SPACE

NONE_WORDS: Final = ("none", "never")
"""Words for nothing at all."""

_AMOUNT: Final = re.compile(r"(\d{1,18}(?:\.\d{1,18})?)([kKMG]?)", re.ASCII)
_HIGHEST: Final = 10**12
_THOUSANDS: Final = {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9}
_LASTING: Final = re.compile(r"(\d{1,9})([smhdw])", re.ASCII)
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_LONGEST: Final = 100 * 366 * 86_400


def parse_count(text: str) -> int:
    """A whole number."""
    return _amount(text, 1, "a whole number such as 600 or 100k")


def parse_units(text: str) -> int:
    """Units, in micro-units."""
    return _amount(text, MICRO_PER_UNIT, "units such as 5M, 250k or 0.5, with at most 6 decimals")


def parse_duration(text: str) -> int:
    """A duration, in seconds."""
    written = _LASTING.fullmatch(text)
    seconds = 0 if text == "0" else None
    if written is not None:
        seconds = int(written[1]) * _SECONDS[written[2]]
    if seconds is None or seconds > _LONGEST:
        raise ValueError("must be a duration such as 30d, 24h, 90m or 0")
    return seconds


def parse_time(text: str, now: int, direction: int) -> int:
    """A date, a date and time (of UTC, where it names no other zone), or a duration from `now` in
    one direction (1 or -1); in Unix microseconds, as `now` is."""
    if _LASTING.fullmatch(text):
        return max(0, now + direction * parse_duration(text) * 1_000_000)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            "must be a date such as 2026-12-31, with a time or without, or a duration such as 30d"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0, int(moment.timestamp()) * 1_000_000)


def _amount(text: str, scale: int, wanted: str) -> int:
    written = _AMOUNT.fullmatch(text)
    if written is not None:
        amount = Decimal(written[1]) * _THOUSANDS[written[2]] * scale
        if amount > _HIGHEST * scale:
            raise ValueError("must be at most 1000G")
        if amount == int(amount):
            return int(amount)
    raise ValueError(f"must be {wanted}")


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
