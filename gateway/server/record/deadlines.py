"""Waits with a deadline, which end at once when the gateway aborts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from math import inf
from types import TracebackType
from typing import Self, TypeVar

from gateway.core.events import FailureKind
from gateway.errors import ServiceUnavailable
from gateway.runtime import Runtime
from gateway.upstream.response import attempt_failed

T = TypeVar("T")


class AbortableTimeout:
    """`with AbortableTimeout(runtime, when)`, around awaits of a task: raises `TimeoutError` at the
    loop's time `when`, or as soon as the runtime is aborting."""

    # `asyncio.timeout_at` without its states, as every request pays for them.
    __slots__ = ("_cancelling_before", "_ended", "_runtime", "_task", "when")

    def __init__(self, runtime: Runtime, when: float = inf) -> None:
        self.when = when
        self._runtime = runtime
        self._ended = False

    def __enter__(self) -> Self:
        runtime, task = self._runtime, asyncio.current_task()
        if task is None:
            raise RuntimeError("used outside of a task")
        self._task, self._cancelling_before = task, task.cancelling()
        if runtime.aborting:
            self.when = 0.0  # in the past
        runtime.scheduler.add(self)
        return self

    def on_deadline(self, now: float) -> None:
        self._end()

    def on_abort(self) -> None:
        self._end()

    def _end(self) -> None:
        self.when = inf
        if not self._ended:
            self._ended = True
            self._task.cancel()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._runtime.scheduler.discard(self)
        # A cancellation that was requested elsewhere meanwhile stays one.
        ours = self._ended and self._task.uncancel() <= self._cancelling_before
        if ours and kind is not None and issubclass(kind, asyncio.CancelledError):
            raise TimeoutError from error


def abort_all(runtime: Runtime) -> None:
    """Ends every wait, now and from now on."""
    runtime.aborting = True
    runtime.admission.reject_all(ServiceUnavailable())
    runtime.scheduler.abort_all()
    for drain in tuple(runtime.background_drains):
        drain.cancel()


async def run_with_timeout(runtime: Runtime, seconds: float, work: Awaitable[T]) -> T:
    """The result of `work`. Raises `AttemptFailed` when it takes longer, `ServiceUnavailable` when
    the gateway aborts meanwhile."""
    try:
        with AbortableTimeout(runtime, asyncio.get_running_loop().time() + seconds):
            return await work
    except TimeoutError:
        raise timeout_error(runtime, seconds) from None


async def unless_aborted(runtime: Runtime, work: Awaitable[T]) -> T:
    """The result of `work`. Raises `ServiceUnavailable` when the gateway aborts meanwhile."""
    try:
        with AbortableTimeout(runtime):
            return await work
    except TimeoutError:
        raise ServiceUnavailable from None


def timeout_error(runtime: Runtime, seconds: float) -> Exception:
    """The error of a wait of so many seconds that was ended."""
    if runtime.aborting:
        return ServiceUnavailable()
    return attempt_failed(FailureKind.TIMEOUT, f"the upstream took longer than {seconds:g} s")
