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

SPAN: Final = 60.0
"""Seconds of a limit per minute."""


class Entry:
    """An amount in a window; it belongs to the window that made it."""

    __slots__ = ("amount", "expires")

    def __init__(self, amount: int, expires: float) -> None:
        self.amount = amount
        self.expires = expires


class Window:
    """Amounts, each of which may still be corrected."""

    __slots__ = ("_entries", "_seen", "_span", "_used")

    def __init__(self, span: float = SPAN) -> None:
        self._span = span
        self._entries: deque[Entry] = deque()
        self._used = 0
        self._seen = -math.inf

    def used(self, now: float) -> int:
        """The sum of all amounts that count."""
        self._pass(now)
        return self._used

    def add(self, now: float, amount: int) -> Entry:
        self._pass(now)
        entry = Entry(amount, self._seen + self._span)
        self._entries.append(entry)
        self._used += amount
        return entry

    def correct(self, entry: Entry, amount: int) -> None:
        """It was this much, at the time it was added. Nothing happens where it does not count any
        more; corrected to 0 it is gone for good."""
        if entry.expires <= self._seen:
            return
        self._used += amount - entry.amount
        entry.amount = amount
        if not amount:
            entry.expires = -math.inf
            self._drop_last()

    def wait(self, now: float, amount: int, limit: int) -> float | None:
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
        last = self._last_to_go(goes) if goes < stays else self._last_not_to_stay(stays)
        return last.expires - self._seen

    def _last_to_go(self, goes: int) -> Entry:
        for entry in self._entries:
            goes -= entry.amount
            if goes <= 0:
                return entry
        raise AssertionError("all that is used is in the log")

    def _last_not_to_stay(self, stays: int) -> Entry:
        for entry in reversed(self._entries):
            stays -= entry.amount
            if stays < 0:
                return entry
        raise AssertionError("all that is used is in the log")

    def clear(self, now: float) -> float:
        """Seconds until nothing counts any more."""
        self._pass(now)
        return self._entries[-1].expires - self._seen if self._entries else 0.0

    def _pass(self, now: float) -> None:
        """Forgets what does not count any more."""
        if now > self._seen:
            self._seen = now
        entries = self._entries
        while entries and entries[0].expires <= self._seen:
            self._used -= entries.popleft().amount

    def _drop_last(self) -> None:
        """`clear` looks at the last entry: it must be one that counts."""
        entries = self._entries
        while entries and entries[-1].expires <= self._seen:
            entries.pop()


class CountWindow:
    """How often something happened: a leaner log, of times alone."""

    __slots__ = ("_expiries", "_seen", "_span")

    def __init__(self, span: float = SPAN) -> None:
        self._span = span
        self._expiries: deque[float] = deque()
        self._seen = -math.inf

    def used(self, now: float) -> int:
        """How often it happened in the window."""
        if now > self._seen:
            self._seen = now
        expiries = self._expiries
        while expiries and expiries[0] <= self._seen:
            expiries.popleft()
        return len(expiries)

    def add(self, now: float) -> None:
        self.used(now)
        self._expiries.append(self._seen + self._span)

    def wait(self, now: float, limit: int) -> float | None:
        """Seconds until there is room for one more: 0.0 is now, None never."""
        if not limit:
            return None
        used = self.used(now)
        return self._expiries[used - limit] - self._seen if used >= limit else 0.0

    def clear(self, now: float) -> float:
        """Seconds until nothing counts any more."""
        return self._expiries[-1] - self._seen if self.used(now) else 0.0
