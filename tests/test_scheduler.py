"""Many deadlines on one timer: each is called in time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf
from typing import Any

import pytest

from gateway.scheduler import MIN_INTERVAL, DeadlineScheduler, next_stage

LATE = 0.15
"""Seconds that a call can be late on a busy machine."""


@dataclass(eq=False)
class Entry:
    """Discards itself when it is called, unless `act` does something else."""

    scheduler: DeadlineScheduler
    when: float
    act: Callable[[Entry], None] | None = None
    called: list[float] = field(default_factory=list)
    aborted: int = 0
    act_on_abort: Callable[[Entry], None] | None = None

    def on_deadline(self, now: float) -> None:
        assert now >= self.when
        self.called.append(now)
        if self.act is None:
            self.scheduler.discard(self)
        else:
            self.act(self)

    def on_abort(self) -> None:
        self.aborted += 1
        if self.act_on_abort is not None:
            self.act_on_abort(self)


@pytest.fixture
async def scheduler() -> AsyncIterator[DeadlineScheduler]:
    scheduler = DeadlineScheduler()
    yield scheduler
    scheduler.close()


@pytest.fixture
async def raised() -> AsyncIterator[list[str]]:
    """Exceptions reported to the loop."""
    raised: list[str] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: raised.append(str(context["exception"])))
    yield raised
    loop.set_exception_handler(None)


def now() -> float:
    return asyncio.get_running_loop().time()


def add(scheduler: DeadlineScheduler, after: float, **fields: Any) -> Entry:
    entry = Entry(scheduler, now() + after, **fields)
    scheduler.add(entry)
    return entry


def timers(scheduler: DeadlineScheduler) -> int:
    """The number of the loop's timers that would check the entries."""
    scheduled = asyncio.get_running_loop()._scheduled  # type: ignore[attr-defined]
    return sum(
        not timer.cancelled() and getattr(timer._callback, "__self__", None) is scheduler
        for timer in scheduled
    )


async def test_entries_are_called_in_time(scheduler: DeadlineScheduler) -> None:
    begun = now()
    entries = [add(scheduler, after / 100) for after in (9, 3, 6, 3, 0, 12, -5)]
    await asyncio.sleep(0.12 + LATE)
    for entry in entries:
        (called,) = entry.called
        assert entry.when <= called <= max(entry.when, begun) + LATE
    assert len(scheduler) == 0
    assert timers(scheduler) == 0


async def test_an_extended_deadline(scheduler: DeadlineScheduler) -> None:
    entry = add(scheduler, 0.02)
    entry.when += 0.1
    begun = now()
    while not entry.called:
        await asyncio.sleep(0.01)
    assert entry.called[0] - begun + 0.02 >= 0.1


async def test_a_deadline_extended_by_its_callback(scheduler: DeadlineScheduler) -> None:
    def move_on(entry: Entry) -> None:
        entry.when += 0.02

    entry = add(scheduler, 0.02, act=move_on)
    await asyncio.sleep(0.1 + LATE)
    assert len(entry.called) >= 4
    assert all(later - one >= MIN_INTERVAL for one, later in pairwise(entry.called))


async def test_a_shortened_deadline(scheduler: DeadlineScheduler) -> None:
    """After it is added again."""
    entry = add(scheduler, 60)
    entry.when = now() + 0.02
    scheduler.add(entry)
    await asyncio.sleep(0.02 + LATE)
    assert len(entry.called) == 1
    assert len(scheduler) == 0


async def test_an_expired_deadline_is_not_called_continuously(
    scheduler: DeadlineScheduler,
) -> None:
    entry = add(scheduler, 0, act=lambda entry: None)
    await asyncio.sleep(0.1)
    assert 1 <= len(entry.called) <= 0.1 / MIN_INTERVAL + 2


async def test_a_discarded_entry(scheduler: DeadlineScheduler) -> None:
    entry = add(scheduler, 0.01)
    scheduler.discard(entry)
    scheduler.discard(entry)
    await asyncio.sleep(0.05)
    assert not entry.called


async def test_an_entry_discarded_by_another(scheduler: DeadlineScheduler) -> None:
    """Both are due together, and the first discards the other."""

    def discard_both(entry: Entry) -> None:
        for each in (one, other):
            scheduler.discard(each)

    one = add(scheduler, 0.01, act=discard_both)
    other = add(scheduler, 0.01, act=discard_both)
    await asyncio.sleep(0.05)
    assert len(one.called) + len(other.called) == 1


@pytest.mark.parametrize("after", [-10, 0, 0.02, 60])
async def test_an_entry_added_by_another(scheduler: DeadlineScheduler, after: float) -> None:
    """There is one timer at any time."""
    added: list[Entry] = []
    add(scheduler, 120)

    def add_another(entry: Entry) -> None:
        scheduler.discard(entry)
        added.append(add(scheduler, after))

    for _ in range(5):
        add(scheduler, 0.01, act=add_another)
    while len(added) < 5:
        await asyncio.sleep(0)
    assert timers(scheduler) <= 1
    await asyncio.sleep(0.03 + LATE)
    assert [len(entry.called) for entry in added] == [int(after < 1)] * 5
    assert timers(scheduler) == 1


async def test_a_callback_that_raises(scheduler: DeadlineScheduler, raised: list[str]) -> None:
    """The others are called, and it is not called again."""

    def fail(entry: Entry) -> None:
        raise RuntimeError("no")

    entries = [add(scheduler, 0.01, act=fail if number == 1 else None) for number in range(3)]
    later = add(scheduler, 0.05)
    await asyncio.sleep(0.05 + LATE)
    assert [len(entry.called) for entry in (*entries, later)] == [1] * 4
    assert raised == ["no"]
    assert len(scheduler) == 0


async def test_abort_all(scheduler: DeadlineScheduler, raised: list[str]) -> None:
    """Every entry is called, although one raises; but none that was discarded meanwhile."""

    def fail(entry: Entry) -> None:
        raise RuntimeError("no")

    def discard_last(entry: Entry) -> None:
        scheduler.discard(entries[-1])

    acts = (None, fail, discard_last, None, None)
    entries = [add(scheduler, 60, act_on_abort=act) for act in acts]
    scheduler.abort_all()
    assert [entry.aborted for entry in entries] == [1, 1, 1, 1, 0]
    assert raised == ["no"]
    assert not any(entry.called for entry in entries)


async def test_close(scheduler: DeadlineScheduler) -> None:
    """No entry is called any more, added before or after."""
    entry = add(scheduler, 0.01)
    scheduler.close()
    late = add(scheduler, -1)
    assert timers(scheduler) == 0
    scheduler.close()
    await asyncio.sleep(0.03)
    assert not entry.called and not late.called


async def test_closed_by_an_entry(scheduler: DeadlineScheduler) -> None:
    def close(entry: Entry) -> None:
        scheduler.close()
        add(scheduler, 0)

    entries = [add(scheduler, 0.01, act=close) for _ in range(3)]
    await asyncio.sleep(0.05)
    assert sum(len(entry.called) for entry in entries) == 1
    assert timers(scheduler) == 0


async def test_an_entry_without_a_deadline(scheduler: DeadlineScheduler) -> None:
    """It needs no timer, but it can be aborted."""
    entry = Entry(scheduler, inf)
    scheduler.add(entry)
    assert timers(scheduler) == 0
    scheduler.abort_all()
    assert entry.aborted == 1


async def test_thousands_of_entries_use_one_timer(scheduler: DeadlineScheduler) -> None:
    entries = [add(scheduler, 60 - number / 1000) for number in range(5000)]
    assert len(scheduler) == 5000
    assert timers(scheduler) == 1
    for entry in entries[1000:]:
        scheduler.discard(entry)
    for entry in entries[:1000]:
        entry.when = now()
    scheduler.add(entries[0])
    await asyncio.sleep(LATE)
    assert all(len(entry.called) == 1 for entry in entries[:1000])
    assert len(scheduler) == timers(scheduler) == 0


async def test_each_stage_runs_for_all_before_the_next_begins() -> None:
    order: list[str] = []

    async def handle(name: str) -> None:
        for stage in "123":
            order.append(stage + name)
            await next_stage()

    await asyncio.gather(*(handle(name) for name in "abc"))
    assert order == ["1a", "1b", "1c", "2a", "2b", "2c", "3a", "3b", "3c"]


async def test_a_request_that_is_cancelled_ends_at_its_stage() -> None:
    reached: list[int] = []

    async def handle() -> None:
        for stage in range(3):
            reached.append(stage)
            await next_stage()

    task = asyncio.ensure_future(handle())
    await next_stage()
    task.cancel()
    await asyncio.wait({task})
    assert task.cancelled()
    assert reached == [0]
