"""A simple reference of the sliding window: a list that is scanned each time."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import strategies as st

SPAN = 60.0

STEPS = st.one_of(
    st.sampled_from([0.0, 0.125, 1.0, 59.875, 60.0, 60.125, 200.0]),
    st.integers(0, 100).map(lambda eighths: eighths / 8),
)
"""Seconds between two steps: eighths, which floats represent exactly, with many values
just inside and just outside of a window."""


class Log:
    def __init__(self) -> None:
        self.happened: list[tuple[float, int]] = []

    def add(self, now: float, amount: int = 1) -> int:
        self.happened.append((now, amount))
        return len(self.happened) - 1

    def correct(self, number: int, amount: int) -> None:
        self.happened[number] = self.happened[number][0], amount

    def used(self, now: float) -> int:
        return sum(amount for at, amount in self.happened if now - SPAN < at <= now)

    def fits(self, now: float, amount: int, limit: int) -> bool:
        return not amount or self.used(now) + amount <= limit

    def wait(self, now: float, amount: int, limit: int) -> float | None:
        """Tries every time at which an entry expires."""
        return self._first(now, lambda moment: self.fits(moment, amount, limit))

    def clear(self, now: float) -> float:
        wait = self._first(now, lambda moment: self.used(moment) == 0)
        assert wait is not None
        return wait

    def _first(self, now: float, holds: Callable[[float], bool]) -> float | None:
        moments = [now, *sorted(at + SPAN for at, _ in self.happened if at + SPAN > now)]
        return next((moment - now for moment in moments if holds(moment)), None)
