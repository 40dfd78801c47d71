"""Counts of values between bounds."""

from __future__ import annotations

from bisect import bisect_left


class Histogram:
    """`counts` has one more number than `bounds`: what is above them. `total` is the sum."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def add(self, other: Histogram) -> None:
        """Add the observations of `other`, which has the same bounds."""
        self.counts = [sum(pair) for pair in zip(self.counts, other.counts, strict=True)]
        self.total += other.total
