"""What a replica may spend of a holder's budgets by its lease, and what all replicas have spent.

A lease is an amount that the database server has set aside for this replica: it admits requests
within it without asking. The other figures are those of all replicas when they were last read.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from gateway.core.limits import Budgets
from gateway.quota.budgets import BudgetShortfall, BudgetTracker


def _never() -> bool:
    return False


@dataclass(slots=True, eq=False)
class LeasedTracker(BudgetTracker):
    """`leased` is what the server has set aside and has not seen spent; `unsettled` the part of it
    that ended requests have spent, whose rows are not committed; `elsewhere` what other replicas
    hold. `reserved` is that of this replica's running requests. `used` only grows: what was
    spent here; `in_rows` what of it is committed. The lease was checked for requests that began at
    `checked_from` (Unix us) or later: an earlier one is charged to another day."""

    leased: int = 0
    unsettled: int = 0
    elsewhere: int = 0
    used: int = 0
    in_rows: int = 0
    checked_from: int = 0
    is_over: Callable[[], bool] = _never
    """Whether others may soon use what is leased here: nothing is admitted with it then."""

    @property
    def available(self) -> int:
        """Below 0 where requests cost more than they had reserved."""
        return self.leased - self.reserved - self.unsettled

    @property
    def reserved_in_all(self) -> int:
        return self.reserved + self.elsewhere

    @property
    def is_leased(self) -> bool:
        return True

    def covers(self, amount: int, at: int) -> bool:
        if not amount:
            return True
        return amount <= self.available and at >= self.checked_from and not self.is_over()

    def committed(self, spent: int) -> None:
        """The server has moved it from the lease to what is spent."""
        self.unsettled -= spent
        self.leased -= spent
        self.in_rows += spent

    def add_unsettled(self, at: int) -> None:
        """After `load`: what ended requests have spent is in none of its figures."""
        BudgetTracker.settle(self, 0, self.unsettled, at)

    def settle(self, reserved: int, spent: int, at: int) -> None:
        BudgetTracker.settle(self, reserved, spent, at)
        self.unsettled += spent
        self.used += spent

    def shortfall(self, budgets: Budgets, at: int, amount: int) -> BudgetShortfall | None:
        """None where the lease covers the amount, whatever the budgets are now: it was checked
        when the lease was granted. Else the budget that is in the way: where the figures of all
        replicas have room, the one with the least, as a lease may follow."""
        if not budgets or self.covers(amount, at):
            return None
        reserved = self.reserved_in_all
        shortfalls = [
            BudgetShortfall(
                budget,
                self.spent(budget.kind.window, at),
                reserved,
                self.time_of_room(budget, at, amount),
                self.elsewhere,
            )
            for budget in budgets
        ]
        exceeded = [each for each in shortfalls if _room(each) < amount]
        if exceeded:
            return max(exceeded, key=_reset_time)
        return min(shortfalls, key=_room)._replace(resets_at=None)

    def room(self, budgets: Budgets, at: int) -> int | None:
        """What the lease still covers; None without a budget."""
        return max(0, self.available) if budgets else None


def _room(shortfall: BudgetShortfall) -> int:
    return shortfall.budget.limit - shortfall.spent - shortfall.reserved


def _reset_time(shortfall: BudgetShortfall) -> float:
    return math.inf if shortfall.resets_at is None else shortfall.resets_at
