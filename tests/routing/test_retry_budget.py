"""Retries are limited to a share of the requests in any ten seconds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.routing.retry import backoff
from gateway.routing.retry_budget import (
    MIN_RETRIES,
    RETRY_RATIO,
    WINDOW_SECONDS,
    RetryBudget,
    SecondBuckets,
)


def taken(budget: RetryBudget, now: float, tries: int = 1000) -> int:
    return sum(budget.try_acquire(now) for _ in range(tries))


def test_a_burst_of_retries_is_always_allowed() -> None:
    assert taken(RetryBudget(), 100.0) == MIN_RETRIES == 30


def test_retries_are_a_fifth_of_the_requests() -> None:
    budget = RetryBudget()
    for request in range(1000):
        budget.record_request(100.0 + request / 1000)
    assert taken(budget, 101.0) == 200


def test_few_requests_do_not_lower_them() -> None:
    budget = RetryBudget()
    budget.record_request(100.0)
    assert taken(budget, 100.0) == MIN_RETRIES


def test_requests_older_than_ten_seconds_no_longer_count() -> None:
    budget = RetryBudget()
    for _ in range(1000):
        budget.record_request(100.5)
    assert taken(budget, 110.5) == MIN_RETRIES


def test_retries_older_than_ten_seconds_no_longer_count() -> None:
    budget = RetryBudget()
    assert taken(budget, 100.9) == MIN_RETRIES
    assert taken(budget, 110.8) == 0
    assert taken(budget, 111.0) == MIN_RETRIES


def test_an_idle_time_empties_it() -> None:
    budget = RetryBudget()
    for _ in range(100):
        budget.record_request(0.0)
    assert taken(budget, 1e9) == MIN_RETRIES


def test_an_earlier_time_is_accepted() -> None:
    budget = RetryBudget()
    budget.record_request(100.01)
    budget.record_request(99.99)
    assert taken(budget, 99.98) == MIN_RETRIES


def test_failing_upstreams_cost_at_most_a_quarter_more() -> None:
    """200 requests a second for 10 s, every attempt of which fails, three attempts at most."""
    budget, attempts = RetryBudget(), 0
    for request in range(2000):
        now = 50.0 + request / 200
        budget.record_request(now)
        attempts += 1
        attempts += budget.try_acquire(now) and 1 + budget.try_acquire(now)
    assert 1.1 < attempts / 2000 <= 1.25


@given(
    steps=st.lists(st.tuples(st.floats(0, 4), st.integers(0, 30), st.integers(0, 12)), max_size=40),
    start=st.floats(0, 1e6),
)
def test_never_exceeded_over_any_ten_seconds(
    steps: list[tuple[float, int, int]], start: float
) -> None:
    budget, now = RetryBudget(), start
    results: list[float] = []
    retried: list[float] = []
    for pause, requests, wishes in steps:
        now += pause
        for _ in range(requests):
            budget.record_request(now)
            results.append(now)
        for _ in range(wishes):
            if budget.try_acquire(now):
                retried.append(now)
                within = [time for time in retried if time >= now - WINDOW_SECONDS]
                share = RETRY_RATIO * sum(time >= now - WINDOW_SECONDS for time in results)
                assert len(within) <= max(MIN_RETRIES, share)


@given(
    st.lists(st.tuples(st.floats(0, 7), st.booleans()), max_size=50),
    st.integers(1, 12),
    st.floats(0, 1e6),
)
def test_buckets_count_whole_seconds(
    steps: list[tuple[float, bool]], seconds: int, start: float
) -> None:
    window, now, added = SecondBuckets(seconds), start, []
    for pause, adds in steps:
        now += pause
        if adds:
            window.add(now)
            added.append(int(now))
        assert window.count(now) == sum(second > int(now) - seconds for second in added)


@pytest.mark.parametrize(
    ("attempt", "longest"), [(1, 0.2), (2, 0.4), (3, 0.8), (4, 1.6), (5, 2.0), (9, 2.0)]
)
def test_backoff_doubles_up_to_two_seconds_with_full_jitter(attempt: int, longest: float) -> None:
    assert backoff(attempt, 0.0) == 0.0
    assert backoff(attempt, 0.5) == pytest.approx(longest / 2)
    assert backoff(attempt, 0.999999) == pytest.approx(longest, rel=1e-5)
