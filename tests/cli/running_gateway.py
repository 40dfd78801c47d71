"""A whole gateway in a thread, for commands that need a running one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.resilience.faults.upstream import FaultUpstream, fault_upstream
from tests.support.gateway import RunningGateway, run_gateway
from tests.support.loop_thread import run_in_thread


@dataclass(frozen=True, slots=True)
class GatewayProcess:
    """`running` and `upstream` belong to the thread's loop: use them inside `do`."""

    loop: asyncio.AbstractEventLoop
    running: RunningGateway
    upstream: FaultUpstream

    def do(self, work: Callable[[], Awaitable[Any]]) -> Any:
        async def done() -> Any:
            return await work()

        return asyncio.run_coroutine_threadsafe(done(), self.loop).result(10)


def running_gateway(
    state_dir: Path, channels: Callable[[FaultUpstream], list[dict[str, Any]]], **config: Any
) -> AbstractContextManager[GatewayProcess]:
    """A gateway whose channels lead to an upstream that fails as it is told."""

    @asynccontextmanager
    async def serve() -> AsyncIterator[GatewayProcess]:
        async with (
            fault_upstream() as upstream,
            run_gateway(state_dir, channels(upstream), **config) as running,
        ):
            yield GatewayProcess(asyncio.get_running_loop(), running, upstream)

    return run_in_thread(serve())
