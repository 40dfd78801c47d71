"""What a holder of budgets has spent, and what its running requests may still spend.

Money is in micro-units, times are unix microseconds, days and months are in UTC. A cost belongs to
the day and the month in which its exchange began; reserved amounts count in every budget.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, NamedTuple

from gateway.core.limits import Limits

_SECOND: Final = 1_000_000
_DAY: Final = 86_400 * _SECOND


class Period(NamedTuple):
    """`end` is excluded."""

    start: int
    end: int


def day_of(at: int) -> Period:
    start = at - at % _DAY
    return Period(start, start + _DAY)


def month_of(at: int) -> Period:
    moment = datetime.fromtimestamp(at // _SECOND, UTC)
    year, month = moment.year, moment.month
    return Period(_month_start(year, month), _month_start(year + month // 12, month % 12 + 1))


def format_utc(at: int) -> str:
    """2026-11-22T00:00:00Z."""
    return datetime.fromtimestamp(at // _SECOND, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _month_start(year: int, month: int) -> int:
    return int(datetime(year, month, 1, tzinfo=UTC).timestamp()) * _SECOND


_NEVER: Final = Period(0, 0)


class BudgetShortfall(NamedTuple):
    """An exceeded budget: its name (of `LIMIT_NAMES`), limit, spent and reserved amounts, and when
    it resets (None: never)."""

    budget: str
    limit: int
    spent: int
    reserved: int
    resets_at: int | None


@dataclass(slots=True, eq=False)
class BudgetTracker:
    """`total` is all that was spent."""

    total: int = 0
    reserved: int = 0
    _day: Period = _NEVER
    _month: Period = _NEVER
    _day_spent: int = 0
    _month_spent: int = 0

    def load(self, total: int, day: int, month: int, at: int) -> None:
        """Sets what was spent in total, in the day and in the month of `at`."""
        self._roll_over(at)
        self.total = total
        self._day_spent = day
        self._month_spent = month

    def spent(self, at: int) -> tuple[int, int, int]:
        """In total, in the current day and in the current month."""
        self._roll_over(at)
        return self.total, self._day_spent, self._month_spent

    def shortfall(self, limits: Limits, at: int, amount: int) -> BudgetShortfall | None:
        """The budget that `amount` exceeds; of several the one that resets last. 0 always fits."""
        if not amount:
            return None
        self._roll_over(at)
        budgets = (
            ("budget", limits.budget, self.total, None),
            ("budget_month", limits.budget_month, self._month_spent, self._month.end),
            ("budget_day", limits.budget_day, self._day_spent, self._day.end),
        )
        for name, limit, spent, resets_at in budgets:
            if limit is not None and spent + self.reserved + amount > limit:
                return BudgetShortfall(name, limit, spent, self.reserved, resets_at)
        return None

    def settle(self, reserved: int, spent: int, at: int) -> None:
        """An exchange that began at `at` has ended: what it had reserved, and its cost."""
        self._roll_over(at)
        self.reserved -= reserved
        self.total += spent
        if at >= self._day.start:
            self._day_spent += spent
        if at >= self._month.start:
            self._month_spent += spent

    def _roll_over(self, at: int) -> None:
        """Starts a new day or month; an earlier time changes nothing."""
        if at < self._day.end:
            return
        self._day, self._day_spent = day_of(at), 0
        if at >= self._month.end:
            self._month, self._month_spent = month_of(at), 0
