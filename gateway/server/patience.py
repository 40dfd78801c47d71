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
    """`with Patience(runtime, when)`, around waits of a task: raises `TimeoutError` at the loop's
    time `when`, as soon as it is told to `end`, or as soon as the runtime is hurried."""

    # What `asyncio.timeout_at` does, without its states: nobody asks for them, and every request
    # pays for them.
    __slots__ = ("_before", "_over", "_runtime", "_task", "_timer", "_when")

    def __init__(self, runtime: Runtime, when: float | None) -> None:
        self._runtime = runtime
        self._when = when
        self._over = False
        self._timer: asyncio.Handle | None = None

    def __enter__(self) -> Patience:
        runtime, task = self._runtime, asyncio.current_task()
        if task is None:
            raise RuntimeError("there is nobody to wait")
        self._task, self._before = task, task.cancelling()
        if runtime.hurried:
            self._timer = task.get_loop().call_soon(self.end)
        elif self._when is not None:
            self._timer = task.get_loop().call_at(self._when, self.end)
        runtime.patience.add(self)
        return self

    def end(self) -> None:
        """The wait is over now."""
        if not self._over:
            self._over = True
            self._task.cancel()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._runtime.patience.discard(self)
        if self._timer is not None:
            self._timer.cancel()
        ours = self._over and self._task.uncancel() <= self._before
        if ours and kind is not None and issubclass(kind, asyncio.CancelledError):
            raise TimeoutError from error


def hurry(runtime: Runtime) -> None:
    """Ends every wait, now and from now on."""
    runtime.hurried = True
    for wait in tuple(runtime.patience):
        wait.end()
    for drain in tuple(runtime.drains):
        drain.cancel()


async def within(runtime: Runtime, seconds: float, work: Awaitable[T]) -> T:
    """The result of `work`. Raises `AttemptFailed` when it takes longer, `ServiceUnavailable` when
    the gateway is hurried meanwhile."""
    try:
        with Patience(runtime, asyncio.get_running_loop().time() + seconds):
            return await work
    except TimeoutError:
        raise out_of_time(runtime, seconds) from None


def out_of_time(runtime: Runtime, seconds: float) -> Exception:
    """What the end of a wait means."""
    if runtime.hurried:
        return ServiceUnavailable()
    message = f"the upstream took longer than {seconds:g} s"
    return AttemptFailed(Failure(kind=FailureKind.TIMEOUT, message=message))
