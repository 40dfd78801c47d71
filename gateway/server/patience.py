"""Waits for an upstream that end on time, and at once when a shutdown can wait no longer.

It must not know what is waited for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from types import TracebackType
from typing import TypeVar

from gateway.core.failure import Failure, FailureKind
from gateway.errors import ServiceUnavailable
from gateway.runtime import Runtime
from gateway.upstream.client import AttemptFailed

T = TypeVar("T")


class Patience:
    """`async with Patience(runtime, when)`: raises `TimeoutError` at the loop's time `when`, as
    soon as it is told to `end`, or as soon as the runtime is hurried."""

    __slots__ = ("_runtime", "_timeout")

    def __init__(self, runtime: Runtime, when: float | None) -> None:
        self._runtime = runtime
        self._timeout = asyncio.timeout_at(0.0 if runtime.hurried else when)

    async def __aenter__(self) -> Patience:
        self._runtime.patience.add(self._timeout)
        await self._timeout.__aenter__()
        return self

    def end(self) -> None:
        """The wait is over now."""
        self._timeout.reschedule(0.0)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._runtime.patience.discard(self._timeout)
        await self._timeout.__aexit__(kind, error, traceback)


def hurry(runtime: Runtime) -> None:
    """Ends every wait, now and from now on."""
    runtime.hurried = True
    now = asyncio.get_running_loop().time()
    for wait in tuple(runtime.patience):
        if not wait.expired():
            wait.reschedule(now)
    for drain in tuple(runtime.drains):
        drain.cancel()


async def within(runtime: Runtime, seconds: float, work: Awaitable[T]) -> T:
    """The result of `work`. Raises `AttemptFailed` when it takes longer, `ServiceUnavailable` when
    the gateway is hurried meanwhile."""
    try:
        async with Patience(runtime, asyncio.get_running_loop().time() + seconds):
            return await work
    except TimeoutError:
        raise out_of_time(runtime, seconds) from None


def out_of_time(runtime: Runtime, seconds: float) -> Exception:
    """What the end of a wait means."""
    if runtime.hurried:
        return ServiceUnavailable()
    message = f"the upstream took longer than {seconds:g} s"
    return AttemptFailed(Failure(kind=FailureKind.TIMEOUT, message=message))
