"""Settings of keys and groups as people type them: one reader and one writer for each field.

CSV files, command options and web forms share this table. Lists are one text: models, networks
and patterns are separated by spaces, commas or semicolons, user agents by line breaks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from gateway.admin.units import NONE_WORDS, parse_count, parse_time, parse_units, parse_usd
from gateway.core.limits import BUDGET_SETTINGS, LIMIT_NAMES, MICRO_PER_UNIT, Currency
from gateway.quota.budgets import format_utc

YES: Final = "yes"

_YES_WORDS: Final = (YES, "true", "1")
_NO_WORDS: Final = ("", "no", "false", "0")
_LIST_ITEM: Final = re.compile(r"[^\s,;]+")
_SUFFIXES: Final = ((10**9, "G"), (10**6, "M"), (10**3, "k"))
_SHORT_NAMES: Final = {
    "expires_at": "expires",
    "requests_per_minute": "rpm",
    "tokens_per_minute": "tpm",
}


@dataclass(frozen=True, slots=True)
class TextField:
    """`parse` takes the text and the current time in Unix microseconds and raises ValueError;
    `format` is its reverse. An optional field is cleared by "", `none` and `never`."""

    parse: Callable[[str, int], Any]
    format: Callable[[Any], str] = str
    optional: bool = True


def short_name(field: str) -> str:
    """The name of a field in CSV files and, with dashes, of its option."""
    return _SHORT_NAMES.get(field, field)


def parse_field(name: str, text: str, now: int) -> Any:
    """Raises ValueError, whose message says what would be valid."""
    field = TEXT_FIELDS[name]
    text = text.replace("\r\n", "\n").strip()
    if field.optional and (not text or text in NONE_WORDS):
        return None
    return field.parse(text, now)


def format_fields(record: Any, names: Iterable[str]) -> dict[str, str]:
    """Fields of a token, a group or limits as texts for editing."""
    values = ((name, getattr(record, name)) for name in names)
    return {
        name: "" if value is None else TEXT_FIELDS[name].format(value) for name, value in values
    }


def _parse_bool(text: str, _: int) -> bool:
    if text.lower() not in (*_YES_WORDS, *_NO_WORDS):
        raise ValueError("must be yes or no")
    return text.lower() in _YES_WORDS


def _parse_lines(text: str, _: int) -> list[str]:
    return [item for line in text.split("\n") if (item := line.strip())]


def _format_amount(number: Decimal) -> str:
    """5M, 250k, 0.5."""
    for factor, suffix in _SUFFIXES:
        if number and not number % factor:
            return f"{int(number // factor)}{suffix}"
    return f"{number.normalize():f}"


_TEXT: Final = TextField(lambda text, _: text, optional=False)
_FLAG: Final = TextField(_parse_bool, lambda is_set: YES if is_set else "", optional=False)
_ITEMS: Final = TextField(lambda text, _: _LIST_ITEM.findall(text), "\n".join)
_COUNT: Final = TextField(
    lambda text, _: parse_count(text), lambda count: _format_amount(Decimal(count))
)
_UNITS: Final = TextField(
    lambda text, _: parse_units(text), lambda micro: _format_amount(Decimal(micro) / MICRO_PER_UNIT)
)
_USD: Final = TextField(lambda text, _: parse_usd(text), _UNITS.format)

TEXT_FIELDS: Final[Mapping[str, TextField]] = {
    "name": _TEXT,
    "group": _TEXT,
    "note": TextField(_TEXT.parse),
    "expires_at": TextField(lambda text, now: parse_time(text, now, 1), format_utc),
    "probe": _FLAG,
    "cost_in_usage": _FLAG,
    "key": _TEXT,
    "models": _ITEMS,
    "addresses": _ITEMS,
    "trust": _ITEMS,
    "patterns": TextField(_ITEMS.parse, _ITEMS.format, optional=False),
    "multiplier": _TEXT,
    "user_agents": TextField(_parse_lines, "\n".join),
    "user_agent_mode": _TEXT,
    "store_replies": _FLAG,
    "on_shared_loss": _TEXT,
    **dict.fromkeys(LIMIT_NAMES, _COUNT),
    **{
        name: _USD if kind.currency is Currency.USD else _UNITS
        for name, kind in BUDGET_SETTINGS.items()
    },
}
"""Text fields by the names of the records' fields."""
