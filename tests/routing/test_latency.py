"""Accounts that are slow compared with their pool."""

from __future__ import annotations

import pytest

from gateway.routing.latency import LatencyTracker

A, B, C = (("main", name) for name in "abc")
MODEL = "alpha-1"


def latency(**times: list[float]) -> LatencyTracker:
    known = LatencyTracker()
    for name, seconds in times.items():
        for each in seconds:
            known.record(("main", name), MODEL, each, 100.0)
    return known


def slow(
    known: LatencyTracker, now: float = 100.0, pool: tuple[tuple[str, str], ...] = (A, B, C)
) -> bool:
    return known.is_slow(A, pool, MODEL, now)


def test_slow_is_three_times_the_median_for_five_requests() -> None:
    assert slow(latency(a=[3.1] * 5, b=[1.0], c=[1.0]))


def test_three_times_is_not_slow_yet() -> None:
    assert not slow(latency(a=[3.0] * 9, b=[1.0], c=[1.0]))


def test_four_requests_are_not_enough() -> None:
    assert not slow(latency(a=[9.0] * 4, b=[1.0], c=[1.0]))


def test_one_fast_request_of_five_is_not_slow() -> None:
    assert not slow(latency(a=[1.0] * 5 + [9.0] * 4, b=[1.0], c=[1.0]))
    assert slow(latency(a=[1.0] * 5 + [9.0] * 6, b=[1.0], c=[1.0]))


def test_a_single_long_wait_is_not_slow() -> None:
    assert not slow(latency(a=[1.0] * 5 + [40.0] + [1.0] * 4, b=[1.0], c=[1.0]))


def test_of_two_the_faster_one_is_the_reference() -> None:
    known = latency(a=[4.0] * 5, b=[1.0] * 5)
    assert slow(known, pool=(A, B))
    assert not known.is_slow(B, (A, B), MODEL, 100.0)


def test_if_all_are_slow_none_is() -> None:
    assert not slow(latency(a=[30.0] * 9, b=[25.0] * 9, c=[28.0] * 9))


@pytest.mark.parametrize("pool", [(A,), (A, C), ()])
def test_without_data_of_others_none_is_slow(pool: tuple[tuple[str, str], ...]) -> None:
    assert not slow(latency(a=[30.0] * 9, b=[1.0]), pool=pool)


def test_models_are_separate() -> None:
    known = latency(a=[9.0] * 5, b=[1.0])
    assert not known.is_slow(A, (A, B), "beta-1", 100.0)


def test_old_data_expires() -> None:
    known = latency(a=[9.0] * 5, b=[1.0])
    assert slow(known, 400.0)
    assert not slow(known, 400.1)
    assert known.smoothed(A, MODEL, 400.1) is None
    known.record(A, MODEL, 9.0, 500.0)
    known.record(B, MODEL, 1.0, 500.0)
    assert not slow(known, 500.0)


def test_latency_is_smoothed() -> None:
    assert latency(a=[1.0, 3.0]).smoothed(A, MODEL, 100.0) == 2.0
    assert latency().smoothed(A, MODEL, 100.0) is None


def test_keep_forgets_the_others() -> None:
    known = latency(a=[1.0], b=[1.0])
    known.retain({B})
    assert (known.smoothed(A, MODEL, 100.0), known.smoothed(B, MODEL, 100.0)) == (None, 1.0)
