"""Limits retries to a share of all requests, so that failures do not multiply load."""

from __future__ import annotations

from typing import Final

WINDOW_SECONDS: Final = 10
RETRY_RATIO: Final = 0.2
MIN_RETRIES: Final = 30
"""Retries allowed in the window, even with few requests: a burst of a small gateway's."""


class SecondBuckets:
    """Counts events of the current second and the `seconds - 1` before it.

    Times are monotonic, in seconds; an earlier time counts as the latest one.
    """

    __slots__ = ("_counts", "_second", "_seconds", "_total")

    def __init__(self, seconds: int) -> None:
        self._seconds = seconds
        self.clear()

    def clear(self) -> None:
        self._counts = [0] * self._seconds
        self._second = 0
        self._total = 0

    def add(self, now: float) -> None:
        if now >= self._second + 1:
            self._advance(int(now))
        self._counts[self._second % self._seconds] += 1
        self._total += 1

    def count(self, now: float) -> int:
        if now >= self._second + 1:
            self._advance(int(now))
        return self._total

    def _advance(self, second: int) -> None:
        for expired in range(max(self._second, second - self._seconds) + 1, second + 1):
            slot = expired % self._seconds
            self._total -= self._counts[slot]
            self._counts[slot] = 0
        self._second = second


class RetryBudget:
    """The retries of the whole gateway. A retry counts when it is allowed, not while it runs."""

    def __init__(self) -> None:
        self._requests = SecondBuckets(WINDOW_SECONDS)
        # One more, because the current second is incomplete.
        self._retries = SecondBuckets(WINDOW_SECONDS + 1)

    def record_request(self, now: float) -> None:
        """A client's request; its first attempt is not a retry."""
        self._requests.add(now)

    def try_acquire(self, now: float) -> bool:
        """Uses one retry, if there is one left."""
        allowed = max(MIN_RETRIES, RETRY_RATIO * self._requests.count(now))
        if self._retries.count(now) + 1 > allowed:
            return False
        self._retries.add(now)
        return True
