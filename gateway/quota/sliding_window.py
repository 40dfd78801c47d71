"""Exact sliding windows of a minute.

Times are monotonic, in seconds. An event at t counts in [t, t + seconds); a time before the latest
one counts as the latest. All methods but `seconds_until_fits` are O(1), amortised.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

WINDOW_SECONDS: Final = 60.0


@dataclass(slots=True, eq=False)
class Entry:
    """An amount in the window that created it."""

    amount: int
    expires: float


class SlidingWindow:
    """A sum of amounts that can be adjusted later."""

    __slots__ = ("_entries", "_latest", "_seconds", "_used")

    def __init__(self, seconds: float = WINDOW_SECONDS) -> None:
        self._seconds = seconds
        self._entries: deque[Entry] = deque()
        self._used = 0
        self._latest = -math.inf

    def used(self, now: float) -> int:
        """The sum of the amounts in the window."""
        self._expire(now)
        return self._used

    def add(self, now: float, amount: int) -> Entry:
        self._expire(now)
        entry = Entry(amount, self._latest + self._seconds)
        self._entries.append(entry)
        self._used += amount
        return entry

    def adjust(self, entry: Entry, amount: int) -> None:
        """Changes the amount at its original time; an expired entry stays expired, and so does one
        that is adjusted to 0."""
        if entry.expires <= self._latest:
            return
        self._used += amount - entry.amount
        entry.amount = amount
        if not amount:
            entry.expires = -math.inf
            self._trim()

    def seconds_until_fits(self, now: float, amount: int, limit: int) -> float | None:
        """0.0 is now, None never; an amount of 0 always fits. Takes time in proportion to the
        entries that have to expire, or to those that can stay, if they are fewer."""
        if not amount:
            return 0.0
        if amount > limit:
            return None
        stays = limit - amount
        excess = self.used(now) - stays
        if excess <= 0:
            return 0.0
        if excess < stays:
            last = _entry_reaching(excess, self._entries)
        else:
            last = _entry_reaching(stays + 1, reversed(self._entries))
        return last.expires - self._latest

    def seconds_until_empty(self, now: float) -> float:
        self._expire(now)
        return self._entries[-1].expires - self._latest if self._entries else 0.0

    def _expire(self, now: float) -> None:
        if now > self._latest:
            self._latest = now
        entries = self._entries
        while entries and entries[0].expires <= self._latest:
            self._used -= entries.popleft().amount

    def _trim(self) -> None:
        """Keeps the last entry a current one, for `seconds_until_empty`."""
        entries = self._entries
        while entries and entries[-1].expires <= self._latest:
            entries.pop()


def _entry_reaching(total: int, entries: Iterable[Entry]) -> Entry:
    """The entry with which the sum of the amounts reaches `total`."""
    for entry in entries:
        total -= entry.amount
        if total <= 0:
            return entry
    raise AssertionError("the entries add up to what is used")


class SlidingCounter:
    """Counts events; it stores only their times."""

    __slots__ = ("_expiries", "_latest", "_seconds")

    def __init__(self, seconds: float = WINDOW_SECONDS) -> None:
        self._seconds = seconds
        self._expiries: deque[float] = deque()
        self._latest = -math.inf

    def used(self, now: float) -> int:
        if now > self._latest:
            self._latest = now
        expiries = self._expiries
        while expiries and expiries[0] <= self._latest:
            expiries.popleft()
        return len(expiries)

    def add(self, now: float) -> None:
        self.used(now)
        self._expiries.append(self._latest + self._seconds)

    def remove(self, at: float) -> None:
        """Takes back an event of that time, if there is one."""
        with suppress(ValueError):
            self._expiries.remove(at + self._seconds)

    def seconds_until_fits(self, now: float, limit: int) -> float | None:
        """Returns the seconds until one more fits: 0.0 is now, None never."""
        if not limit:
            return None
        used = self.used(now)
        return self._expiries[used - limit] - self._latest if used >= limit else 0.0

    def seconds_until_empty(self, now: float) -> float:
        return self._expiries[-1] - self._latest if self.used(now) else 0.0
