"""Holders with budgets of a day alone: end users and sessions."""

from __future__ import annotations

import pytest

from gateway.core.limits import Cost, Limits
from gateway.errors import InsufficientQuota
from gateway.quota.leased_budgets import LeasedTracker
from gateway.quota.limits import Holder, HolderKind, Quota, ResourceRequest

DAY = 86_400_000_000
HOUR = DAY // 24
AT = 20_000 * DAY
"""A midnight."""


def user(name: str = "alice") -> Holder:
    return Holder(HolderKind.END_USER, f"tok_0 {name}", name, Limits(budget_day=100))


def spend(quota: Quota, holder: Holder, at: int, units: int = 60) -> None:
    quota.acquire(ResourceRequest((holder,), at, 0, Cost(units)), 0.0).settle(0, Cost(units))


def names(quota: Quota) -> set[str]:
    return {id.partition(" ")[2] for _, id in quota._usages}


@pytest.mark.parametrize("kind", [HolderKind.END_USER, HolderKind.SESSION])
def test_the_error_does_not_say_who_it_is(kind: HolderKind) -> None:
    quota, holder = Quota(), Holder(kind, "tok_0 alice", "alice", Limits(budget_day=100))
    spend(quota, holder, AT)
    with pytest.raises(InsufficientQuota) as refused:
        spend(quota, holder, AT)
    assert f"this {kind.replace('_', ' ')}: daily budget of" in refused.value.message
    assert "alice" not in refused.value.message
    spend(quota, holder, AT + DAY)


def test_who_has_spent_nothing_today_is_forgotten_after_the_first_hour() -> None:
    quota = Quota()
    quota.forget_past(AT - HOUR)
    for name in ("alice", "bob", "carol"):
        spend(quota, user(name), AT - HOUR)
    running = quota.acquire(ResourceRequest((user("carol"),), AT - 1, 0, Cost(10)), 0.0)
    spend(quota, user("alice"), AT + 1)
    spend(quota, Holder(HolderKind.KEY, "tok_0 key", "key", Limits(budget_day=100)), AT - HOUR)
    quota.forget_past(AT + HOUR - 1)
    assert names(quota) == {"alice", "bob", "carol", "key"}
    with pytest.raises(InsufficientQuota):
        spend(quota, user("bob"), AT - 1)
    quota.forget_past(AT + HOUR)
    assert names(quota) == {"alice", "carol", "key"}
    running.settle(0, Cost(10))
    with pytest.raises(InsufficientQuota):
        spend(quota, user("alice"), AT + 2 * HOUR)
    quota.forget_past(AT + DAY + HOUR)
    assert names(quota) == {"key"}


def test_an_earlier_request_that_ends_later_does_not_hide_what_is_spent_today() -> None:
    quota = Quota()
    late = quota.acquire(ResourceRequest((user(),), AT - 1, 0, Cost(10)), 0.0)
    spend(quota, user(), AT + 1)
    late.settle(0, Cost(10))
    quota.forget_past(AT + HOUR)
    with pytest.raises(InsufficientQuota):
        spend(quota, user(), AT + 2 * HOUR)


def test_leases_end_before_their_holders_are_forgotten() -> None:
    quota = Quota(LeasedTracker)
    quota.budget(HolderKind.END_USER, "tok_0 alice")
    quota.forget_past(AT)
    assert names(quota) == {"alice"}
    quota.forget(HolderKind.END_USER, "tok_0 alice")
    assert names(quota) == set()
