"""Many deadlines on one timer of the event loop.

Nearly every deadline of a request is discarded long before it is due. A timer of its own for each
would cost more than everything else that is done for it; an entry in a dict costs next to nothing.
It must not know what is waited for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf
from typing import Final, Protocol

MIN_INTERVAL: Final = 0.01
"""Seconds between two looks at all entries: an entry may be called so late."""


class Entry(Protocol):
    """`when` is a time of the loop. It may be moved on at any moment, but forward only: to move it
    back, add the entry again."""

    when: float

    def on_deadline(self, now: float) -> None:
        """The time has passed: moves `when` on, or discards the entry."""
        ...

    def on_abort(self) -> None:
        """The gateway can wait no longer."""
        ...


class DeadlineScheduler:
    """Used inside one running event loop."""

    __slots__ = ("_entries", "_is_closed", "_next_check", "_timer")

    def __init__(self) -> None:
        self._entries: dict[Entry, None] = {}
        self._is_closed = False
        self._next_check = inf
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, entry: Entry) -> None:
        self._entries[entry] = None
        if entry.when < self._next_check:
            self._schedule_check(entry.when)

    def discard(self, entry: Entry) -> None:
        self._entries.pop(entry, None)

    def abort_all(self) -> None:
        """Tells every entry that the gateway can wait no longer."""
        for entry in tuple(self._entries):
            if entry in self._entries:
                self._call(entry, entry.on_abort)

    def close(self) -> None:
        """Calls no entry any more."""
        self._entries.clear()
        self._is_closed = True
        self._next_check = -inf  # nothing is sooner
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _call(self, entry: Entry, function: Callable[..., None], *args: float) -> None:
        try:
            function(*args)
        except Exception as error:  # the other entries must be called all the same
            self.discard(entry)
            context = {"message": "a deadline failed", "exception": error}
            asyncio.get_running_loop().call_exception_handler(context)

    def _schedule_check(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._next_check = when
        self._timer = asyncio.get_running_loop().call_at(when, self._check)

    def _check(self) -> None:
        now = asyncio.get_running_loop().time()
        self._timer = None
        self._next_check = -inf  # what is added meanwhile counts below
        for entry in [entry for entry in self._entries if entry.when <= now]:
            if entry in self._entries:  # one that was called before it may have discarded it
                self._call(entry, entry.on_deadline, now)
        if self._is_closed:
            return
        self._next_check = inf
        next_deadline = min((entry.when for entry in self._entries), default=inf)
        if next_deadline < inf:
            self._schedule_check(max(next_deadline, now + MIN_INTERVAL))
