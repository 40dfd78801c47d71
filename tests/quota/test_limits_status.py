"""The status of limits per minute, as clients get it."""

from __future__ import annotations

from gateway.core.limits import FREE, UNLIMITED, Cost
from gateway.quota.limits import Holder, HolderKind, LimitStatus, LimitStatuses, Quota
from tests.quota.holders import NOON, NOW, gateway, group, key, requests_left, take, tokens_left


def test_statuses_without_limits() -> None:
    quota = Quota()
    nothing = LimitStatuses(None, None)
    free = Holder(HolderKind.GROUP, "free", "free", UNLIMITED)
    assert quota.limit_statuses([key(), free, gateway(concurrent=3)], NOW) == nothing
    assert quota.limit_statuses([], NOW) == nothing
    output = quota.limit_statuses([free, key(requests_per_minute=3)], NOW)
    assert output == LimitStatuses(LimitStatus(3, 3, 0.0), None)


def test_statuses_without_usage() -> None:
    quota = Quota()
    holder = key(requests_per_minute=5, tokens_per_minute=100)
    assert quota.limit_statuses([holder], NOW) == LimitStatuses(
        LimitStatus(5, 5, 0.0), LimitStatus(100, 100, 0.0)
    )


def test_statuses_follow_usage() -> None:
    quota, laptop = Quota(), key(requests_per_minute=5, tokens_per_minute=100)
    take(quota, laptop, tokens=30, now=0.0)
    take(quota, laptop, tokens=20, now=20.0)
    assert quota.limit_statuses([laptop], 30.0) == LimitStatuses(
        LimitStatus(5, 3, 50.0), LimitStatus(100, 50, 50.0)
    )
    assert quota.limit_statuses([laptop], 60.0) == LimitStatuses(
        LimitStatus(5, 4, 20.0), LimitStatus(100, 80, 20.0)
    )
    assert quota.limit_statuses([laptop], 80.0) == LimitStatuses(
        LimitStatus(5, 5, 0.0), LimitStatus(100, 100, 0.0)
    )


def test_remaining_is_never_negative() -> None:
    quota = Quota()
    take(quota, key(requests_per_minute=9, tokens_per_minute=100), tokens=9).settle(500, FREE)
    take(quota, key(requests_per_minute=9), tokens=9)
    lowered = key(requests_per_minute=1)
    assert requests_left(quota, lowered) == 0
    assert tokens_left(quota, key(tokens_per_minute=100)) == 0


def test_the_limit_with_the_least_remaining_is_shown() -> None:
    quota = Quota()
    laptop = key(requests_per_minute=10, tokens_per_minute=1000)
    team = group(requests_per_minute=8, tokens_per_minute=2000)
    take(quota, laptop, team, tokens=100)
    take(quota, laptop, tokens=900)
    for holders in ((laptop, gateway(), team), (team, laptop)):
        statuses = quota.limit_statuses(holders, NOW)
        assert statuses == LimitStatuses(LimitStatus(8, 7, 60.0), LimitStatus(1000, 0, 60.0))


def test_of_equal_limits_the_smaller_one_is_shown() -> None:
    quota = Quota()
    laptop, team = key(requests_per_minute=10), group(requests_per_minute=8)
    take(quota, laptop)
    take(quota, laptop)
    for holders in ((laptop, team), (team, laptop)):
        assert quota.limit_statuses(holders, NOW).requests == LimitStatus(8, 8, 0.0)


def test_reading_statuses_changes_nothing() -> None:
    quota = Quota()
    quota.limit_statuses([key(requests_per_minute=10), group(tokens_per_minute=5)], NOW)
    assert not quota._usages


def test_the_used_part_of_every_limit() -> None:
    quota = Quota()
    team = group(
        requests_per_minute=4, tokens_per_minute=100, concurrent=2, budget=40, budget_day=80
    )
    assert dict(quota.used_ratios(team, NOON, NOW)) == dict.fromkeys(
        ("requests_per_minute", "tokens_per_minute", "concurrent", "budget", "budget_day"), 0.0
    )
    take(quota, team, tokens=25, micro=10).settle(25, Cost(10))
    take(quota, team, tokens=25, micro=10)
    assert dict(quota.used_ratios(team, NOON, NOW)) == {
        "requests_per_minute": 0.5,
        "tokens_per_minute": 0.5,
        "concurrent": 0.5,
        "budget": 0.25,
        "budget_day": 0.125,
    }
    assert dict(quota.used_ratios(key(budget=0), NOON, NOW)) == {"budget": 1.0}
    assert dict(quota.used_ratios(key(), NOON, NOW)) == {}
