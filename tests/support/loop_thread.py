"""A thread with an event loop, for what a test without one needs to run beside it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import TypeVar

T = TypeVar("T")


@contextmanager
def run_in_thread(opened: AbstractAsyncContextManager[T]) -> Iterator[T]:
    """What `opened` yields, which lives in the loop of another thread until the block ends."""
    ready: Future[tuple[T, asyncio.AbstractEventLoop, asyncio.Event]] = Future()
    ended: Future[None] = Future()

    async def serve() -> None:
        async with opened as value:
            stopped = asyncio.Event()
            ready.set_result((value, asyncio.get_running_loop(), stopped))
            await stopped.wait()

    def run() -> None:
        try:
            ended.set_result(asyncio.run(serve()))
        except BaseException as error:
            (ended if ready.done() else ready).set_exception(error)

    thread = threading.Thread(target=run)
    thread.start()
    value, loop, stopped = ready.result(10)
    try:
        yield value
    finally:
        loop.call_soon_threadsafe(stopped.set)
        thread.join(15)
        assert not thread.is_alive()
    ended.result(0)
