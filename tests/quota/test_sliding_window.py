"""Sliding windows, compared with a simple reference."""

from __future__ import annotations

import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.quota.sliding_window import SlidingCounter, SlidingWindow
from tests.quota.reference_window import STEPS, Log


def test_amounts_count_for_a_minute() -> None:
    window = SlidingWindow()
    window.add(100.0, 7)
    assert window.used(100.0) == window.used(159.999) == 7
    assert window.used(160.0) == 0


def test_events_count_for_a_minute() -> None:
    window = SlidingCounter()
    window.add(100.0)
    assert window.used(100.0) == window.used(159.999) == 1
    assert window.used(160.0) == 0


def test_the_length_is_an_argument() -> None:
    window, count = SlidingWindow(seconds=5.0), SlidingCounter(seconds=5.0)
    window.add(1.0, 7)
    count.add(1.0)
    assert (window.used(5.5), count.used(5.5)) == (7, 1)
    assert (window.used(6.0), count.used(6.0)) == (0, 0)


def test_an_amount_fits_when_enough_has_expired() -> None:
    window = SlidingWindow()
    for now, amount in ((0.0, 50), (10.0, 30), (20.0, 20)):
        window.add(now, amount)
    assert window.seconds_until_fits(20.0, 0, 100) == 0.0
    assert window.seconds_until_fits(20.0, 1, 100) == 40.0
    assert window.seconds_until_fits(20.0, 50, 100) == 40.0
    assert window.seconds_until_fits(20.0, 51, 100) == 50.0
    assert window.seconds_until_fits(20.0, 80, 100) == 50.0
    assert (
        window.seconds_until_fits(20.0, 81, 100)
        == window.seconds_until_fits(20.0, 100, 100)
        == 60.0
    )
    assert window.seconds_until_fits(60.0, 50, 100) == 0.0


def test_an_amount_over_the_limit_never_fits() -> None:
    assert SlidingWindow().seconds_until_fits(0.0, 100, 100) == 0.0
    assert SlidingWindow().seconds_until_fits(0.0, 101, 100) is None


def test_a_limit_of_0_rejects_everything() -> None:
    assert SlidingWindow().seconds_until_fits(0.0, 1, 0) is None
    assert SlidingCounter().seconds_until_fits(0.0, 0) is None


def test_an_amount_of_0_always_fits() -> None:
    window = SlidingWindow()
    window.add(0.0, 7)
    assert window.seconds_until_fits(0.0, 0, 5) == window.seconds_until_fits(0.0, 0, 0) == 0.0


@pytest.mark.parametrize(("amount", "goes"), [(1, 1), (2, 2), (29_999, 29_999), (30_000, 30_000)])
def test_the_wait_is_fast_if_few_entries_expire_or_stay(amount: int, goes: int) -> None:
    """Only the entries that expire, or those that stay, are scanned."""
    window = SlidingWindow()
    for number in range(30_000):
        window.add(number / 1024, 1)
    now = 29_999 / 1024
    began = time.process_time()
    for _ in range(2_000):
        assert window.seconds_until_fits(now, amount, 30_000) == 60 + (goes - 1) / 1024 - now
    assert time.process_time() - began < 0.5


def test_a_lowered_limit() -> None:
    count = SlidingCounter()
    for now in range(5):
        count.add(float(now))
    assert count.seconds_until_fits(10.0, 6) == 0.0
    assert count.seconds_until_fits(10.0, 5) == 50.0
    assert count.seconds_until_fits(10.0, 2) == 53.0
    assert count.seconds_until_fits(10.0, 1) == 54.0


def test_an_entry_is_adjusted_in_place() -> None:
    window = SlidingWindow()
    entry = window.add(0.0, 100)
    window.add(30.0, 1)
    window.adjust(entry, 40)
    assert window.used(30.0) == 41
    window.adjust(entry, 70)
    assert window.used(59.0) == 71
    assert window.used(60.0) == 1


def test_an_expired_entry_is_not_adjusted() -> None:
    window = SlidingWindow()
    entry = window.add(0.0, 100)
    window.add(1.0, 5)
    assert window.used(60.0) == 5
    window.adjust(entry, 40)
    assert window.used(60.0) == 5
    assert window.used(61.0) == 0


def test_an_entry_adjusted_to_0_is_removed() -> None:
    window = SlidingWindow()
    first, second, third = (window.add(now, 10) for now in (0.0, 5.0, 10.0))
    window.adjust(second, 0)
    assert (window.used(10.0), window.seconds_until_empty(10.0)) == (20, 60.0)
    window.adjust(second, 10)
    assert window.used(10.0) == 20
    window.adjust(third, 0)
    assert (window.used(10.0), window.seconds_until_empty(10.0)) == (10, 50.0)
    window.adjust(first, 0)
    assert (window.used(10.0), window.seconds_until_empty(10.0)) == (0, 0.0)


def test_an_entry_of_0_can_be_adjusted() -> None:
    window = SlidingWindow()
    entry = window.add(0.0, 0)
    window.adjust(window.add(1.0, 5), 0)
    window.adjust(entry, 9)
    assert (window.used(1.0), window.seconds_until_empty(1.0)) == (9, 59.0)


@pytest.mark.parametrize("kind", [SlidingWindow, SlidingCounter])
def test_an_earlier_time_is_accepted(
    kind: type[SlidingWindow] | type[SlidingCounter],
) -> None:
    window = kind()

    def add(now: float) -> None:
        if isinstance(window, SlidingCounter):
            window.add(now)
        else:
            window.add(now, 1)

    def wait(now: float) -> float | None:
        return (
            window.seconds_until_fits(now, 2)
            if isinstance(window, SlidingCounter)
            else window.seconds_until_fits(now, 1, 2)
        )

    add(100.0)
    add(40.0)
    assert window.used(40.0) == window.used(159.0) == 2
    assert wait(30.0) == 1.0
    assert window.seconds_until_empty(30.0) == 1.0
    assert window.used(160.0) == 0
    add(50.0)
    assert (window.used(219.0), window.used(220.0)) == (1, 0)


def test_negative_times() -> None:
    window, count = SlidingWindow(), SlidingCounter()
    window.adjust(window.add(-1000.0, 1), 5)
    count.add(-1000.0)
    assert (window.used(-941.0), count.used(-941.0)) == (5, 1)
    assert (window.used(-940.0), count.used(-940.0)) == (0, 0)


def test_expired_entries_are_freed() -> None:
    window, count = SlidingWindow(), SlidingCounter()
    for number in range(20_000):
        window.add(number / 100, 1)
        count.add(number / 100)
        if number % 2:
            window.adjust(window.add(number / 100, 9), 0)
    assert len(window._entries) == window.used(199.99) == 6000
    assert len(count._expiries) == count.used(199.99) == 6000
    assert sys.getsizeof(count._expiries) < 60_000
    window.used(300.0)
    count.used(300.0)
    assert not window._entries
    assert not count._expiries


@given(st.lists(st.tuples(STEPS, st.integers(0, 12), st.integers(0, 9)), max_size=40))
def test_counts_equal_the_reference(steps: list[tuple[float, int, int]]) -> None:
    """Admissions are equal one by one, with changing limits."""
    window, log, now = SlidingCounter(), Log(), 1000.0
    for step, times, limit in steps:
        now += step
        for _ in range(times):
            wait = window.seconds_until_fits(now, limit)
            assert wait == log.wait(now, 1, limit)
            assert (wait == 0.0) == log.fits(now, 1, limit)
            if wait == 0.0:
                window.add(now)
                log.add(now)
        assert window.used(now) == log.used(now)
        assert window.seconds_until_empty(now) == log.clear(now)


CORRECTIONS = st.none() | st.tuples(st.floats(0, 1), st.integers(0, 30))


@given(
    st.lists(
        st.tuples(STEPS, st.integers(1, 30), st.integers(0, 60), CORRECTIONS),
        max_size=60,
    )
)
def test_sums_equal_the_reference(
    steps: list[tuple[float, int, int, tuple[float, int] | None]],
) -> None:
    """Each step: some time later, an amount within a limit; then one can be adjusted, and
    then never again."""
    window, log, now = SlidingWindow(), Log(), 1000.0
    running = []
    for step, amount, limit, correction in steps:
        now += step
        wait = window.seconds_until_fits(now, amount, limit)
        assert wait == log.wait(now, amount, limit)
        assert (wait == 0.0) == log.fits(now, amount, limit)
        if wait == 0.0:
            running.append((window.add(now, amount), log.add(now, amount)))
        if correction is not None and running:
            place, corrected = correction
            entry, number = running.pop(int(place * (len(running) - 1)))
            window.adjust(entry, corrected)
            log.correct(number, corrected)
        assert window.used(now) == log.used(now)
        assert window.seconds_until_empty(now) == log.clear(now)
