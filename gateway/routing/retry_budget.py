"""How many further attempts the house may make, so that failure never multiplies load.

It must not know which attempts these are, nor why they failed.
"""

from __future__ import annotations

from typing import Final

WINDOW_SECONDS: Final = 10
RETRY_RATIO: Final = 0.2
MIN_RETRIES: Final = 3
"""Retries may be this part of the requests of so many seconds, and at least so many."""


class SecondBuckets:
    """How often something happened in the current second and the `seconds - 1` before it.

    Times are monotonic, in seconds; one that lies in the past counts as the newest that was seen.
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
        """Forgets what is too old now."""
        for each in range(max(self._second, second - self._seconds) + 1, second + 1):
            slot = each % self._seconds
            self._total -= self._counts[slot]
            self._counts[slot] = 0
        self._second = second


class RetryBudget:
    """One for the whole house: retries count when they are allowed, not while they run, for an
    attempt that fails at once would give its place back at once."""

    __slots__ = ("_requests", "_retries")

    def __init__(self) -> None:
        self._requests = SecondBuckets(WINDOW_SECONDS)
        # The second that has only begun does not shorten the time for which retries count.
        self._retries = SecondBuckets(WINDOW_SECONDS + 1)

    def record_request(self, now: float) -> None:
        """A client has asked: its first attempt is free."""
        self._requests.add(now)

    def try_acquire(self, now: float) -> bool:
        """Takes a retry where there is one left."""
        allowed = max(MIN_RETRIES, RETRY_RATIO * self._requests.count(now))
        if self._retries.count(now) + 1 > allowed:
            return False
        self._retries.add(now)
        return True
