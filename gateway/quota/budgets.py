"""What a holder of budgets has spent, and what its running requests may still spend.

Money is in micro-units, times are unix microseconds, days and months are in UTC. A cost belongs to
the day and the month in which its exchange began; reserved amounts count in every budget. Every
period has its own amount, so that a clock that is wrong for a while resets no budget.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
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
_KEPT_PERIODS: Final = 100
"""Days, and months, of which a tracker knows the spent amount."""


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
    """`total` is all that was spent; the other amounts are by the start of their period."""

    total: int = 0
    reserved: int = 0
    _days: dict[int, int] = field(default_factory=dict)
    _months: dict[int, int] = field(default_factory=dict)
    _month: Period = _NEVER

    def load(self, total: int, by_day: Mapping[int, int]) -> None:
        """Sets what was spent in total, and on days, given as any time of theirs."""
        self.total = total
        self._days, self._months = {}, {}
        for at, spent in by_day.items():
            self._add(spent, at)

    def spent(self, at: int) -> tuple[int, int, int]:
        """In total, and in the day and the month of `at`."""
        day, month = day_of(at), self._month_of(at)
        return self.total, self._days.get(day.start, 0), self._months.get(month.start, 0)

    def shortfall(self, limits: Limits, at: int, amount: int) -> BudgetShortfall | None:
        """The budget that `amount` exceeds; of several the one that resets last. 0 always fits."""
        if not amount:
            return None
        total, day, month = self.spent(at)
        budgets = (
            ("budget", limits.budget, total, None),
            ("budget_month", limits.budget_month, month, self._month_of(at).end),
            ("budget_day", limits.budget_day, day, day_of(at).end),
        )
        for name, limit, spent, resets_at in budgets:
            if limit is not None and spent + self.reserved + amount > limit:
                return BudgetShortfall(name, limit, spent, self.reserved, resets_at)
        return None

    def room(self, limits: Limits, at: int) -> int | None:
        """What fits every budget; None without one."""
        budgets = limits.budget, limits.budget_day, limits.budget_month
        rooms = [
            limit - spent - self.reserved
            for limit, spent in zip(budgets, self.spent(at), strict=True)
            if limit is not None
        ]
        return min(rooms, default=None)

    def settle(self, reserved: int, spent: int, at: int) -> None:
        """An exchange that began at `at` has ended: what it had reserved, and its cost."""
        self.reserved -= reserved
        if spent:
            self.total += spent
            self._add(spent, at)

    def _add(self, spent: int, at: int) -> None:
        day, month = at - at % _DAY, self._month
        if not month.start <= at < month.end:
            month = self._month_of(at)
        for amounts, start in ((self._days, day), (self._months, month.start)):
            if start in amounts:
                amounts[start] += spent
            else:
                _add_period(amounts, start, spent)

    def _month_of(self, at: int) -> Period:
        """Of the last request too, in most cases."""
        if not self._month.start <= at < self._month.end:
            self._month = month_of(at)
        return self._month


def _add_period(amounts: dict[int, int], start: int, spent: int) -> None:
    amounts[start] = spent
    if len(amounts) > _KEPT_PERIODS:
        del amounts[min(amounts)]
