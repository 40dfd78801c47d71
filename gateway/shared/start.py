"""Opens the connection to the Valkey server and everything that replicas share through it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from gateway.config.cluster import SharedServer
from gateway.config.schema import Config
from gateway.routing.affinity import AffinityIndex
from gateway.routing.health import Health
from gateway.shared.affinity import SharedAffinity
from gateway.shared.cancellations import Cancellations
from gateway.shared.connection import Connection
from gateway.shared.health import SharedHealth, shared_health
from gateway.shared.limits import SharedLimits, shared_limits
from gateway.shared.reports import Reports


@dataclass(frozen=True, slots=True)
class SharedState:
    """One object for each kind of shared state, all on `connection`."""

    connection: Connection
    health: SharedHealth
    limits: SharedLimits
    cancellations: Cancellations
    reports: Reports
    affinity: SharedAffinity


@asynccontextmanager
async def shared_state(
    server: SharedServer,
    name: str,
    health: Health,
    affinity_index: AffinityIndex,
    config: Callable[[], Config],
) -> AsyncIterator[SharedState]:
    """For the time of the block. `name` is the replica's, `config` returns the configuration in
    force. Raises `SharedError` where the server cannot be used."""
    connection = Connection(server, f"gateway-{name}")
    async with AsyncExitStack() as stack:
        stack.push_async_callback(connection.close)
        await connection.open()
        yield SharedState(
            connection,
            health=await stack.enter_async_context(shared_health(connection, health, config)),
            limits=await stack.enter_async_context(shared_limits(connection, name)),
            cancellations=Cancellations(connection),
            reports=Reports(connection, name),
            affinity=SharedAffinity(connection, affinity_index, config),
        )
