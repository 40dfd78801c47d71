"""Limits and budgets as pages show them."""

from __future__ import annotations

import pytest

from gateway.console.usage_view import BudgetRow, budget_rows, limit_rows, spend_of
from gateway.core.limits import LIMIT_NAMES, UNLIMITED, Limits
from gateway.quota.limits import HolderKind, Quota

NOW = 1_790_000_000_000_000


@pytest.mark.parametrize(
    ("limit", "spent", "percent"),
    [(100, 0, 0), (1000, 999, 99), (100, 100, 100), (100, 150, 100), (0, 0, 100)],
)
def test_percentage_of_a_budget(limit: int, spent: int, percent: int) -> None:
    assert BudgetRow("Budget", limit, spent).percent == percent


def test_only_configured_limits_have_rows() -> None:
    quota = Quota()
    quota.budget(HolderKind.KEY, "tok_1").load(9, {NOW: 5})
    spent = spend_of(quota, HolderKind.KEY, "tok_1", NOW)
    limits = Limits(concurrent=0, budget=10, budget_month=20)
    assert [(row.limit, row.spent) for row in budget_rows(limits, spent)] == [(10, 9), (20, 5)]
    assert [limit for _, limit in limit_rows(limits)] == [0]
    assert not budget_rows(UNLIMITED, spent)
    assert not list(limit_rows(UNLIMITED))


def test_every_limit_has_a_title() -> None:
    everything = Limits(**dict.fromkeys(LIMIT_NAMES, 1))
    spent = spend_of(Quota(), HolderKind.GROUP, "g", NOW)
    titles = [row.title for row in budget_rows(everything, spent)]
    titles += [title for title, _ in limit_rows(everything)]
    assert len(set(titles)) == len(LIMIT_NAMES)
