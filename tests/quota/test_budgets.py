"""Spent and reserved amounts of a holder, and exceeded budgets."""

from __future__ import annotations

from datetime import datetime

import pytest

from gateway.core.limits import BUDGETS, UNLIMITED, Budget, Budgets, Limits, budgets_of
from gateway.quota.budgets import BudgetShortfall, BudgetTracker
from tests.quota import holders


def at(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp()) * 1_000_000


NOON = at("2026-11-21T12:00:00Z")
DAY = 86_400_000_000
MIDNIGHT = at("2026-11-22T00:00:00Z")
NEXT_MONTH = at("2026-12-01T00:00:00Z")


def budget(name: str, limit: int) -> Budget:
    return Budget(BUDGETS[name], limit)


def in_units(limits: Limits) -> Budgets:
    return budgets_of(limits)[0]


def spent(budget_tracker: BudgetTracker, moment: int) -> tuple[int, int, int, int]:
    return *holders.spent(budget_tracker, moment), budget_tracker.reserved


def in_month(budget_tracker: BudgetTracker, moment: int) -> int:
    return spent(budget_tracker, moment)[1]


def in_day(budget_tracker: BudgetTracker, moment: int) -> int:
    return spent(budget_tracker, moment)[2]


def loaded(total: int = 0, day: int = 0, month: int = 0) -> BudgetTracker:
    budget_tracker = BudgetTracker()
    budget_tracker.load(total, {NOON: day, NOON - 2 * DAY: month - day})
    return budget_tracker


def test_a_tracker_starts_at_zero() -> None:
    assert spent(BudgetTracker(), NOON) == (0, 0, 0, 0)
    assert BudgetTracker().shortfall(in_units(UNLIMITED), NOON, 10**18) is None


def test_load_sets_the_amounts() -> None:
    assert spent(loaded(900, 10, 200), NOON) == (900, 200, 10, 0)


def test_loaded_amounts_belong_to_their_day_and_month() -> None:
    budget_tracker = loaded(900, 10, 200)
    assert spent(budget_tracker, MIDNIGHT - 1) == (900, 200, 10, 0)
    assert spent(budget_tracker, MIDNIGHT) == (900, 200, 0, 0)
    assert spent(budget_tracker, NEXT_MONTH - 1) == (900, 200, 0, 0)
    assert spent(budget_tracker, NEXT_MONTH) == (900, 0, 0, 0)


def test_a_month_without_its_day() -> None:
    budget_tracker = loaded(900, 10, 200)
    assert in_month(budget_tracker, NEXT_MONTH) == 0
    assert in_day(budget_tracker, NEXT_MONTH) == 0


def test_reserved_amounts_become_costs() -> None:
    budget_tracker = loaded(900, 10, 200)
    budget_tracker.reserved += 50
    budget_tracker.reserved += 7
    assert budget_tracker.reserved == 57
    budget_tracker.settle(50, 40, NOON)
    assert spent(budget_tracker, NOON) == (940, 240, 50, 7)
    budget_tracker.settle(7, 0, NOON)
    assert spent(budget_tracker, NOON) == (940, 240, 50, 0)


def test_a_cost_of_yesterday_is_not_spent_today() -> None:
    budget_tracker = loaded(900, 10, 200)
    budget_tracker.reserved += 5
    assert in_day(budget_tracker, MIDNIGHT) == 0
    budget_tracker.settle(5, 4, MIDNIGHT - 1)
    assert spent(budget_tracker, MIDNIGHT) == (904, 204, 0, 0)
    budget_tracker.settle(0, 3, MIDNIGHT)
    assert spent(budget_tracker, MIDNIGHT) == (907, 207, 3, 0)


def test_a_cost_of_last_month_counts_in_the_total_only() -> None:
    budget_tracker = loaded(900, 10, 200)
    assert in_month(budget_tracker, NEXT_MONTH) == 0
    budget_tracker.settle(0, 4, NEXT_MONTH - 1)
    assert spent(budget_tracker, NEXT_MONTH) == (904, 0, 0, 0)


def test_a_settlement_starts_a_new_day() -> None:
    budget_tracker = loaded(900, 10, 200)
    budget_tracker.settle(0, 4, MIDNIGHT + 1)
    assert spent(budget_tracker, MIDNIGHT + 1) == (904, 204, 4, 0)
    budget_tracker.settle(0, 5, NEXT_MONTH)
    assert spent(budget_tracker, NEXT_MONTH) == (909, 5, 5, 0)


def test_a_settlement_before_midnight_counts_until_midnight() -> None:
    budget_tracker = loaded()
    budget_tracker.settle(0, 4, MIDNIGHT - 1)
    assert in_day(budget_tracker, MIDNIGHT - 1) == 4
    assert in_day(budget_tracker, MIDNIGHT) == 0
    assert in_month(budget_tracker, MIDNIGHT) == 4


@pytest.mark.parametrize("step", [DAY, 2 * DAY, 20 * DAY, 400 * DAY, -DAY, -40 * DAY])
def test_a_clock_that_is_wrong_for_a_while_resets_no_budget(step: int) -> None:
    budget_tracker = loaded(900, 10, 200)
    month = 204 if abs(step) <= 2 * DAY else 200
    budget_tracker.settle(0, 4, NOON + step)
    assert spent(budget_tracker, NOON) == (904, month, 10, 0)
    budget_tracker.settle(0, 5, NOON)
    assert spent(budget_tracker, NOON) == (909, month + 5, 15, 0)
    assert in_day(budget_tracker, NOON + step) == 4


def test_a_tracker_forgets_the_oldest_periods() -> None:
    budget_tracker = BudgetTracker()
    for day in range(5000):
        budget_tracker.settle(0, 1, NOON + day * DAY)
    last = NOON + 4999 * DAY
    assert budget_tracker.total == 5000
    assert in_day(budget_tracker, last) == in_day(budget_tracker, last - 30 * DAY) == 1
    assert in_day(budget_tracker, NOON) == in_month(budget_tracker, NOON) == 0


@pytest.mark.parametrize(
    ("limits", "shortfall"),
    [
        (Limits(budget=1000), BudgetShortfall(budget("budget", 1000), 900, 30, None)),
        (
            Limits(budget_month=300),
            BudgetShortfall(budget("budget_month", 300), 200, 30, NEXT_MONTH),
        ),
        (Limits(budget_day=110), BudgetShortfall(budget("budget_day", 110), 10, 30, MIDNIGHT)),
    ],
)
def test_a_budget_limits_spent_reserved_and_requested_amounts(
    limits: Limits, shortfall: BudgetShortfall
) -> None:
    budget_tracker = loaded(900, 10, 200)
    budget_tracker.reserved += 30
    assert budget_tracker.shortfall(in_units(limits), NOON, 70) is None
    assert budget_tracker.shortfall(in_units(limits), NOON, 71) == shortfall


def test_the_budget_that_resets_last_is_reported() -> None:
    budget_tracker = loaded(900, 900, 900)
    everything = Limits(budget=900, budget_month=900, budget_day=900)
    for limits, named in (
        (everything, "budget"),
        (Limits(budget=901, budget_month=900, budget_day=900), "budget_month"),
        (Limits(budget=901, budget_month=901, budget_day=900), "budget_day"),
    ):
        shortfall = budget_tracker.shortfall(in_units(limits), NOON, 1)
        assert shortfall is not None
        assert shortfall.budget.kind.name == named


def test_a_new_day_resets_the_daily_budget() -> None:
    budget_tracker = loaded(900, 100, 200)
    limits = Limits(budget_day=100, budget_month=250)
    assert budget_tracker.shortfall(in_units(limits), MIDNIGHT - 1, 1) is not None
    assert budget_tracker.shortfall(in_units(limits), MIDNIGHT, 50) is None
    assert budget_tracker.shortfall(in_units(limits), MIDNIGHT, 51) == BudgetShortfall(
        budget("budget_month", 250), 200, 0, NEXT_MONTH
    )
    assert budget_tracker.shortfall(in_units(limits), NEXT_MONTH, 100) is None
    assert budget_tracker.shortfall(in_units(limits), NEXT_MONTH, 101) == BudgetShortfall(
        budget("budget_day", 100), 0, 0, NEXT_MONTH + DAY
    )


@pytest.mark.parametrize("name", ["budget", "budget_day", "budget_month"])
def test_a_budget_of_0_rejects_every_cost(name: str) -> None:
    shortfall = BudgetTracker().shortfall(in_units(Limits(**{name: 0})), NOON, 1)
    assert shortfall is not None
    assert shortfall.budget == budget(name, 0)
    assert BudgetTracker().shortfall(in_units(Limits(**{name: 1})), NOON, 1) is None


@pytest.mark.parametrize("budget", [900, 899, 0])
def test_a_cost_of_0_always_fits(budget: int) -> None:
    assert loaded(900).shortfall(in_units(Limits(budget=budget)), NOON, 0) is None
