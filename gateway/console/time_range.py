"""The time that all pages show: in the query as `since` and `until`, which links keep."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlencode

from gateway.admin.units import parse_duration, parse_time

PRESETS: Final[Mapping[str, str]] = {
    "15m": "15 min",
    "1h": "1 h",
    "6h": "6 h",
    "24h": "24 h",
    "7d": "7 d",
    "30d": "30 d",
}
"""Durations, and their titles."""
DEFAULT: Final = "24h"

_NAMES: Final = ("since", "until")
_POSITIONS: Final = ("before", "after")
"""Where a page of rows begins: another range has other rows."""


@dataclass(frozen=True, slots=True)
class TimeRange:
    """`since` and `until` are Unix microseconds; `is_relative`: up to now, by a duration. `error`
    is a sentence where the query has no valid range: the default one is in force then."""

    since: int
    until: int
    is_relative: bool
    error: str | None = None


def parse_range(query: Mapping[str, str], now: int, default: str = DEFAULT) -> TimeRange:
    """The range of a query; `default` is a preset."""
    texts = {name: query.get(name, "").strip() for name in _NAMES}
    error = None
    try:
        until = parse_time(texts["until"], now, -1) if texts["until"] else now
        since = parse_time(texts["since"] or default, now, -1)
        if since < until <= now:
            return TimeRange(since, until, texts["since"] in ("", *PRESETS) and until == now)
        error = "The range has to begin before it ends, and to end by now."
    except ValueError as invalid:
        error = f"The range {invalid}."
    return TimeRange(now - parse_duration(default) * 1_000_000, now, True, error)


@dataclass(frozen=True, slots=True)
class RangeLinks:
    """The addresses of a page with other ranges, and of other pages with this one."""

    path: str
    query: Mapping[str, str]

    @property
    def texts(self) -> dict[str, str]:
        """Those of the range that are given."""
        return {name: text for name in _NAMES if (text := self.query.get(name, "").strip())}

    @property
    def carried(self) -> str:
        """The query that other pages take over; empty, or with its `?`."""
        return f"?{urlencode(self.texts)}" if self.texts else ""

    @property
    def others(self) -> dict[str, str]:
        """The rest of the query."""
        left_out = (*_NAMES, *_POSITIONS)
        return {name: text for name, text in self.query.items() if name not in left_out}

    def presets(self, default: str) -> list[tuple[str, str, bool]]:
        """Title, address, and whether it is the current one: `default` without any."""
        current = self.texts or {"since": default}
        return [
            (
                title,
                f"{self.path}?{urlencode(self.others | {'since': text})}",
                current == {"since": text},
            )
            for text, title in PRESETS.items()
        ]
