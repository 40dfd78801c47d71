"""Budgets of one replica among several: admission within a lease.

A lease is an amount of a holder's budgets that the database server has reserved for this replica,
so that it admits requests within it without asking. Other amounts are those of all replicas as of
the last reading. All amounts are in micro-units of the tracker's currency."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gateway.core.limits import Budgets
from gateway.quota.budgets import BudgetShortfall, BudgetTracker, reset_time


@dataclass(slots=True, eq=False)
class LeasedTracker(BudgetTracker):
    """`leased`: this replica's lease, less what it has committed. `unsettled`: the part of it that
    ended requests have spent, whose rows are not committed yet. `reserved`: that of running
    requests. `elsewhere`: the leases of other replicas.

    `used` is what was ever spent here, `in_rows` the committed part of it; both only grow. The
    lease covers requests that started at `checked_from` (Unix us) or later: earlier ones are
    charged to a day for which it was not checked."""

    leased: int = 0
    unsettled: int = 0
    elsewhere: int = 0
    used: int = 0
    in_rows: int = 0
    checked_from: int = 0
    is_over: Callable[[], bool] = bool
    """Whether the lease has ended or may end soon: nothing is admitted with it then."""

    @property
    def available(self) -> int:
        """Returns what the lease still covers; below 0 if requests cost more than they had
        reserved."""
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
        """A row was committed: the server has moved its cost from the lease to the spending."""
        self.unsettled -= spent
        self.leased -= spent
        self.in_rows += spent

    def add_unsettled(self, at: int) -> None:
        """Call it after `load`, whose figures lack the cost of rows that are not committed."""
        BudgetTracker.settle(self, 0, self.unsettled, at)

    def settle(self, reserved: int, spent: int, at: int) -> None:
        BudgetTracker.settle(self, reserved, spent, at)
        self.unsettled += spent
        self.used += spent

    def shortfall(self, budgets: Budgets, at: int, amount: int) -> BudgetShortfall | None:
        """Returns the budget that prevents the amount; None if the lease covers it: budgets were
        checked when it was granted. If all budgets have room by the figures of all replicas, that
        is the one with the least room, and it has no reset time: a larger lease may follow."""
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
            return max(exceeded, key=reset_time)
        return min(shortfalls, key=_room)._replace(resets_at=None)

    def room(self, budgets: Budgets, at: int) -> int | None:
        """Returns what the lease still covers; None without a budget."""
        return max(0, self.available) if budgets else None


def _room(shortfall: BudgetShortfall) -> int:
    return shortfall.budget.limit - shortfall.spent - shortfall.reserved
