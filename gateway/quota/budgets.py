"""What a holder of budgets has spent in a currency, and what its running requests may still spend.

Money is in millionths, times are unix microseconds, days and months are in UTC. A cost belongs to
the time at which its exchange began; reserved amounts count in every budget. Every period has its
own amount, so that a clock that is wrong for a while resets no budget.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, NamedTuple

from gateway.core.limits import Budget, Budgets, BudgetWindow

_SECOND: Final = 1_000_000
_HOUR: Final = 3_600 * _SECOND
_DAY: Final = 24 * _HOUR

FIVE_HOURS: Final = 5 * _HOUR
FIVE_HOURS_STEP: Final = _HOUR // 12
WEEK: Final = 7 * _DAY
WEEK_STEP: Final = _HOUR


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


NOTHING: Final[Mapping[int, int]] = {}
_NEVER: Final = Period(0, 0)
_KEPT_PERIODS: Final = 100
"""Days, and months, of which a tracker knows the spent amount."""


class BudgetShortfall(NamedTuple):
    """An exceeded budget: what is spent and reserved of it, and when it resets, or in a rolling
    window, when there is room again (None: never, or when running requests have ended).
    `elsewhere` is what other replicas have leased of it, a part of what is reserved."""

    budget: Budget
    spent: int
    reserved: int
    resets_at: int | None
    elsewhere: int = 0


class RollingWindow:
    """The amount spent in the last hours, in steps: exact to a step, and never less than it was.

    An amount counts from its own time on, until its step is older than the window: at most a step
    longer than the window. Where the clock was set back, amounts of what is now the future count
    too, up to the length of a window. It keeps the newest steps, twice as many as the window has.
    """

    __slots__ = ("_amounts", "_first", "_last", "_length", "_step", "_sum")

    def __init__(self, length: int, step: int) -> None:
        """`length` is a multiple of `step`, both in microseconds."""
        self._length = length
        self._step = step
        self._amounts: dict[int, int] = {}
        self._first, self._last, self._sum = 0, -1, 0

    def add(self, amount: int, at: int) -> None:
        amounts, start = self._amounts, at - at % self._step
        if start in amounts:
            amounts[start] += amount
        else:
            amounts[start] = amount
            if len(amounts) > 2 * self._length // self._step:
                oldest = min(amounts)
                removed = amounts.pop(oldest)
                if self._first <= oldest <= self._last:
                    self._sum -= removed
        if self._first <= start <= self._last:
            self._sum += amount

    def spent(self, at: int) -> int:
        """Returns the amount spent in the window that ends at this time."""
        start = at - at % self._step
        first, last = start - self._length, start + self._length
        if first != self._first:
            self._first, self._last = first, last
            self._sum = sum(
                amount for each, amount in self._amounts.items() if first <= each <= last
            )
        return self._sum

    def time_of_room(self, at: int, most: int) -> int | None:
        """Returns when no more than `most` is spent in the window, or nothing, if nothing is added;
        None if it is so now."""
        spent, time = self.spent(at), None
        for start in sorted(self._amounts):
            if spent <= most:
                break
            if self._first <= start <= self._last:
                spent -= self._amounts[start]
                time = start + self._step + self._length
        return time


@dataclass(slots=True, eq=False)
class BudgetTracker:
    """`total` is all that was spent; the other amounts are by the start of their period, without
    that of the latest step, which is added to them when the next one begins, or they are read."""

    total: int = 0
    reserved: int = 0
    _step_start: int = 0
    _step_spent: int = 0
    _days: dict[int, int] = field(default_factory=dict)
    _months: dict[int, int] = field(default_factory=dict)
    _month: Period = _NEVER
    _hours: RollingWindow = field(
        default_factory=lambda: RollingWindow(FIVE_HOURS, FIVE_HOURS_STEP)
    )
    _week: RollingWindow = field(default_factory=lambda: RollingWindow(WEEK, WEEK_STEP))

    @property
    def reserved_in_all(self) -> int:
        """Returns what the running requests of all replicas have reserved."""
        return self.reserved

    @property
    def is_leased(self) -> bool:
        """Tells whether a database server decides what this replica may spend."""
        return False

    def load(
        self,
        total: int,
        by_day: Mapping[int, int],
        by_hour: Mapping[int, int] = NOTHING,
        latest: Mapping[int, int] = NOTHING,
    ) -> None:
        """Sets what was spent in total, and in days, hours and steps of five minutes, given as any
        time of theirs: of the last month, the last week and the last five hours, at least."""
        fresh = BudgetTracker()
        for at, spent in by_day.items():
            fresh._add_to_periods(spent, at)
        for at, spent in by_hour.items():
            fresh._week.add(spent, at)
        for at, spent in latest.items():
            fresh._hours.add(spent, at)
        self.total, self._days, self._months = total, fresh._days, fresh._months
        self._hours, self._week, self._step_spent = fresh._hours, fresh._week, 0

    def spent(self, window: BudgetWindow, at: int) -> int:
        """Returns the amount spent in the window that `at` belongs to, or that ends with it."""
        self._end_step()
        match window:
            case BudgetWindow.DAY:
                return self._days.get(at - at % _DAY, 0)
            case BudgetWindow.MONTH:
                return self._months.get(self._month_of(at).start, 0)
            case BudgetWindow.FIVE_HOURS:
                return self._hours.spent(at)
            case BudgetWindow.WEEK:
                return self._week.spent(at)
            case _:
                return self.total

    def has_spent_on(self, day: int) -> bool:
        """Tells, of the current day, whether anything was spent on it; `day` is its start."""
        return self._step_start >= day or day in self._days

    def time_of_room(self, budget: Budget, at: int, amount: int) -> int | None:
        """Returns when the amount fits a budget in which it does not fit now; None: never, or when
        running requests have ended. A day and a month begin anew for any amount."""
        self._end_step()
        match budget.kind.window:
            case BudgetWindow.DAY:
                return day_of(at).end
            case BudgetWindow.MONTH:
                return self._month_of(at).end
            case BudgetWindow.FIVE_HOURS:
                return self._hours.time_of_room(at, budget.limit - self.reserved - amount)
            case BudgetWindow.WEEK:
                return self._week.time_of_room(at, budget.limit - self.reserved - amount)
            case _:
                return None

    def shortfall(self, budgets: Budgets, at: int, amount: int) -> BudgetShortfall | None:
        """The budget that `amount` exceeds; of several the one that resets last. 0 always fits."""
        if not amount:
            return None
        exceeded = [
            BudgetShortfall(budget, spent, self.reserved, self.time_of_room(budget, at, amount))
            for budget in budgets
            if (spent := self.spent(budget.kind.window, at)) + self.reserved + amount > budget.limit
        ]
        return max(exceeded, key=reset_time, default=None)

    def room(self, budgets: Budgets, at: int) -> int | None:
        """Returns the amount that fits every budget; None without a budget."""
        rooms = [
            budget.limit - self.spent(budget.kind.window, at) - self.reserved for budget in budgets
        ]
        return min(rooms, default=None)

    def without_room(self, budgets: Budgets, at: int, amount: int) -> Budgets:
        """Returns the budgets that `amount` would exceed even if no running request had reserved
        anything."""
        return tuple(
            budget
            for budget in budgets
            if self.spent(budget.kind.window, at) + amount > budget.limit
        )

    def settle(self, reserved: int, spent: int, at: int) -> None:
        """An exchange that began at `at` has ended: what it had reserved, and its cost."""
        self.reserved -= reserved
        if not spent:
            return
        self.total += spent
        if not 0 <= at - self._step_start < FIVE_HOURS_STEP:
            self._end_step()
            self._step_start = at - at % FIVE_HOURS_STEP
        self._step_spent += spent

    def _end_step(self) -> None:
        """Ends a step: every period consists of whole steps."""
        spent, at = self._step_spent, self._step_start
        if spent:
            self._step_spent = 0
            self._add_to_periods(spent, at)
            self._hours.add(spent, at)
            self._week.add(spent, at)

    def _add_to_periods(self, spent: int, at: int) -> None:
        day, month = at - at % _DAY, self._month
        if not month.start <= at < month.end:
            month = self._month_of(at)
        for amounts, start in ((self._days, day), (self._months, month.start)):
            if start in amounts:
                amounts[start] += spent
            else:
                _add_period(amounts, start, spent)

    def _month_of(self, at: int) -> Period:
        """Returns the month of a time, in most cases the last request's month."""
        if not self._month.start <= at < self._month.end:
            self._month = month_of(at)
        return self._month


def reset_time(shortfall: BudgetShortfall) -> float:
    return math.inf if shortfall.resets_at is None else shortfall.resets_at


def _add_period(amounts: dict[int, int], start: int, spent: int) -> None:
    amounts[start] = spent
    if len(amounts) > _KEPT_PERIODS:
        del amounts[min(amounts)]
