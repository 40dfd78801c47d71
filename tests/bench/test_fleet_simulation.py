"""The simulation keeps the rule that it is about, and finds what it has to find."""

from __future__ import annotations

from tests.bench.fleet_simulation import Budget, Fleet, Measured, Popularity, simulate

SMALL = Fleet(8, 2_000, keys=200, budget_seconds=2.0, expiry=1.0)


def test_the_same_seed_has_the_same_outcome() -> None:
    assert simulate(SMALL, seconds=2, seed=7) == simulate(SMALL, seconds=2, seed=7)
    assert simulate(SMALL, seconds=2, seed=7) != simulate(SMALL, seconds=2, seed=8)


def test_nothing_is_spent_beyond_a_budget_and_all_of_it_is_used() -> None:
    """Requests go on for twice as long as the budgets last."""
    outcome = simulate(SMALL, seconds=4)
    assert outcome.overspent == 0
    assert 0 < outcome.stranded < 0.15


def test_leases_are_granted_while_there_is_anything_left() -> None:
    budget, fleet = Budget(10), Fleet(2, 10, least_lease=4)
    used = 0
    while budget.grant(used % 2, 0.0, fleet):
        used += sum(budget.use(used % 2) for _ in range(10))
    assert (used, budget.left, budget.spent) == (10, 0, 10)


def test_a_lost_replica_is_missed_until_its_expiry() -> None:
    lost = simulate(SMALL, seconds=2)
    none = simulate(Fleet(8, 2_000, keys=200, budget_seconds=2.0, lost=0), seconds=2)
    assert lost.missed > 0 == none.missed


def test_more_requests_use_more_of_each_server() -> None:
    one = simulate(Fleet(4, 1_000, keys=100), seconds=1)
    ten = simulate(Fleet(40, 10_000, keys=100), seconds=1)
    assert ten.valkey_use > 9 * one.valkey_use
    assert ten.hottest_use > 9 * one.hottest_use
    assert ten.replica_use == one.replica_use
    slow = simulate(Fleet(4, 1_000, keys=100), Measured(script_rate=1_000), seconds=1)
    assert slow.valkey_use == 1.0


def test_popularity_is_zipfs() -> None:
    shares = Popularity(100, 1.0).shares
    assert abs(sum(shares) - 1) < 1e-9
    assert abs(shares[0] / shares[9] - 10) < 1e-9
