"""Replicas of one process that lease budgets of one database, whose clock a test sets; they end,
are cut off, removed by others and registered again when the test says so."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any
from urllib.parse import urlsplit

import asyncpg

from gateway.core.limits import UNLIMITED, Cost, Limits
from gateway.errors import GatewayError, InsufficientQuota
from gateway.fleet.budget_leases import BudgetLeases
from gateway.quota.leased_budgets import LeasedTracker
from gateway.quota.limits import Holder, HolderKind, Lease, Quota, ResourceRequest
from gateway.store import tokens
from gateway.store.log.recorder import Recorder
from gateway.store.open import open_database
from gateway.store.postgresql.database import PostgresqlDatabase
from gateway.store.postgresql.replicas import (
    OwnReplica,
    Registration,
    expire,
    register,
    remove,
    steady_seconds,
)
from gateway.store.postgresql.writer import PostgresqlWriter
from gateway.store.records import ExchangeState, Group, RequestRow
from tests.fleet.broken_connections import BreakableServer, breakable
from tests.store.sample_rows import intent, request_id
from tests.store.server_ledger import server_ledger

KEYS, GROUPS = ("tok_0", "tok_1"), ("default", "other")
HOLDERS = (*(("key", id) for id in KEYS), *(("group", name) for name in GROUPS))
GRANT_TIMEOUT = 0.7
"""Seconds for which a transaction of leases may wait."""

_CLOCK = """
CREATE SCHEMA shifted;
CREATE TABLE shifted.clock AS SELECT 0::bigint AS shift;
CREATE FUNCTION shifted.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE AS
    'SELECT pg_catalog.clock_timestamp() + shift * interval ''1 microsecond'' FROM shifted.clock';
ALTER DATABASE {name} SET search_path = shifted, public, pg_catalog;
"""
"""Names are looked up in that schema first."""


@dataclass(slots=True, eq=False)
class Request:
    """One that was admitted. `cost` is what it cost in the end, None while it runs."""

    row: RequestRow
    replica: Replica
    epoch: int
    lease: Lease
    cost: Cost | None = None

    @property
    def holders(self) -> tuple[tuple[str, str], ...]:
        return ("key", self.row.token_id), ("group", self.row.group_name)

    @property
    def is_running(self) -> bool:
        return self.cost is None


@dataclass(slots=True, eq=False)
class Replica:
    """`limits` are those of all holders as it knows them. `is_lost`: its process is killed."""

    own: OwnReplica
    quota: Quota
    leases: BudgetLeases
    recorder: Recorder
    leasing: BreakableServer
    writing: BreakableServer
    stack: AsyncExitStack
    limits: dict[tuple[str, str], Limits]
    is_killed: bool = False
    is_reaped: bool = False
    _holders: dict[tuple[str, str], Holder] = field(default_factory=dict)

    def holder(self, kind: str, id: str) -> Holder:
        limits, holder = self.limits.get((kind, id), UNLIMITED), self._holders.get((kind, id))
        if holder is None or holder.limits is not limits:
            holder = self._holders[kind, id] = Holder(HolderKind(kind), id, id, limits)
        return holder

    @property
    def has_contact(self) -> bool:
        return self.own.lease_seconds > 0

    def mend(self) -> None:
        """Its network."""
        self.leasing.mend()
        self.writing.mend()

    def trackers(self) -> list[LeasedTracker]:
        usages = self.quota._usages.values()
        return [each for usage in usages for each in usage.budgets]  # type: ignore[misc]


class Fleet:
    """`replicas` are by name; a killed one stays until it is removed or started again."""

    def __init__(self, database: PostgresqlDatabase, connection: asyncpg.Connection) -> None:
        self.database, self.connection = database, connection
        self.replicas: dict[str, Replica] = {}
        self.requests: list[Request] = []
        self.group_of = dict.fromkeys(KEYS, GROUPS[0])
        self._shift = 0
        self._numbers, self._boots = count(1), count(1)

    def now(self) -> int:
        """By the server's clock, in Unix us."""
        return time.time_ns() // 1000 + self._shift

    async def set_clock(self, at: int) -> None:
        self._shift = at - time.time_ns() // 1000
        await self.connection.execute("UPDATE shifted.clock SET shift = $1", self._shift)

    def living(self) -> list[Replica]:
        return [each for each in self.replicas.values() if not each.is_killed]

    def running(self) -> list[Request]:
        return [each for each in self.requests if each.is_running and not each.replica.is_killed]

    async def start(self, name: str, limits: Mapping[tuple[str, str], Limits]) -> Replica:
        """A process with this name, also instead of one that was killed."""
        url, stack = self.database.server.url.get_secret_value(), AsyncExitStack()
        leasing = await stack.enter_async_context(breakable(url, GRANT_TIMEOUT))
        writing = await stack.enter_async_context(breakable(url, 3.0))
        database = await open_database(writing.address)
        stack.push_async_callback(database.close)
        own = OwnReplica(name, f"boot-{name}-{next(self._boots)}", f"state-{name}", 1000.0)
        await self._register(own)
        quota = Quota(LeasedTracker)
        recorder = Recorder(database, boot_id=own.boot_id)
        recorder.use_epoch(own.epoch)
        await recorder.start()
        leases = BudgetLeases(leasing.address, quota, own, self.now)
        recorder.on_commit.append(leases.committed)
        await stack.enter_async_context(leases.run())
        replica = Replica(own, quota, leases, recorder, leasing, writing, stack, dict(limits))
        self.replicas[name] = replica
        self._count_living()
        return replica

    async def _register(self, own: OwnReplica) -> None:
        new = Registration(
            own.name,
            own.boot_id,
            own.state_id,
            1000,
            1000,
            "",
            "",
            1,
            "",
            own.name,
            has_shared=True,
        )
        work = partial(register, new=new)
        own.epoch = (await self.database.write(work)).epoch
        own.contact_at = steady_seconds()

    def _count_living(self) -> None:
        for each in self.living():
            each.own.names = sorted(other.own.name for other in self.living())

    async def kill(self, replica: Replica) -> None:
        """Nothing of it runs any more, and nothing that it has not sent is written."""
        replica.is_killed = True
        recorder = replica.recorder
        recorder._closing = True
        if recorder._task is not None:
            recorder._task.cancel()
            await asyncio.wait({recorder._task})
        if recorder._flush_timer is not None:
            recorder._flush_timer.cancel()
        assert isinstance(recorder._writer, PostgresqlWriter)
        recorder._writer.disconnect()
        replica.leasing.reset()
        replica.writing.reset()
        await replica.stack.aclose()
        self._count_living()

    async def expire(self, replica: Replica) -> None:
        """Others have not heard of it for its expiry: its requests are settled, it keeps its
        leases, and goes on."""
        await self.database.write(partial(expire, epoch=replica.own.epoch))

    async def reap(self, replica: Replica) -> None:
        """Others have not heard of it for the expiry of its leases."""
        work = partial(remove, epoch=replica.own.epoch)
        await self.database.write(work)
        replica.is_reaped = True

    async def regain_contact(self, replica: Replica) -> None:
        """It is heard of again, under a new epoch if it was removed."""
        own = replica.own
        if replica.is_reaped:
            replica.is_reaped, own.epoch = False, 0
            await self._register(own)
            replica.recorder.use_epoch(own.epoch)
            replica.leases.reset(own.epoch)
        own.contact_at = steady_seconds()

    async def begin(
        self, replica: Replica, key: str, cost: Cost, longest: Cost, ago: int = 0
    ) -> Request | GatewayError:
        """A request that began so many microseconds ago; half of its cost is its prompt's."""
        group, at = self.group_of[key], self.now() - ago
        holders = replica.holder("key", key), replica.holder("group", group)
        wanted = ResourceRequest(holders, at, 0, cost, longest)
        try:
            await replica.leases.cover(wanted)
            lease = replica.quota.acquire(wanted, asyncio.get_running_loop().time())
        except GatewayError as error:
            return error
        row = intent(
            number := next(self._numbers),
            key,
            id=request_id(number),
            started_at=at,
            group_name=group,
            expected_input_tokens=1,
            expected_micro=cost.units // 2,
            expected_usd_micro=cost.usd // 2,
        )
        replica.recorder.record_intent(row)
        request = Request(row, replica, replica.own.epoch, lease)
        self.requests.append(request)
        return request

    async def extend(self, request: Request, cost: Cost) -> None:
        """Its reply outgrows what it has reserved: as the gateway does for a reply."""
        with suppress(GatewayError):
            try:
                request.lease.extend(0, cost)
            except InsufficientQuota:
                with suppress(TimeoutError):
                    async with asyncio.timeout(0.6):
                        await request.replica.leases.cover_more(request.lease, cost, cost)
                request.lease.extend(0, cost)

    def end(self, request: Request, cost: Cost) -> None:
        request.lease.settle(0, cost)
        request.cost = cost
        outcome: dict[str, Any] = {"state": ExchangeState.OK, "total_us": 1, "status": 200}
        request.replica.recorder.record_settlement(
            request.row._replace(**outcome, cost_micro=cost.units, usd_micro=cost.usd)
        )

    async def flush(self) -> None:
        """Every living replica writes what waits."""
        async with asyncio.timeout(20):
            while any(each.recorder.backlog for each in self.living()):
                await asyncio.sleep(0.01)


@asynccontextmanager
async def lease_fleet(at: int) -> AsyncIterator[Fleet]:
    """With an empty ledger, at this time."""
    async with server_ledger() as database:
        name = urlsplit(database.server.url.get_secret_value()).path[1:]
        connection = await database.connect(command_timeout=20)
        await connection.execute(_CLOCK.format(name=name))
        await connection.close()
        await tokens.put_group(database, Group(GROUPS[1], ("*",), 0))
        await database.close()
        async with server_ledger(database.server.url.get_secret_value()) as shifted:
            connection = await shifted.connect(command_timeout=20)
            fleet = Fleet(shifted, connection)
            await fleet.set_clock(at)
            try:
                yield fleet
            finally:
                for replica in fleet.living():
                    await fleet.kill(replica)
                await connection.close()
