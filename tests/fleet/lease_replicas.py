"""Replicas with nothing but budgets: leases, a quota, and a recorder, on one database server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count

from sqlalchemy import func, insert, select

from gateway.config.cluster import DatabaseServer
from gateway.core.limits import FREE, Cost, Limits
from gateway.fleet.budget_leases import BudgetLeases
from gateway.quota.leased_budgets import LeasedTracker
from gateway.quota.limits import Holder, HolderKind, Quota, Reservation, ResourceRequest
from gateway.store.database import Database
from gateway.store.log.recorder import Recorder
from gateway.store.postgresql.database import PostgresqlDatabase
from gateway.store.postgresql.replicas import OwnReplica, steady_seconds
from gateway.store.postgresql.schema import budget_leases, replicas, spending
from gateway.store.records import ExchangeState, dimension_holder_id
from gateway.store.schema import requests
from tests.store.sample_rows import intent

_numbers = count(1)

GrantsOf = Callable[[BudgetLeases], int]
"""In how many transactions a replica has asked for leases."""


def unix_us() -> int:
    return time.time_ns() // 1000


def key_holder(token_id: str = "tok_0", **limits: int) -> Holder:
    return Holder(HolderKind.KEY, token_id, token_id, Limits(**limits))


def user_holder(name: str, **limits: int) -> Holder:
    """An end user of the key `tok_0`."""
    id = dimension_holder_id("tok_0", name)
    return Holder(HolderKind.END_USER, id, name, Limits(**limits))


@dataclass(slots=True)
class LeaseReplica:
    quota: Quota
    leases: BudgetLeases
    recorder: Recorder
    own: OwnReplica
    spent: list[int] = field(default_factory=list)

    async def begin(
        self, holder: Holder, cost: Cost, *, longest: Cost = FREE, at: int = 0
    ) -> tuple[Reservation, int]:
        """Admits a request; returns its reservation and its start."""
        group = Holder(HolderKind.GROUP, "default", "default", Limits())
        at = at or unix_us()
        request = ResourceRequest((holder, group), at, 0, cost, longest)
        await self.leases.cover(request)
        return self.quota.acquire(request, asyncio.get_running_loop().time()), at

    def end(self, reservation: Reservation, cost: Cost) -> None:
        """The request has ended, and its row is recorded."""
        reservation.settle(0, cost)
        self.spent.append(cost.units)
        request = reservation.request
        self.record(request.holders[0].id, cost, request.started_at)

    def record(self, holder_id: str, cost: Cost, started_at: int) -> None:
        token_id, _, end_user = holder_id.partition(" ")
        row = intent(next(_numbers), token_id=token_id, end_user=end_user or None)
        self.recorder.record_settlement(
            row._replace(
                started_at=started_at,
                state=ExchangeState.OK,
                total_us=1,
                cost_micro=cost.units,
                usd_micro=cost.usd,
            )
        )

    async def run(self, holder: Holder, cost: Cost, seconds: float = 0.0) -> None:
        reservation, _ = await self.begin(holder, cost)
        if seconds:
            await asyncio.sleep(seconds)
        self.end(reservation, cost)

    async def flushed(self) -> None:
        async with asyncio.timeout(10):
            while self.recorder.backlog:
                await asyncio.sleep(0.01)


@asynccontextmanager
async def lease_replica(
    database: Database,
    name: str,
    living: int = 1,
    holders: Sequence[Holder] = (),
    share: float = 0.8,
) -> AsyncIterator[LeaseReplica]:
    """Registered without a heartbeat: it has contact for as long as the test lasts. With a `share`
    of 0 it leases nothing ahead."""
    assert isinstance(database, PostgresqlDatabase)
    server: DatabaseServer = database.server
    epoch = next(_numbers)
    row = {
        **dict.fromkeys(("state_id", "address", "version", "config_hash"), ""),
        **dict.fromkeys(("schema", "started_at", "heartbeat_at", "expiry_us"), 1),
        **{"name": name, "epoch": epoch, "boot_id": f"boot-{name}-{epoch}", "state": "serving"},
    }
    await database.write(lambda connection: connection.execute(insert(replicas).values(row)))
    names = sorted([name, *(f"other {number}" for number in range(1, living))])
    own = OwnReplica(name, str(row["boot_id"]), "", 1000.0, epoch, steady_seconds(), names)
    quota = Quota(LeasedTracker)
    recorder = Recorder(database, boot_id=own.boot_id)
    recorder.use_epoch(epoch)
    leases = BudgetLeases(server, quota, own, unix_us, lambda: holders, share)
    recorder.on_commit.append(leases.committed)
    await recorder.start()
    async with leases.run():
        yield LeaseReplica(quota, leases, recorder, own)
        await recorder.close()


async def totals(database: Database) -> tuple[int, int, int]:
    """Units of `tok_0` in the rows, in its spending, and in leases of all replicas."""
    queries = (
        select(func.sum(requests.c.cost_micro)),
        select(func.sum(spending.c.units)).where(
            spending.c.period == "total", spending.c.holder_kind == "key"
        ),
        select(func.sum(budget_leases.c.units)).where(budget_leases.c.holder_kind == "key"),
    )
    async with database.reader.connect() as connection:
        rows, spent, leased = [int(await connection.scalar(query) or 0) for query in queries]
    return rows, spent, leased
