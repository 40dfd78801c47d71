"""A whole gateway in a thread, for commands that need a running one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.resilience.faults.upstream import FaultUpstream, fault_upstream
from tests.support.gateway import RunningGateway, run_gateway


@dataclass(frozen=True, slots=True)
class GatewayProcess:
    """`running` and `upstream` belong to the thread's loop: use them inside `do`."""

    loop: asyncio.AbstractEventLoop
    running: RunningGateway
    upstream: FaultUpstream
    stopped: asyncio.Event = field(default_factory=asyncio.Event)

    def do(self, work: Callable[[], Awaitable[Any]]) -> Any:
        async def done() -> Any:
            return await work()

        return asyncio.run_coroutine_threadsafe(done(), self.loop).result(10)


@contextmanager
def running_gateway(
    state_dir: Path, channels: Callable[[FaultUpstream], list[dict[str, Any]]], **config: Any
) -> Iterator[GatewayProcess]:
    """A gateway whose channels lead to an upstream that fails as it is told."""
    ready: Future[GatewayProcess] = Future()

    async def serve() -> None:
        async with (
            fault_upstream() as upstream,
            run_gateway(state_dir, channels(upstream), **config) as running,
        ):
            gateway = GatewayProcess(asyncio.get_running_loop(), running, upstream)
            ready.set_result(gateway)
            await gateway.stopped.wait()

    def run() -> None:
        try:
            asyncio.run(serve())
        except BaseException as error:
            if ready.done():
                raise
            ready.set_exception(error)

    thread = threading.Thread(target=run)
    thread.start()
    gateway = ready.result(10)
    try:
        yield gateway
    finally:
        gateway.loop.call_soon_threadsafe(gateway.stopped.set)
        thread.join(15)
    assert not thread.is_alive()
