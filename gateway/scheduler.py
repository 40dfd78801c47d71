"""When work runs: many deadlines on one timer, the stages of requests, and tasks beside a block.

Most deadlines are discarded long before they are due, so a timer for each would be expensive; an
entry in a dict is cheap.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Generator
from contextlib import asynccontextmanager
from math import inf
from types import coroutine
from typing import Any, Final, Protocol

MIN_INTERVAL: Final = 0.01
"""Seconds between two checks of all entries, so an entry can be called this late."""


@asynccontextmanager
async def running(work: Coroutine[Any, Any, object]) -> AsyncIterator[None]:
    """Runs work as a task for the time of the block; at its end it is cancelled and waited for."""
    task = asyncio.ensure_future(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})


@coroutine
def next_stage() -> Generator[None, None, None]:
    """`await next_stage()` between two stages of a request: the others get their turn.

    Under load some dozen requests are ready at once: then each stage runs for all of them before
    the next one begins, its code and data still in the processor's caches. That saves a fifth of
    all processor time (docs/performance.md); alone, a request pays about two microseconds. It does
    what `asyncio.sleep(0)` does, in one call instead of two.
    """
    yield


class Entry(Protocol):
    """`when` is a time of the loop. It can be increased at any time; after a decrease, add the
    entry again."""

    when: float

    def on_deadline(self, now: float) -> None:
        """Increases `when`, or discards the entry."""
        ...

    def on_abort(self) -> None:
        """The gateway is stopping."""
        ...


class DeadlineScheduler:
    """A scheduler for one running event loop."""

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
        """Calls `on_abort` of every entry."""
        for entry in tuple(self._entries):
            if entry in self._entries:
                self._call(entry, entry.on_abort)

    def close(self) -> None:
        """Stops calling entries."""
        self._entries.clear()
        self._is_closed = True
        self._next_check = -inf  # no deadline is earlier
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _call(self, entry: Entry, function: Callable[..., None], *args: float) -> None:
        try:
            function(*args)
        except Exception as error:  # the other entries have to be called nevertheless
            self.discard(entry)
            context = {"message": "a deadline callback failed", "exception": error}
            asyncio.get_running_loop().call_exception_handler(context)

    def _schedule_check(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._next_check = when
        self._timer = asyncio.get_running_loop().call_at(when, self._check)

    def _check(self) -> None:
        now = asyncio.get_running_loop().time()
        self._timer = None
        self._next_check = -inf  # entries that are added meanwhile are included below
        for entry in [entry for entry in self._entries if entry.when <= now]:
            if entry in self._entries:  # an earlier callback can have discarded it
                self._call(entry, entry.on_deadline, now)
        if self._is_closed:
            return
        self._next_check = inf
        next_deadline = min((entry.when for entry in self._entries), default=inf)
        if next_deadline < inf:
            self._schedule_check(max(next_deadline, now + MIN_INTERVAL))
