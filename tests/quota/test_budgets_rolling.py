"""What was spent in the last hours, compared with a list of all amounts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.quota.budgets import (
    FIVE_HOURS,
    FIVE_HOURS_STEP,
    WEEK,
    WEEK_STEP,
    RollingWindow,
)

START = 1_795_000_000_123_456
MINUTE = 60_000_000
HOUR = 60 * MINUTE

WINDOWS = st.sampled_from([(FIVE_HOURS, FIVE_HOURS_STEP), (WEEK, WEEK_STEP)])
PAUSES = st.one_of(
    st.sampled_from([0, 1, 5 * MINUTE - 1, 5 * MINUTE, HOUR, FIVE_HOURS, FIVE_HOURS + 1, WEEK]),
    st.integers(0, 3 * HOUR),
)
"""Microseconds, with many values just inside and just outside of steps and windows."""
SET_BACK = st.sampled_from([-1, -5 * MINUTE, -HOUR, -FIVE_HOURS + 5 * MINUTE])


class Reference:
    """A list that is summed each time."""

    def __init__(self, length: int, step: int) -> None:
        self.length, self.step = length, step
        self.amounts: list[tuple[int, int]] = []

    def exact(self, at: int) -> int:
        """Of amounts not older than the window, the smallest sum that is right."""
        return sum(amount for time, amount in self.amounts if at - self.length < time <= at)

    def longest(self, at: int) -> int:
        """The sum with a step more, and with what a clock that was set back has left ahead."""
        oldest, newest = at - self.length - self.step, at + self.length + self.step
        return sum(amount for time, amount in self.amounts if oldest < time < newest)


@given(WINDOWS, st.lists(st.tuples(PAUSES | SET_BACK, st.integers(1, 9)), max_size=40), PAUSES)
def test_never_less_than_the_window_and_never_more_than_a_step_longer(
    window: tuple[int, int], amounts: list[tuple[int, int]], pause: int
) -> None:
    rolling, reference, now = RollingWindow(*window), Reference(*window), START
    for step, amount in (*amounts, (pause, 0)):
        now += step
        if amount:
            rolling.add(amount, now)
            reference.amounts.append((now, amount))
        assert reference.exact(now) <= rolling.spent(now) <= reference.longest(now)


@given(
    WINDOWS,
    st.lists(st.tuples(PAUSES, st.integers(1, 9)), max_size=30),
    st.integers(0, 60),
)
def test_the_time_of_room_is_the_first_at_which_so_little_is_spent(
    window: tuple[int, int], amounts: list[tuple[int, int]], most: int
) -> None:
    rolling, now = RollingWindow(*window), START
    for pause, amount in amounts:
        now += pause
        rolling.add(amount, now)
    time = rolling.time_of_room(now, most)
    if time is None:
        assert rolling.spent(now) <= most
        return
    assert time > now
    assert time % window[1] == 0
    assert rolling.spent(time - 1) > most
    assert rolling.spent(time) <= most


def test_an_amount_leaves_a_step_late_at_most() -> None:
    rolling = RollingWindow(FIVE_HOURS, FIVE_HOURS_STEP)
    first_of_step = START - START % FIVE_HOURS_STEP
    last_of_step = first_of_step + FIVE_HOURS_STEP - 1
    rolling.add(3, first_of_step)
    rolling.add(4, last_of_step)
    assert rolling.spent(last_of_step + FIVE_HOURS) == 7
    assert rolling.spent(last_of_step + FIVE_HOURS + 1) == 0
    assert rolling.time_of_room(last_of_step, 6) == last_of_step + FIVE_HOURS + 1


def test_without_room_at_any_time_it_is_when_nothing_is_left() -> None:
    rolling = RollingWindow(FIVE_HOURS, FIVE_HOURS_STEP)
    assert rolling.time_of_room(START, -1) is None
    rolling.add(5, START)
    gone = rolling.time_of_room(START, -1)
    assert gone is not None and rolling.spent(gone) == 0


@pytest.mark.parametrize("jump", [MINUTE, HOUR, FIVE_HOURS - MINUTE])
def test_a_clock_that_is_set_back_forgets_nothing(jump: int) -> None:
    rolling = RollingWindow(FIVE_HOURS, FIVE_HOURS_STEP)
    rolling.add(5, START)
    assert rolling.spent(START - jump) == 5
    rolling.add(1, START - jump)
    assert rolling.spent(START - jump) == 6
    assert rolling.spent(START + FIVE_HOURS - 2 * MINUTE) >= 5


@pytest.mark.parametrize("away", [-400, -2, 2, 400])
def test_a_clock_that_was_days_wrong_for_a_while_resets_and_blocks_nothing(away: int) -> None:
    rolling = RollingWindow(FIVE_HOURS, FIVE_HOURS_STEP)
    rolling.add(5, START)
    wrong = START + away * 24 * HOUR
    assert rolling.spent(wrong) == 0
    for minute in range(40):
        rolling.add(100, wrong + minute * MINUTE)
    assert rolling.spent(START + MINUTE) == 5
    rolling.add(1, START + MINUTE)
    assert rolling.spent(START + 2 * MINUTE) == 6


@pytest.mark.parametrize(("length", "step"), [(FIVE_HOURS, FIVE_HOURS_STEP), (WEEK, WEEK_STEP)])
def test_it_has_a_bounded_number_of_steps(length: int, step: int) -> None:
    rolling, steps = RollingWindow(length, step), length // step
    for number in range(20 * steps):
        now = START + number * step
        rolling.add(1, now)
        assert rolling.spent(now) == min(number, steps) + 1
    assert len(rolling._amounts) == 2 * steps
