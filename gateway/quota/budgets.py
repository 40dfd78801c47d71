"""Days and months of UTC, as budgets know them. It must not know what is counted in them.

All times are Unix microseconds.

What one holder has spent and what its running requests may still spend. It must not know who the
holder is, nor what anything costs.

Money is in micro-units, times are Unix microseconds. What an exchange costs is spent in the day and
the month in which it began, as in the ledger; what is reserved weighs on every budget.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from gateway.core.limits import Limits

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


@dataclass(frozen=True, slots=True)
class BudgetShortfall:
    """A budget that has no room: its name (as in `gateway.core.limits.LIMITS`) and value, what is
    spent and reserved of it, and when it begins anew (None: never)."""

    budget: str
    limit: int
    spent: int
    reserved: int
    resets_at: int | None


class BudgetTracker:
    __slots__ = (
        "_day",
        "_day_begins",
        "_day_ends",
        "_month",
        "_month_begins",
        "_month_ends",
        "reserved",
        "total",
    )

    def __init__(self) -> None:
        self.total = 0
        self.reserved = 0
        self._day = self._day_begins = self._day_ends = 0
        self._month = self._month_begins = self._month_ends = 0

    def load(self, total: int, day: int, month: int, at: int) -> None:
        """What the ledger knows at a moment: spent in all, in its day and in its month."""
        self._roll_over(at)
        self.total = total
        self._day = day
        self._month = month

    def spent(self, at: int) -> tuple[int, int, int]:
        """In all, and in the day and the month of a moment that is not long past."""
        self._roll_over(at)
        return self.total, self._day, self._month

    def shortfall(self, limits: Limits, at: int, amount: int) -> BudgetShortfall | None:
        """The budget that has no room for `amount`, of several the one that is spent for longest;
        nothing always fits."""
        if not amount:
            return None
        self._roll_over(at)
        budgets = (
            ("budget", limits.budget, self.total, None),
            ("budget_month", limits.budget_month, self._month, self._month_ends),
            ("budget_day", limits.budget_day, self._day, self._day_ends),
        )
        for name, value, spent, resets_at in budgets:
            if value is not None and spent + self.reserved + amount > value:
                return BudgetShortfall(name, value, spent, self.reserved, resets_at)
        return None

    def reserve(self, amount: int) -> None:
        self.reserved += amount

    def settle(self, reserved: int, spent: int, at: int) -> None:
        """An exchange that began at `at` has ended: what was reserved for it, what it cost."""
        self._roll_over(at)
        self.reserved -= reserved
        self.total += spent
        if at >= self._day_begins:
            self._day += spent
        if at >= self._month_begins:
            self._month += spent

    def _roll_over(self, at: int) -> None:
        """A new day begins, and maybe a new month. Time only goes on: an earlier moment changes
        nothing."""
        if at < self._day_ends:
            return
        day = day_of(at)
        self._day, self._day_begins, self._day_ends = 0, day.start, day.end
        if at >= self._month_ends:
            month = month_of(at)
            self._month, self._month_begins, self._month_ends = 0, month.start, month.end
