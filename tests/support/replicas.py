"""Several gateways of one fleet in the test's own loop, on a database and a prefix of theirs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

from tests.support.gateway import RunningGateway, run_gateway
from tests.support.postgres import new_database_url
from tests.support.valkey import valkey_server

_numbers = count(1)


@asynccontextmanager
async def run_replicas(
    folder: Path, number: int, channels: list[dict[str, Any]], **config: Any
) -> AsyncIterator[list[RunningGateway]]:
    """Every one knows the key of the first."""
    shared = {"url": valkey_server().url, "prefix": f"replicas{next(_numbers)}"}
    options = {"database": await new_database_url(), "shared": shared} | config
    async with AsyncExitStack() as stack:
        gateways: list[RunningGateway] = []
        for index in range(number):
            state_dir = folder / f"replica-{index}"
            state_dir.mkdir(parents=True)
            replica = {"replica": {"name": f"replica-{index}"}}
            running = run_gateway(state_dir, channels, **options | replica)
            gateways.append(await stack.enter_async_context(running))
        yield gateways
