"""How long things may take where tests run on a machine that is busy with something else."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

SLACK: Final = 10.0
"""Seconds by which a busy machine may be late with anything. What a test must tell apart from being
late has to take longer than that."""

_TURN: Final = 0.005
_SCHEDULED: Final = Path("/proc/thread-self/schedstat")


def own_time() -> float:
    """Return the seconds of a clock without those in which this thread waited for a processor that
    another process had. Waits for other threads, files and sockets count."""
    try:
        waited = int(_SCHEDULED.read_text().split()[1]) / 1e9
    except (OSError, IndexError):  # the kernel does not count them
        waited = 0.0
    return time.perf_counter() - waited


async def until_within(seconds: float, is_true: Callable[[], object]) -> None:
    """Waits until it is true. It fails after as many turns of the loop as a machine that does
    nothing else has in that time: on a busy one, where everything is late, they take longer."""
    for _ in range(round(seconds / _TURN)):
        if is_true():
            return
        await asyncio.sleep(_TURN)
    assert is_true(), f"not within {seconds:g} s"


@asynccontextmanager
async def loop_time() -> AsyncIterator[Callable[[], float]]:
    """Seconds since the begin of the block, counted in the same way."""
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(_TURN)
            turns += 1

    task = asyncio.ensure_future(count())
    try:
        yield lambda: turns * _TURN
    finally:
        task.cancel()
