"""Limiters in one process that stand for replicas, each with a connection of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from secrets import token_hex

from pydantic import SecretStr

from gateway.config.cluster import SharedServer
from gateway.core.limits import Limits
from gateway.fleet.limits import SharedLimits
from gateway.fleet.valkey.connection import Connection
from gateway.quota.limits import Holder, HolderKind
from tests.support.valkey import valkey_server


def key(limits: Limits, name: str = "laptop") -> tuple[Holder, ...]:
    return (Holder(HolderKind.KEY, name, name, limits),)


@asynccontextmanager
async def limiter(
    name: str, prefix: str, url: str = "", timeout: float = 2.0
) -> AsyncIterator[SharedLimits]:
    server = SharedServer(url=SecretStr(url or valkey_server().url), prefix=prefix, timeout=timeout)
    connection = Connection(server)
    await connection.open()
    limits = SharedLimits(connection, name)
    try:
        await limits.open()
        yield limits
    finally:
        await limits.close()
        await connection.close()


@asynccontextmanager
async def replicas(
    number: int, url: str = "", timeout: float = 2.0, prefix: str = ""
) -> AsyncIterator[list[SharedLimits]]:
    """They share names that nobody else has."""
    prefix = prefix or f"t{token_hex(6)}"
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(limiter(f"r{n}", prefix, url, timeout))
            for n in range(number)
        ]
