"""Amounts, times and durations as text: parsing what people type, formatting for people.

Amounts can have the suffixes k, M and G. A date is the beginning of that day in UTC. Parsers raise
ValueError, whose message says what would be valid.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Final

from gateway.core.limits import DIMENSION_BUDGETS, MICRO_PER_UNIT, BudgetWindow, Currency
from gateway.core.target import COMPACTION
from gateway.core.text import NARROW_SPACE
from gateway.store.measures import HISTOGRAMS

if TYPE_CHECKING:  # commands start without what validates configurations
    from gateway.config.limits import Money

NONE_WORDS: Final = ("none", "never")
"""Words for no value."""

WINDOW_TITLES: Final = {
    BudgetWindow.TOTAL: "Total",
    BudgetWindow.FIVE_HOURS: "5-hour",
    BudgetWindow.DAY: "Daily",
    BudgetWindow.WEEK: "Weekly",
    BudgetWindow.MONTH: "Monthly",
}
"""Adjectives of budgets."""
DIMENSION_BUDGET_TITLES: Final = {
    name: f"{WINDOW_TITLES[kind.window]} budget of each {dimension.replace('_', ' ')}"
    for name, (dimension, kind) in DIMENSION_BUDGETS.items()
}

_AMOUNT: Final = re.compile(r"(\d{1,18}(?:\.\d{1,18})?)([kKMG]?)", re.ASCII)
_MAX_AMOUNT: Final = 10**12
_FACTORS: Final = {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9}
_DURATION: Final = re.compile(r"(\d{1,9})([smhdw])", re.ASCII)
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_MAX_SECONDS: Final = 100 * 366 * 86_400
_DAY_US: Final = 86_400 * 1_000_000
_DAYS_AGO: Final = {"today": 0, "yesterday": 1}


def parse_count(text: str) -> int:
    return _parse_amount(text, 1, "a whole number such as 600 or 100k")


def parse_units(text: str) -> int:
    """Units, in micro-units."""
    expected = "units such as 5M, 250k or 0.5, with at most 6 decimals"
    return _parse_amount(text, MICRO_PER_UNIT, expected)


def parse_usd(text: str) -> int:
    """US dollars, in millionths; a dollar sign is accepted."""
    expected = "US dollars such as 50, 2.50 or 1k, with at most 6 decimals"
    return _parse_amount(text.removeprefix("$"), MICRO_PER_UNIT, expected)


def parse_duration(text: str) -> int:
    """A duration, in seconds."""
    if text == "0":
        return 0
    match = _DURATION.fullmatch(text)
    seconds = int(match[1]) * _SECONDS[match[2]] if match else _MAX_SECONDS + 1
    if seconds > _MAX_SECONDS:
        raise ValueError("must be a duration such as 30d, 24h, 90m or 0")
    return seconds


def parse_time(text: str, now: int, direction: int) -> int:
    """A date, a date and time (in UTC, unless it has a zone), or a duration after (`direction` 1)
    or before (-1) `now`; before it also `today` and `yesterday`, of which the beginning is meant.
    In Unix microseconds, like `now`."""
    if direction < 0 and text in _DAYS_AGO:
        return now - now % _DAY_US - _DAYS_AGO[text] * _DAY_US
    if _DURATION.fullmatch(text):
        return max(0, now + direction * parse_duration(text) * 1_000_000)
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        days = ", today, yesterday" if direction < 0 else ""
        raise ValueError(
            f"must be a date such as 2026-12-31, with a time or without{days}, or a duration such "
            "as 30d"
        ) from None
    if time.tzinfo is None:
        time = time.replace(tzinfo=UTC)
    return max(0, int(time.timestamp()) * 1_000_000)


def _parse_amount(text: str, scale: int, expected: str) -> int:
    if match := _AMOUNT.fullmatch(text):
        amount = Decimal(match[1]) * _FACTORS[match[2]] * scale
        if amount > _MAX_AMOUNT * scale:
            raise ValueError("must be at most 1000G")
        if amount == int(amount):
            return int(amount)
    raise ValueError(f"must be {expected}")


def format_count(number: int) -> str:
    """Formats a count in groups of three digits."""
    return f"{number:,}".replace(",", NARROW_SPACE)


def refuses_line(names: Collection[str]) -> str:
    """The line of the configuration that says what a channel's upstream refuses."""
    quoted = ", ".join(f'"{name}"' for name in names if name != COMPACTION)
    traits = [f"refuses: [{quoted}]"] if quoted else []
    if COMPACTION in names:
        traits.append("compaction: false")
    return f"traits: {{{', '.join(traits)}}}"


def format_duration(microseconds: int | None) -> str | None:
    """`850 ms`, `12.3 s`, `4 min 10 s`."""
    if microseconds is None:
        return None
    if microseconds < 1_000_000:
        return f"{microseconds // 1000} ms"
    if microseconds < 60_000_000:
        return f"{microseconds / 1_000_000:.1f} s"
    minutes, seconds = divmod(microseconds // 1_000_000, 60)
    return f"{minutes} min {seconds} s"


def format_ms(milliseconds: float | None) -> str | None:
    """The same of milliseconds."""
    return None if milliseconds is None else format_duration(round(milliseconds * 1000))


def format_percentile(histogram: str, milliseconds: float | None) -> str | None:
    """The same of a percentile; of one in the first bucket of its histogram only that: `< 100
    ms`."""
    least = HISTOGRAMS[histogram][0]
    if milliseconds is None or milliseconds >= least:
        return format_ms(milliseconds)
    return f"< {format_ms(least)}"


def format_units(micro: int) -> str:
    """Formats exactly: `12 345.5`."""
    units, fraction = divmod(micro, MICRO_PER_UNIT)
    decimals = f"{fraction:06d}".rstrip("0")
    return f"{format_count(units)}.{decimals}" if decimals else format_count(units)


def format_usd(micro: int) -> str:
    """`$12.34`, small amounts with four decimals."""
    return "< $0.0001" if 0 < micro < 100 else f"${_format_money(Decimal(micro) / MICRO_PER_UNIT)}"


def format_exact_usd(micro: int) -> str:
    """`$12.34`, `$0.000123`: all that is not zero, and two decimals at least."""
    dollars, fraction = divmod(micro, MICRO_PER_UNIT)
    decimals = f"{fraction:06d}".rstrip("0")
    return f"${format_count(dollars)}.{decimals:0<2}"


def format_usd_change(micro: int) -> str:
    """`+$12.34`, `-$0.000123`."""
    return ("-" if micro < 0 else "+") + format_exact_usd(abs(micro))


def format_amount(micro: int, currency: Currency) -> str:
    """Formats exactly: `12 345.5 units`, `$12.34`."""
    if currency == Currency.USD:
        return format_exact_usd(micro)
    return f"{format_units(micro)} {'unit' if micro == MICRO_PER_UNIT else 'units'}"


def format_field(name: str, value: int | str) -> str:
    """Formats a column's value, with its meaning in parentheses if it is a duration or a cost."""
    if isinstance(value, int) and name.endswith("_us"):
        return f"{value} ({format_duration(value)})"
    if isinstance(value, int) and name.endswith("_micro"):
        currency = Currency.USD if name.endswith("usd_micro") else Currency.UNITS
        return f"{value} ({format_amount(value, currency)})"
    return str(value)


def format_price(micro: int, money: Money | None) -> str | None:
    """`12.34 EUR`, small prices with four decimals: units in a currency other than dollars, which
    is for display only. None without such a unit price."""
    if money is None or money.unit_price is None or money.currency == "USD":
        return None
    amount = Decimal(repr(money.unit_price)) * micro / MICRO_PER_UNIT
    if 0 < amount < Decimal("0.0001"):
        return f"< 0.0001 {money.currency}"
    return f"{_format_money(amount)} {money.currency}"


def _format_money(amount: Decimal) -> str:
    digits = f"{amount:,.{2 if amount >= 1 or not amount else 4}f}"
    return digits.replace(",", NARROW_SPACE)


def format_cost(micro: int, usd_micro: int, money: Money | None) -> str:
    """`5 units ($0.01)`, `5 units (0.01 EUR)`; no price where there is none."""
    price = format_exact_usd(usd_micro) if usd_micro else format_price(micro, money)
    units = format_amount(micro, Currency.UNITS)
    return units if price is None else f"{units} ({price})"
