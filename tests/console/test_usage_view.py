"""Limits and budgets as pages show them."""

from __future__ import annotations

import pytest

from gateway.console.usage_view import BudgetRow, budget_rows, limit_rows, spend_of
from gateway.core.limits import LIMIT_NAMES, UNLIMITED, Cost, Currency, Limits
from gateway.quota.limits import Holder, HolderKind, Quota

NOW = 1_790_000_000_000_000


@pytest.mark.parametrize(
    ("limit", "spent", "percent"),
    [(100, 0, 0), (1000, 999, 99), (100, 100, 100), (100, 150, 100), (0, 0, 100)],
)
def test_percentage_of_a_budget(limit: int, spent: int, percent: int) -> None:
    assert BudgetRow("Budget", Currency.UNITS, limit, spent).percent == percent


def test_only_configured_limits_have_rows() -> None:
    quota = Quota()
    quota.budget(HolderKind.KEY, "tok_1").load(9, {NOW: 5})
    quota.budget(HolderKind.KEY, "tok_1", Currency.USD).load(4, {}, {}, {NOW: 3})
    limits = Limits(concurrent=0, budget=10, budget_month=20, budget_usd_5h=30)
    assert rows(quota, limits) == [
        ("Total budget", 10, 9),
        ("Monthly budget", 20, 5),
        ("5-hour budget in USD", 30, 3),
    ]
    assert [limit for _, limit in limit_rows(limits)] == [0]
    assert not rows(quota, UNLIMITED)
    assert not list(limit_rows(UNLIMITED))


def rows(quota: Quota, limits: Limits) -> list[tuple[str, int, int]]:
    holder = Holder(HolderKind.KEY, "tok_1", "laptop", limits)
    return [(row.title, row.limit, row.spent) for row in budget_rows(quota, holder, NOW)]


def test_what_was_spent_in_both_currencies() -> None:
    quota = Quota()
    quota.budget(HolderKind.KEY, "tok_1").load(9, {NOW: 5})
    quota.budget(HolderKind.KEY, "tok_1", Currency.USD).load(4, {})
    spent = spend_of(quota, HolderKind.KEY, "tok_1", NOW)
    assert (spent.total, spent.day, spent.month) == (Cost(9, 4), Cost(5), Cost(5))


def test_every_limit_has_a_title() -> None:
    everything = Limits(**dict.fromkeys(LIMIT_NAMES, 1))
    titles = [title for title, _, _ in rows(Quota(), everything)]
    titles += [title for title, _ in limit_rows(everything)]
    assert len(set(titles)) == len(LIMIT_NAMES)
