"""Requests are admitted or rejected by the limits of all their holders."""

from __future__ import annotations

import pytest

from gateway.core.limits import MICRO_PER_UNIT, UNLIMITED, Cost, Limits
from gateway.errors import InsufficientQuota, TooManyRequests, TooManyTokens
from gateway.quota.limits import Holder, HolderKind, Quota, ResourceRequest
from tests.quota.holders import (
    NOON,
    NOW,
    gateway,
    group,
    key,
    refusal,
    requests_left,
    take,
    tokens_left,
)

DAY = 86_400 * MICRO_PER_UNIT


def test_without_limits_everything_is_admitted() -> None:
    quota = Quota()
    for holder in (key(), Holder(HolderKind.KEY, "key_2", "desk", UNLIMITED)):
        for _ in range(100):
            take(quota, holder, tokens=10**12, micro=10**15)


def test_requests_per_minute() -> None:
    quota, laptop = Quota(), key(requests_per_minute=2)
    take(quota, laptop, now=0.0).settle(0, Cost(0))
    take(quota, laptop, now=10.0)
    error = refusal(quota, laptop, now=15.5)
    assert type(error) is TooManyRequests
    assert error.retry_after == 44.5
    assert error.message == (
        "Too Many Requests: key laptop: 2 of 2 requests per minute used; try again in 45 s"
    )
    take(quota, laptop, now=60.0)
    assert refusal(quota, laptop, now=60.0).retry_after == 10.0


def test_tokens_per_minute() -> None:
    quota, team = Quota(), group(tokens_per_minute=100)
    take(quota, team, tokens=60, now=0.0)
    take(quota, team, tokens=40, now=10.0)
    error = refusal(quota, team, tokens=1, now=20.0)
    assert type(error) is TooManyTokens
    assert error.retry_after == 40.0
    assert error.message == (
        "Too Many Requests: group team: 100 of 100 tokens per minute used, "
        "this request may use 1; try again in 40 s"
    )
    take(quota, team, tokens=60, now=60.0)


def test_a_request_over_the_limit_never_fits() -> None:
    error = refusal(Quota(), group(tokens_per_minute=100), tokens=101)
    assert type(error) is TooManyTokens
    assert error.permanent
    assert error.retry_after is None


def test_tokens_are_adjusted_to_real_usage() -> None:
    quota, laptop = Quota(), key(tokens_per_minute=100)
    reservation = take(quota, laptop, tokens=60)
    assert tokens_left(quota, laptop) == 40
    reservation.settle(25, Cost(0))
    assert tokens_left(quota, laptop) == 75
    take(quota, laptop, tokens=75).settle(95, Cost(0))
    assert tokens_left(quota, laptop) == 0
    assert refusal(quota, laptop, tokens=1).retry_after == 60.0


def test_concurrent_requests() -> None:
    quota, everybody = Quota(), gateway(concurrent=2)
    first, second = take(quota, everybody), take(quota, everybody)
    error = refusal(quota, everybody)
    assert type(error) is TooManyRequests
    assert error.retry_after == 1.0
    assert error.message == ("Too Many Requests: the gateway: 2 of 2 concurrent requests running")
    first.settle(1, Cost(1))
    take(quota, everybody).settle(0, Cost(0))
    take(quota, everybody)
    refusal(quota, everybody)
    second.settle(0, Cost(0))
    take(quota, everybody)


@pytest.mark.parametrize(
    ("budget", "period"),
    [("budget", "total"), ("budget_day", "daily"), ("budget_month", "monthly")],
)
def test_budgets(budget: str, period: str) -> None:
    quota, laptop = Quota(), key(**{budget: 5 * MICRO_PER_UNIT})
    take(quota, laptop, micro=4 * MICRO_PER_UNIT).settle(1, Cost(4 * MICRO_PER_UNIT))
    running = take(quota, laptop, micro=MICRO_PER_UNIT // 2)
    take(quota, laptop, micro=MICRO_PER_UNIT // 2).settle(0, Cost(0))
    error = refusal(quota, laptop, micro=MICRO_PER_UNIT + 1)
    assert type(error) is InsufficientQuota
    assert error.message.startswith(f"Insufficient quota: key laptop: {period} budget of 5 units: ")
    assert ": 4 spent, 0.5 reserved by running requests, this request may cost 1.000001; " in (
        error.message
    )
    running.settle(1, Cost(2 * MICRO_PER_UNIT))
    assert refusal(quota, laptop, micro=1)
    assert quota.budget(HolderKind.KEY, "key_1").total == 6 * MICRO_PER_UNIT


def test_a_daily_budget_resets() -> None:
    quota, laptop = Quota(), key(budget_day=MICRO_PER_UNIT)
    take(quota, laptop, micro=MICRO_PER_UNIT).settle(1, Cost(MICRO_PER_UNIT))
    error = refusal(quota, laptop, micro=1)
    assert error.message.endswith("; resets at 2026-11-22T00:00:00Z")
    take(quota, laptop, micro=1, at=NOON + DAY // 2)


def test_a_cost_belongs_to_the_day_of_its_start() -> None:
    quota, laptop = Quota(), key(budget_day=MICRO_PER_UNIT)
    reservation = take(quota, laptop, micro=MICRO_PER_UNIT)
    refusal(quota, laptop, micro=MICRO_PER_UNIT, at=NOON + DAY)
    reservation.settle(1, Cost(MICRO_PER_UNIT))
    take(quota, laptop, micro=MICRO_PER_UNIT, at=NOON + DAY)
    assert quota.budget(HolderKind.KEY, "key_1").total == MICRO_PER_UNIT


def test_loaded_amounts_count_in_the_budget() -> None:
    quota, team = Quota(), group(budget=1000)
    quota.budget(HolderKind.GROUP, "team").load(950, {})
    refusal(quota, team, micro=51)
    take(quota, team, micro=50)


@pytest.mark.parametrize(
    "limit",
    [
        *("requests_per_minute", "tokens_per_minute", "concurrent"),
        *("budget", "budget_day", "budget_month"),
    ],
)
def test_a_limit_of_0_rejects_everything(limit: str) -> None:
    error = refusal(Quota(), key(**{limit: 0}), tokens=1, micro=1)
    assert error.permanent
    assert error.retry_after is None


@pytest.mark.parametrize("limit", ["tokens_per_minute", "budget", "budget_day", "budget_month"])
@pytest.mark.parametrize("most", [0, 5])
def test_a_cost_of_0_fits_a_spent_budget(limit: str, most: int) -> None:
    quota, laptop = Quota(), key(**{limit: most})
    take(quota, key(tokens_per_minute=100), tokens=90, micro=90)
    refusal(quota, laptop, tokens=1, micro=1)
    take(quota, laptop, tokens=0, micro=0)


def test_a_request_without_tokens_does_not_extend_the_window() -> None:
    quota, laptop = Quota(), key(tokens_per_minute=100)
    take(quota, laptop, tokens=10, now=NOW)
    take(quota, laptop, tokens=0, now=NOW + 30)
    status = quota.limit_statuses([laptop], NOW + 30).tokens
    assert status is not None
    assert status.reset == 30.0


@pytest.mark.parametrize("limit", ["requests_per_minute", "concurrent"])
def test_a_request_without_tokens_counts_as_a_request(limit: str) -> None:
    assert refusal(Quota(), key(**{limit: 0}), tokens=0, micro=0).permanent


def test_a_second_settlement_is_ignored() -> None:
    quota, laptop = Quota(), key(tokens_per_minute=100, concurrent=1, budget=1000)
    reservation = take(quota, laptop, tokens=60, micro=600)
    reservation.settle(30, Cost(300))
    running = take(quota, laptop, tokens=70, micro=700)
    for _ in range(3):
        reservation.settle(1, Cost(1))
        reservation.settle(0, Cost(0))
    refusal(quota, laptop, tokens=0, micro=0)
    assert tokens_left(quota, laptop) == 0
    budget_tracker = quota.budget(HolderKind.KEY, "key_1")
    assert (budget_tracker.total, budget_tracker.reserved) == (300, 700)
    running.settle(0, Cost(0))
    assert (budget_tracker.total, budget_tracker.reserved) == (300, 0)


def test_a_request_without_usage_still_counts() -> None:
    quota = Quota()
    laptop = key(requests_per_minute=5, tokens_per_minute=100, concurrent=1, budget=1000)
    take(quota, laptop, tokens=100, micro=1000).settle(0, Cost(0))
    assert requests_left(quota, laptop) == 4
    assert tokens_left(quota, laptop) == 100
    take(quota, laptop, tokens=100, micro=1000)


def test_all_holders_are_charged() -> None:
    quota = Quota()
    holders = (key(tokens_per_minute=500), group(concurrent=3), gateway(requests_per_minute=9))
    take(quota, *holders, tokens=100, micro=10).settle(90, Cost(7))
    for holder in holders:
        assert quota.budget(holder.kind, holder.id).total == 7
    assert tokens_left(quota, holders[0]) == 410
    assert requests_left(quota, holders[2]) == 8


def test_holders_of_the_same_name_are_separate() -> None:
    quota = Quota()
    holders = [Holder(kind, "x", "x", Limits(requests_per_minute=1)) for kind in HolderKind]
    for holder in holders:
        take(quota, holder)
    for holder in holders:
        refusal(quota, holder)


TIGHT = {
    "requests_per_minute": key(requests_per_minute=5),
    "tokens_per_minute": group(tokens_per_minute=5),
    "concurrent": gateway(concurrent=0),
    "budget": group(budget=5),
}


@pytest.mark.parametrize("tight", TIGHT)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_rejected_request_uses_nothing(tight: str, place: int) -> None:
    """Whichever holder rejects it, in any position."""
    quota = Quota()
    others = [
        Holder(HolderKind.KEY, name, name, Limits(**plenty))
        for name in ("a", "b")
        for plenty in [
            {"requests_per_minute": 100, "tokens_per_minute": 100, "concurrent": 1, "budget": 100}
        ]
    ]
    holder = TIGHT[tight]
    for _ in range(5):
        if tight == "requests_per_minute":
            take(quota, holder, tokens=0, micro=0)
    holders = [*others[:place], holder, *others[place:]]
    for _ in range(3):
        refusal(quota, *holders, tokens=50, micro=50)
    for each in others:
        assert requests_left(quota, each) == tokens_left(quota, each) == 100
        budget_tracker = quota.budget(each.kind, each.id)
        assert (budget_tracker.total, budget_tracker.reserved) == (0, 0)
        take(quota, each, tokens=100, micro=100)


def test_an_exceeded_budget_is_reported_first() -> None:
    quota = Quota()
    error = refusal(quota, key(requests_per_minute=0), group(budget=5), gateway(concurrent=0))
    assert type(error) is InsufficientQuota


def test_of_budgets_the_one_that_resets_last() -> None:
    day, month, whole = (
        Holder(HolderKind.KEY, name, name, Limits(**{name: 5}))
        for name in ("budget_day", "budget_month", "budget")
    )
    for holders, raised in (
        ((day, month), "resets at 2026-12-01"),
        ((month, day), "resets at 2026-12-01"),
        ((day, whole, month), "does not reset"),
        ((day,), "resets at 2026-11-22"),
    ):
        assert raised in refusal(Quota(), *holders).message


def test_a_permanent_error_precedes_a_wait() -> None:
    quota, laptop = Quota(), key(requests_per_minute=1)
    take(quota, laptop)
    for holders in (
        (laptop, group(tokens_per_minute=9), gateway()),
        (group(tokens_per_minute=9), laptop),
    ):
        error = refusal(quota, *holders, tokens=10)
        assert type(error) is TooManyTokens
        assert error.permanent


def test_a_concurrency_limit_of_0_precedes_a_wait() -> None:
    quota, laptop = Quota(), key(requests_per_minute=1)
    take(quota, laptop)
    assert refusal(quota, laptop, group(concurrent=0)).permanent
    assert refusal(quota, group(requests_per_minute=0), laptop).permanent


def test_of_limits_the_one_with_the_longest_wait() -> None:
    quota = Quota()
    laptop, team = key(requests_per_minute=1), group(tokens_per_minute=10)
    everybody = gateway(concurrent=1)
    take(quota, laptop, everybody, now=0.0)
    take(quota, team, tokens=10, now=30.0)
    assert refusal(quota, laptop, team, everybody, now=31.0).retry_after == 59.0
    assert refusal(quota, team, everybody, laptop, now=31.0).retry_after == 59.0
    assert refusal(quota, everybody, laptop, now=31.0).retry_after == 29.0
    other = Holder(HolderKind.KEY, "key_2", "desk", Limits(tokens_per_minute=10))
    take(quota, other, tokens=10, now=0.0)
    assert refusal(quota, other, laptop, team, now=31.0, tokens=1).retry_after == 59.0
    assert type(refusal(quota, laptop, other, team, now=31.0, tokens=1)) is TooManyTokens
    late = Holder(HolderKind.KEY, "key_3", "late", Limits(requests_per_minute=1))
    take(quota, late, now=30.5)
    assert type(refusal(quota, team, late, now=31.0, tokens=1)) is TooManyRequests
    assert refusal(quota, everybody, key(), now=31.0).retry_after == 1.0


@pytest.mark.parametrize("limit", ["requests_per_minute", "tokens_per_minute", "concurrent"])
def test_an_error_has_the_holder_of_the_limit(limit: str) -> None:
    quota, team = Quota(), group(**{limit: 1})
    take(quota, team, tokens=1)
    error = refusal(quota, key(**{limit: 9}), team, gateway(**{limit: 9}), tokens=1)
    assert isinstance(error, TooManyRequests)
    assert error.holder == ("group", "team")
    error = refusal(quota, key(**{limit: 0}), team)
    assert isinstance(error, TooManyRequests)
    assert error.holder == ("key", "key_1")


def test_a_limit_counts_from_when_it_is_set() -> None:
    quota = Quota()
    for _ in range(10):
        take(quota, key(), tokens=100)
    limited = key(requests_per_minute=1, tokens_per_minute=100)
    take(quota, limited, tokens=100)
    error = refusal(quota, limited, tokens=100, now=NOW + 10)
    assert error.retry_after == 50.0


def test_running_requests_count_for_a_new_limit() -> None:
    quota = Quota()
    running = [take(quota, key()) for _ in range(3)]
    refusal(quota, key(concurrent=3))
    running.pop().settle(0, Cost(0))
    take(quota, key(concurrent=3))


def test_spent_amounts_count_for_a_new_budget() -> None:
    quota = Quota()
    take(quota, key(), micro=70).settle(1, Cost(60))
    take(quota, key(), micro=30)
    refusal(quota, key(budget=100), micro=11)
    take(quota, key(budget=100), micro=10)


def test_leases_survive_changes_of_limits() -> None:
    """From none to some, to none again and back: exactly what was acquired is released."""
    quota, limited, free = Quota(), key(tokens_per_minute=100, requests_per_minute=10), key()
    reservations = [take(quota, free), take(quota, limited, tokens=50), take(quota, free)]
    reservations += [take(quota, limited, tokens=30)]
    for reservation in reservations:
        reservation.settle(20, Cost(5))
    assert tokens_left(quota, limited) == 60
    assert requests_left(quota, limited) == 8
    budget_tracker = quota.budget(HolderKind.KEY, "key_1")
    assert (budget_tracker.total, budget_tracker.reserved) == (20, 0)
    take(quota, key(concurrent=1))


def test_the_current_limit_applies() -> None:
    quota = Quota()
    for _ in range(4):
        take(quota, key(requests_per_minute=4))
    refusal(quota, key(requests_per_minute=3))
    refusal(quota, key(requests_per_minute=4))
    take(quota, key(requests_per_minute=5))


def test_without_holders_there_is_nothing_to_settle() -> None:
    take(Quota()).settle(1, Cost(1))


def test_a_request_from_before_a_limit_keeps_later_counts() -> None:
    """Such as one whose body arrived slowly."""
    quota = Quota()
    limited, late = key(requests_per_minute=3, tokens_per_minute=100), key()
    take(quota, limited, tokens=60)
    take(quota, late, tokens=70)
    assert (requests_left(quota, limited), tokens_left(quota, limited)) == (2, 40)
    take(quota, key(requests_per_minute=3), tokens=70)
    assert (requests_left(quota, limited), tokens_left(quota, limited)) == (1, 40)
    take(quota, key(tokens_per_minute=100), tokens=40)
    assert (requests_left(quota, limited), tokens_left(quota, limited)) == (1, 0)


@pytest.mark.parametrize(
    ("holder", "text"),
    [(key(), "key laptop"), (group(), "group team"), (gateway(), "the gateway")],
)
def test_names_of_holders(holder: Holder, text: str) -> None:
    assert str(holder) == text


def test_a_lease_grows_within_the_budgets() -> None:
    quota, laptop, team = Quota(), key(budget=1000), group(budget=500, tokens_per_minute=90)
    reservation = take(quota, laptop, team, tokens=10, micro=100)
    reservation.extend(30, Cost(300))
    assert quota.budget(HolderKind.KEY, "key_1").reserved == 300
    assert tokens_left(quota, team) == 60
    with pytest.raises(InsufficientQuota, match="group team: total budget"):
        reservation.extend(50, Cost(501))
    assert quota.budget(HolderKind.KEY, "key_1").reserved == 300, "all holders or none"
    assert tokens_left(quota, team) == 40, "a minute cannot take back what was used"
    with pytest.raises(InsufficientQuota, match="0 reserved by running requests, this request may"):
        reservation.extend(50, Cost(9_999_999))
    reservation.extend(50, Cost(200))
    assert quota.budget(HolderKind.GROUP, "team").reserved == 300, "it never shrinks"
    reservation.settle(45, Cost(450))
    for kind, id in ((HolderKind.KEY, "key_1"), (HolderKind.GROUP, "team")):
        assert (quota.budget(kind, id).reserved, quota.budget(kind, id).total) == (0, 450)
    reservation.extend(99, Cost(9_999))  # it has ended
    assert tokens_left(quota, team) == 45


def test_the_longest_replies_together_fit_a_budget() -> None:
    quota, holder = Quota(), key(budget=1000)
    request = ResourceRequest((holder, gateway()), NOON, 10, Cost(100), Cost(400))
    reservations = [quota.acquire(request, NOW) for _ in range(2)]
    with pytest.raises(TooManyRequests) as raised:
        quota.acquire(request, NOW)
    assert "0.0008 reserved by running requests, this request may cost 0.0004" in str(raised.value)
    reservations[0].settle(10, Cost(350))
    with pytest.raises(TooManyRequests):
        quota.acquire(request, NOW)
    reservations[1].settle(10, Cost(350))
    assert quota.acquire(request, NOW).cost.units == 300, "alone: all that is left"
    with pytest.raises(TooManyRequests):
        take(quota, holder, micro=1)
    with pytest.raises(InsufficientQuota):
        take(quota, holder, micro=301)


def test_a_request_alone_needs_room_for_its_expected_cost() -> None:
    quota, holders = Quota(), (key(budget=100), group(budget_day=99))
    with pytest.raises(InsufficientQuota):
        quota.acquire(ResourceRequest(holders, NOON, 10, Cost(100), Cost(400)), NOW)
    reservation = quota.acquire(ResourceRequest(holders, NOON, 10, Cost(50), Cost(400)), NOW)
    assert reservation.cost.units == 99
    reservation.settle(10, Cost(60))
    assert (
        quota.acquire(ResourceRequest(holders, NOON, 10, Cost(20), Cost(30)), NOW).cost.units == 30
    )
