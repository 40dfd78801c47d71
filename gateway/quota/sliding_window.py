"""What happened in the last minute: exact sliding logs. They must not know what they count, nor
what follows where there is no room.

Times are monotonic, in seconds. What happened at t counts until t + span is reached, and then no
longer: the window is half open, (now - span, now]. A time that lies before the newest that was
seen counts as that one. All but `wait` are O(1), amortised; memory holds only what counts.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Final

WINDOW_SECONDS: Final = 60.0
"""Seconds of a limit per minute."""


class Entry:
    """An amount in a window; it belongs to the window that made it."""

    __slots__ = ("amount", "expires")

    def __init__(self, amount: int, expires: float) -> None:
        self.amount = amount
        self.expires = expires


class SlidingWindow:
    """Amounts, each of which may still be corrected."""

    __slots__ = ("_entries", "_latest", "_seconds", "_used")

    def __init__(self, seconds: float = WINDOW_SECONDS) -> None:
        self._seconds = seconds
        self._entries: deque[Entry] = deque()
        self._used = 0
        self._latest = -math.inf

    def used(self, now: float) -> int:
        """The sum of all amounts that count."""
        self._expire(now)
        return self._used

    def add(self, now: float, amount: int) -> Entry:
        self._expire(now)
        entry = Entry(amount, self._latest + self._seconds)
        self._entries.append(entry)
        self._used += amount
        return entry

    def adjust(self, entry: Entry, amount: int) -> None:
        """It was this much, at the time it was added. Nothing happens where it does not count any
        more; corrected to 0 it is gone for good."""
        if entry.expires <= self._latest:
            return
        self._used += amount - entry.amount
        entry.amount = amount
        if not amount:
            entry.expires = -math.inf
            self._trim()

    def seconds_until_fits(self, now: float, amount: int, limit: int) -> float | None:
        """Seconds until `amount` more fits: 0.0 is now, None never; nothing always fits. Takes as
        long as there are entries that must go before, or that may stay, if those are fewer."""
        if not amount:
            return 0.0
        if amount > limit:
            return None
        stays = limit - amount
        goes = self.used(now) - stays
        if goes <= 0:
            return 0.0
        last = self._last_expiring(goes) if goes < stays else self._last_evicted(stays)
        return last.expires - self._latest

    def _last_expiring(self, goes: int) -> Entry:
        for entry in self._entries:
            goes -= entry.amount
            if goes <= 0:
                return entry
        raise AssertionError("all that is used is in the log")

    def _last_evicted(self, stays: int) -> Entry:
        for entry in reversed(self._entries):
            stays -= entry.amount
            if stays < 0:
                return entry
        raise AssertionError("all that is used is in the log")

    def seconds_until_empty(self, now: float) -> float:
        """Seconds until nothing counts any more."""
        self._expire(now)
        return self._entries[-1].expires - self._latest if self._entries else 0.0

    def _expire(self, now: float) -> None:
        """Forgets what does not count any more."""
        if now > self._latest:
            self._latest = now
        entries = self._entries
        while entries and entries[0].expires <= self._latest:
            self._used -= entries.popleft().amount

    def _trim(self) -> None:
        """`clear` looks at the last entry: it must be one that counts."""
        entries = self._entries
        while entries and entries[-1].expires <= self._latest:
            entries.pop()


class SlidingCounter:
    """How often something happened: a leaner log, of times alone."""

    __slots__ = ("_expiries", "_latest", "_seconds")

    def __init__(self, seconds: float = WINDOW_SECONDS) -> None:
        self._seconds = seconds
        self._expiries: deque[float] = deque()
        self._latest = -math.inf

    def used(self, now: float) -> int:
        """How often it happened in the window."""
        if now > self._latest:
            self._latest = now
        expiries = self._expiries
        while expiries and expiries[0] <= self._latest:
            expiries.popleft()
        return len(expiries)

    def add(self, now: float) -> None:
        self.used(now)
        self._expiries.append(self._latest + self._seconds)

    def seconds_until_fits(self, now: float, limit: int) -> float | None:
        """Seconds until there is room for one more: 0.0 is now, None never."""
        if not limit:
            return None
        used = self.used(now)
        return self._expiries[used - limit] - self._latest if used >= limit else 0.0

    def seconds_until_empty(self, now: float) -> float:
        """Seconds until nothing counts any more."""
        return self._expiries[-1] - self._latest if self.used(now) else 0.0
