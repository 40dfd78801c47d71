"""Budgets in both currencies and all windows: what is reserved, and what their status says."""

from __future__ import annotations

import pytest

from gateway.core.limits import BUDGETS, BudgetWindow, Cost, Currency
from gateway.errors import InsufficientQuota, TooManyRequests
from gateway.quota.limits import BudgetStatus, HolderKind, Quota, ResourceRequest
from tests.quota.holders import NOON, NOW, gateway, group, key, refusal, take

HOUR = 3_600_000_000
STEP = HOUR // 12


def status(quota: Quota, at: int = NOON, **limits: int) -> BudgetStatus:
    (only,) = quota.budget_statuses([key(**limits)], at)
    return only


@pytest.mark.parametrize("name", BUDGETS)
def test_every_budget_rejects_what_exceeds_it(name: str) -> None:
    quota, laptop, kind = Quota(), key(**{name: 100}), BUDGETS[name]
    in_usd = kind.currency is Currency.USD
    cost = {"micro": 10**9, "usd": 60} if in_usd else {"micro": 60, "usd": 10**9}
    take(quota, laptop, **cost).settle(1, Cost(cost["micro"], cost["usd"]))
    error = refusal(quota, laptop, **cost)
    assert type(error) is InsufficientQuota
    assert ("$0.0001:" if in_usd else "0.0001 units:") in error.message
    only = status(quota, **{name: 100})
    assert (only.budget.kind, only.budget.limit, only.spent, only.reserved) == (kind, 100, 60, 0)
    assert only.remaining == 40


@pytest.mark.parametrize("name", BUDGETS)
def test_what_running_requests_have_reserved_is_a_wait(name: str) -> None:
    quota, laptop, kind = Quota(), key(**{name: 100, "concurrent": 2}), BUDGETS[name]

    def cost(amount: int) -> dict[str, int]:
        in_usd = kind.currency is Currency.USD
        return {"micro": 0, "usd": amount} if in_usd else {"micro": amount, "usd": 0}

    take(quota, laptop, **cost(30)).settle(1, Cost(*cost(30).values()))
    running = take(quota, laptop, **cost(60))
    error = refusal(quota, laptop, **cost(70))
    assert type(error) is TooManyRequests
    assert (error.status, error.code) == (429, "rate_limit_exceeded")
    assert error.headers() == {"retry-after": "1"}
    assert error.holder == (HolderKind.KEY, "key_1")
    assert error.message.startswith("Too Many Requests: key laptop: ")
    assert error.message.endswith("; it may have room when they have ended")
    assert type(refusal(quota, laptop, **cost(71))) is InsufficientQuota
    running.settle(1, Cost(0, 0))
    take(quota, laptop, **cost(70))


@pytest.mark.parametrize("apart", [False, True])
def test_a_spent_budget_is_final_beside_one_that_is_reserved(apart: bool) -> None:
    """The reserved one resets later, or never."""
    quota = Quota()
    holders = [key(budget_day=50), group(budget=100)] if apart else [key(budget_day=50, budget=100)]
    take(quota, *holders, micro=40).settle(1, Cost(40))
    running = take(quota, *holders, micro=50, at=NOON + 24 * HOUR)
    assert running.cost.units == 50
    error = refusal(quota, *holders, micro=11)
    assert type(error) is InsufficientQuota
    assert "daily budget of 0.00005 units: 0.00004 spent" in error.message


def test_a_lease_reserves_and_settles_both_currencies() -> None:
    quota, laptop, team = Quota(), key(budget=1000), group(budget_usd_week=500)
    reservation = take(quota, laptop, team, micro=100, usd=40)
    reservation.extend(30, Cost(300, 20))
    assert reservation.cost == (300, 40), "it never shrinks"
    with pytest.raises(InsufficientQuota, match=r"group team: weekly budget of \$0\.0005"):
        reservation.extend(50, Cost(400, 501))
    assert reservation.cost == (300, 40), "both or none"
    reservation.settle(45, Cost(450, 60))
    for kind, id in ((HolderKind.KEY, "key_1"), (HolderKind.GROUP, "team")):
        units, usd = (quota.budget(kind, id, each) for each in Currency)
        assert (units.reserved, units.total, usd.reserved, usd.total) == (0, 450, 0, 60)


def test_the_longest_reply_is_reserved_as_far_as_each_budget_has_room() -> None:
    quota, holders = Quota(), (key(budget_usd_5h=99), group(budget_week=1000), gateway())
    request = ResourceRequest(holders, NOON, 10, Cost(100, 50), Cost(400, 200))
    assert quota.acquire(request, NOW).cost == (400, 99)


def test_the_status_of_a_rolling_budget() -> None:
    """With room, when it is unused again; used up, when it has room again."""
    quota, laptop = Quota(), key(budget_5h=100)
    for hours in (0, 1, 2):
        take(quota, laptop, micro=30, at=NOON + hours * HOUR).settle(1, Cost(30))
    at = NOON + 2 * HOUR
    assert status(quota, at, budget_5h=100).resets_at == NOON + 7 * HOUR + STEP
    assert status(quota, at, budget_5h=90).resets_at == NOON + 5 * HOUR + STEP
    assert status(quota, at, budget_5h=60).resets_at == NOON + 6 * HOUR + STEP
    assert status(Quota(), at, budget_5h=90).resets_at is None
    reservation = take(quota, laptop, micro=10, at=at)
    used_up = status(quota, at, budget_5h=100)
    assert (used_up.reserved, used_up.remaining) == (10, 0)
    assert used_up.resets_at == NOON + 5 * HOUR + STEP
    reservation.settle(1, Cost())


def test_the_status_of_other_budgets() -> None:
    quota = Quota()
    midnight, month = NOON + 12 * HOUR, NOON + (9 * 24 + 12) * HOUR
    assert status(quota, budget_day=1).resets_at == midnight
    assert status(quota, budget_usd_month=1).resets_at == month
    assert status(quota, budget=0).resets_at is None
    everything = key(**dict.fromkeys(BUDGETS, 1))
    statuses = list(quota.budget_statuses([everything, group(), gateway()], NOON))
    assert [each.budget.kind.name for each in statuses] == list(BUDGETS)
    assert {each.budget.kind.window for each in statuses} == set(BudgetWindow)


def test_the_rejection_says_when_there_is_room_for_this_request() -> None:
    quota, laptop = Quota(), key(budget_5h=100)
    for hours in (0, 1):
        take(quota, laptop, micro=40, at=NOON + hours * HOUR).settle(1, Cost(40))
    at = NOON + 2 * HOUR
    for micro, hour in ((21, "17:05"), (61, "18:05")):
        error = refusal(quota, laptop, micro=micro, at=at)
        assert error.message.endswith(f"has room again at 2026-11-21T{hour}:00Z")
    take(quota, laptop, micro=21, at=NOON + 5 * HOUR + STEP)
