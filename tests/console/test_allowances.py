"""Limits and budgets as pages show them."""

from __future__ import annotations

import pytest

from gateway.console.allowances import Budget, budgets_of, counts_of, spent_by
from gateway.core.limits import LIMITS, UNLIMITED, Limits
from gateway.quota.limits import HolderKind, Quota

NOW = 1_790_000_000_000_000


@pytest.mark.parametrize(
    ("most", "spent", "percent"),
    [(100, 0, 0), (1000, 999, 99), (100, 100, 100), (100, 150, 100), (0, 0, 100)],
)
def test_how_much_of_a_budget_is_gone(most: int, spent: int, percent: int) -> None:
    assert Budget("Budget", most, spent).percent == percent


def test_only_what_is_set_is_shown() -> None:
    quota = Quota()
    quota.purse(HolderKind.KEY, "tok_1").load(9, 2, 5, NOW)
    spent = spent_by(quota, HolderKind.KEY, "tok_1", NOW)
    limits = Limits(concurrent=0, budget=10, budget_month=20)
    assert [(each.most, each.spent) for each in budgets_of(limits, spent)] == [(10, 9), (20, 5)]
    assert [most for _, most in counts_of(limits)] == [0]
    assert not budgets_of(UNLIMITED, spent)
    assert not list(counts_of(UNLIMITED))


def test_every_limit_has_a_title() -> None:
    everything = Limits(**dict.fromkeys(LIMITS, 1))
    spent = spent_by(Quota(), HolderKind.GROUP, "g", NOW)
    shown = [each.title for each in budgets_of(everything, spent)]
    shown += [title for title, _ in counts_of(everything)]
    assert len(set(shown)) == len(LIMITS)
