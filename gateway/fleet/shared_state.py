"""What replicas share through one connection to Valkey: limits, health, refusals,
affinity, reports."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

from gateway.config.cluster import SharedServer
from gateway.config.schema import Config
from gateway.fleet.affinity import SharedAffinity
from gateway.fleet.health import SharedHealth
from gateway.fleet.limits import SharedLimits
from gateway.fleet.refusals import SharedRefusals
from gateway.fleet.reports import Cancellations, Reports
from gateway.fleet.shares import AbsentReplicas, Shares
from gateway.fleet.valkey.connection import Connection
from gateway.routing.affinity import AffinityIndex
from gateway.routing.health import Health
from gateway.routing.refusals import Refusals
from gateway.store.postgresql.replicas import OwnReplica


class SharedState:
    """One object for each kind of shared state."""

    def __init__(
        self,
        server: SharedServer,
        own: OwnReplica,
        health: Health,
        affinity_index: AffinityIndex,
        refusals: Refusals,
        config: Callable[[], Config],
    ) -> None:
        """`config` returns the configuration in force."""
        self._connection = connection = Connection(server, f"gateway-{own.name}")
        self.health = SharedHealth(connection, health, config)
        self.limits = SharedLimits(connection, own.name)
        self.shares = Shares(lambda: own.position)
        self.absent_replicas = AbsentReplicas(own, self.limits)
        self.cancellations = Cancellations(connection)
        self.reports = Reports(connection, own.name)
        self.refusals = SharedRefusals(connection, refusals, config)
        self.affinity = SharedAffinity(connection, affinity_index, config)

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """Shares state for the time of the block. Raises `SharedError` if the server cannot be
        used."""
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self._connection.close)
            await self._connection.open()
            await stack.enter_async_context(self.health.run())
            self.refusals.start()
            await self.limits.open()
            stack.push_async_callback(self.limits.close)
            yield
