"""Days and months of UTC, as budgets know them. It must not know what is counted in them.

All times are Unix microseconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

_MICROSECONDS: Final = 1_000_000
_DAY: Final = 86_400 * _MICROSECONDS


@dataclass(frozen=True, slots=True)
class Period:
    """A time that begins at `begins` and is over at `ends`."""

    start: int
    end: int


def day_of(at: int) -> Period:
    """The day of UTC that a moment lies in."""
    begins = at - at % _DAY
    return Period(begins, begins + _DAY)


def month_of(at: int) -> Period:
    """The month of UTC that a moment lies in."""
    moment = datetime.fromtimestamp(at // _MICROSECONDS, UTC)
    year, month = moment.year, moment.month
    return Period(_month_start(year, month), _month_start(year + month // 12, month % 12 + 1))


def format_utc(at: int) -> str:
    """A moment, down to its second, as people and programs read it: 2026-11-22T00:00:00Z."""
    return datetime.fromtimestamp(at // _MICROSECONDS, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _month_start(year: int, month: int) -> int:
    return int(datetime(year, month, 1, tzinfo=UTC).timestamp()) * _MICROSECONDS
