"""Waits that end on time, and at once when the gateway shuts down. It must not know what for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from gateway.core.failure import Failure, FailureKind
from gateway.errors import ServiceUnavailable
from gateway.runtime import Runtime
from gateway.upstream.client import AttemptFailed

T = TypeVar("T")


@contextmanager
def patience(runtime: Runtime, seconds: float) -> Iterator[asyncio.Timeout]:
    """A timeout that a shutdown may cut short; enter it with `async with`."""
    timeout = asyncio.timeout(seconds)
    runtime.patience.add(timeout)
    try:
        yield timeout
    finally:
        runtime.patience.discard(timeout)


def lose_patience(runtime: Runtime) -> None:
    """Ends every wait that a shutdown may cut short, now; those that are ending already just do."""
    now = asyncio.get_running_loop().time()
    for wait in tuple(runtime.patience):
        if not wait.expired():
            wait.reschedule(now)


async def within(runtime: Runtime, seconds: float, work: Awaitable[T]) -> T:
    """The result of `work`. Raises `AttemptFailed` when it takes longer, `ServiceUnavailable` when
    the gateway shuts down meanwhile."""
    timeout = asyncio.timeout(seconds)
    runtime.patience.add(timeout)
    try:
        async with timeout:
            return await work
    except TimeoutError:
        raise out_of_time(runtime, seconds) from None
    finally:
        runtime.patience.discard(timeout)


def out_of_time(runtime: Runtime, seconds: float) -> Exception:
    """What the end of a wait means."""
    if runtime.draining:
        return ServiceUnavailable()
    message = f"the upstream took longer than {seconds:g} s"
    return AttemptFailed(Failure(kind=FailureKind.TIMEOUT, message=message))
