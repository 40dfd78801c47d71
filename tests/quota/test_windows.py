"""Sliding logs, beside a list that is gone through each time."""

from __future__ import annotations

import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.quota.windows import CountWindow, Window
from tests.quota.reference import STEPS, Log
from tests.support.timing import SLACK


def test_what_happened_counts_for_a_minute_and_no_longer() -> None:
    window = Window()
    window.add(100.0, 7)
    assert window.used(100.0) == window.used(159.999) == 7
    assert window.used(160.0) == 0


def test_a_count_lasts_a_minute_and_no_longer() -> None:
    window = CountWindow()
    window.add(100.0)
    assert window.used(100.0) == window.used(159.999) == 1
    assert window.used(160.0) == 0


def test_the_span_is_an_argument() -> None:
    window, count = Window(span=5.0), CountWindow(span=5.0)
    window.add(1.0, 7)
    count.add(1.0)
    assert (window.used(5.5), count.used(5.5)) == (7, 1)
    assert (window.used(6.0), count.used(6.0)) == (0, 0)


def test_there_is_room_at_once_again_when_enough_is_gone() -> None:
    window = Window()
    for now, amount in ((0.0, 50), (10.0, 30), (20.0, 20)):
        window.add(now, amount)
    assert window.wait(20.0, 0, 100) == 0.0
    assert window.wait(20.0, 1, 100) == 40.0
    assert window.wait(20.0, 50, 100) == 40.0
    assert window.wait(20.0, 51, 100) == 50.0
    assert window.wait(20.0, 80, 100) == 50.0
    assert window.wait(20.0, 81, 100) == window.wait(20.0, 100, 100) == 60.0
    assert window.wait(60.0, 50, 100) == 0.0


def test_what_is_larger_than_the_limit_never_fits() -> None:
    assert Window().wait(0.0, 100, 100) == 0.0
    assert Window().wait(0.0, 101, 100) is None


def test_a_limit_of_0_lets_nothing_pass() -> None:
    assert Window().wait(0.0, 1, 0) is None
    assert CountWindow().wait(0.0, 0) is None


def test_nothing_fits_where_there_is_no_room() -> None:
    window = Window()
    window.add(0.0, 7)
    assert window.wait(0.0, 0, 5) == window.wait(0.0, 0, 0) == 0.0


@pytest.mark.parametrize(("amount", "goes"), [(1, 1), (2, 2), (29_999, 29_999), (30_000, 30_000)])
def test_it_is_soon_known_when_little_or_almost_all_must_go(amount: int, goes: int) -> None:
    """Only as much of a long log is looked at as goes, or as stays."""
    window = Window()
    for number in range(30_000):
        window.add(number / 1024, 1)
    now = 29_999 / 1024
    began = time.process_time()
    for _ in range(2_000):
        assert window.wait(now, amount, 30_000) == 60 + (goes - 1) / 1024 - now
    assert time.process_time() - began < SLACK


def test_a_limit_that_was_lowered_is_waited_for() -> None:
    count = CountWindow()
    for now in range(5):
        count.add(float(now))
    assert count.wait(10.0, 6) == 0.0
    assert count.wait(10.0, 5) == 50.0
    assert count.wait(10.0, 2) == 53.0
    assert count.wait(10.0, 1) == 54.0


def test_an_entry_is_corrected_in_place() -> None:
    window = Window()
    entry = window.add(0.0, 100)
    window.add(30.0, 1)
    window.correct(entry, 40)
    assert window.used(30.0) == 41
    window.correct(entry, 70)
    assert window.used(59.0) == 71
    assert window.used(60.0) == 1


def test_an_entry_that_does_not_count_any_more_is_not_corrected() -> None:
    window = Window()
    entry = window.add(0.0, 100)
    window.add(1.0, 5)
    assert window.used(60.0) == 5
    window.correct(entry, 40)
    assert window.used(60.0) == 5
    assert window.used(61.0) == 0


def test_an_entry_that_was_corrected_to_nothing_is_gone_for_good() -> None:
    window = Window()
    first, second, third = (window.add(now, 10) for now in (0.0, 5.0, 10.0))
    window.correct(second, 0)
    assert (window.used(10.0), window.clear(10.0)) == (20, 60.0)
    window.correct(second, 10)
    assert window.used(10.0) == 20
    window.correct(third, 0)
    assert (window.used(10.0), window.clear(10.0)) == (10, 50.0)
    window.correct(first, 0)
    assert (window.used(10.0), window.clear(10.0)) == (0, 0.0)


def test_an_entry_that_was_nothing_at_first_may_become_something() -> None:
    window = Window()
    entry = window.add(0.0, 0)
    window.correct(window.add(1.0, 5), 0)
    window.correct(entry, 9)
    assert (window.used(1.0), window.clear(1.0)) == (9, 59.0)


@pytest.mark.parametrize("kind", [Window, CountWindow])
def test_a_clock_that_steps_back_does_no_harm(kind: type[Window] | type[CountWindow]) -> None:
    window = kind()

    def add(now: float) -> None:
        if isinstance(window, CountWindow):
            window.add(now)
        else:
            window.add(now, 1)

    def wait(now: float) -> float | None:
        return window.wait(now, 2) if isinstance(window, CountWindow) else window.wait(now, 1, 2)

    add(100.0)
    add(40.0)
    assert window.used(40.0) == window.used(159.0) == 2
    assert wait(30.0) == 1.0
    assert window.clear(30.0) == 1.0
    assert window.used(160.0) == 0
    add(50.0)
    assert (window.used(219.0), window.used(220.0)) == (1, 0)


def test_it_works_from_the_beginning_of_time() -> None:
    window, count = Window(), CountWindow()
    window.correct(window.add(-1000.0, 1), 5)
    count.add(-1000.0)
    assert (window.used(-941.0), count.used(-941.0)) == (5, 1)
    assert (window.used(-940.0), count.used(-940.0)) == (0, 0)


def test_memory_holds_what_counts_and_nothing_else() -> None:
    window, count = Window(), CountWindow()
    for number in range(20_000):
        window.add(number / 100, 1)
        count.add(number / 100)
        if number % 2:
            window.correct(window.add(number / 100, 9), 0)
    assert len(window._entries) == window.used(199.99) == 6000
    assert len(count._expiries) == count.used(199.99) == 6000
    assert sys.getsizeof(count._expiries) < 60_000
    window.used(300.0)
    count.used(300.0)
    assert not window._entries
    assert not count._expiries


@given(st.lists(st.tuples(STEPS, st.integers(0, 12), st.integers(0, 9)), max_size=40))
def test_counts_are_those_of_the_reference(steps: list[tuple[float, int, int]]) -> None:
    """Admissions equal one by one, whatever the limit is from one to the next."""
    window, log, now = CountWindow(), Log(), 1000.0
    for step, times, limit in steps:
        now += step
        for _ in range(times):
            wait = window.wait(now, limit)
            assert wait == log.wait(now, 1, limit)
            assert (wait == 0.0) == log.fits(now, 1, limit)
            if wait == 0.0:
                window.add(now)
                log.add(now)
        assert window.used(now) == log.used(now)
        assert window.clear(now) == log.clear(now)


CORRECTIONS = st.none() | st.tuples(st.floats(0, 1), st.integers(0, 30))


@given(
    st.lists(
        st.tuples(STEPS, st.integers(1, 30), st.integers(0, 60), CORRECTIONS),
        max_size=60,
    )
)
def test_sums_are_those_of_the_reference(
    steps: list[tuple[float, int, int, tuple[float, int] | None]],
) -> None:
    """Each step: some time later, so much more, within a limit; then maybe one is corrected, and
    then never again."""
    window, log, now = Window(), Log(), 1000.0
    running = []
    for step, amount, limit, correction in steps:
        now += step
        wait = window.wait(now, amount, limit)
        assert wait == log.wait(now, amount, limit)
        assert (wait == 0.0) == log.fits(now, amount, limit)
        if wait == 0.0:
            running.append((window.add(now, amount), log.add(now, amount)))
        if correction is not None and running:
            place, corrected = correction
            entry, number = running.pop(int(place * (len(running) - 1)))
            window.correct(entry, corrected)
            log.correct(number, corrected)
        assert window.used(now) == log.used(now)
        assert window.clear(now) == log.clear(now)
