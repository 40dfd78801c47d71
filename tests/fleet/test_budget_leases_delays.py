"""Answers of the database that come late: what was committed meanwhile is not leased again, and
nothing is admitted once others may have taken this replica for gone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import pytest

from gateway.config.cluster import DatabaseServer
from gateway.core.limits import Cost, Currency
from gateway.errors import AccountingUnavailable, GatewayError
from gateway.fleet.budget_leases import BudgetLeases
from gateway.quota.leased_budgets import LeasedTracker
from gateway.quota.limits import HolderKind
from gateway.store.postgresql.budget_leases import Figures, HolderKey, LeaseTable
from gateway.store.postgresql.database import PostgresqlDatabase
from tests.fleet.broken_connections import Fault, breakable
from tests.fleet.lease_replicas import (
    GrantsOf,
    LeaseReplica,
    key_holder,
    lease_replica,
    totals,
    unix_us,
)
from tests.store.server_ledger import server_ledger
from tests.support.proxy import FaultProxy, fault_proxy
from tests.support.toxics import Latency, Timeout

pytestmark = [pytest.mark.timeout(60), pytest.mark.servers]

DELAY = 0.4


@pytest.fixture
async def server() -> AsyncIterator[PostgresqlDatabase]:
    async with server_ledger() as database:
        yield database


class ObservedTable(LeaseTable):
    """`reading` is set as figures are asked for."""

    reading: asyncio.Event

    async def figures(
        self, epoch: int, holders: Sequence[HolderKey], now: int
    ) -> dict[HolderKey, Figures]:
        self.reading.set()
        return await super().figures(epoch, holders, now)


@asynccontextmanager
async def slow_replica(
    server: PostgresqlDatabase,
) -> AsyncIterator[tuple[LeaseReplica, FaultProxy, ObservedTable]]:
    """Its leases reach the database through a proxy, its log does not. It leases nothing ahead."""
    url = server.server.url.get_secret_value()
    async with fault_proxy(url) as proxy, lease_replica(server, "a", 2) as replica:
        there = url.replace(f":{urlsplit(url).port}/", f":{urlsplit(proxy.address).port}/")
        slow = DatabaseServer.model_validate({"url": there, "timeout": 5})
        replica.leases = BudgetLeases(slow, replica.quota, replica.own, unix_us, share=0)
        table = replica.leases._table = ObservedTable(slow, None)
        table.reading = asyncio.Event()
        replica.recorder.on_commit[:] = [replica.leases.committed]
        async with replica.leases.run():
            yield replica, proxy, table


def tracker_of(replica: LeaseReplica) -> LeasedTracker:
    tracker = replica.quota.budget(HolderKind.KEY, "tok_0", Currency.UNITS)
    assert isinstance(tracker, LeasedTracker)
    return tracker


async def test_a_commit_while_figures_are_read_is_not_leased_again(
    server: PostgresqlDatabase,
) -> None:
    """The figures are those from before the commit, and arrive after it."""
    holder = key_holder(budget=1_000)
    async with slow_replica(server) as (replica, proxy, table):
        reservation, _ = await replica.begin(holder, Cost(400, 0))
        proxy.add(Latency(DELAY))
        table.reading.clear()
        await table.reading.wait()
        await asyncio.sleep(DELAY / 4)
        replica.end(reservation, Cost(400, 0))
        await asyncio.sleep(DELAY)
        await replica.flushed()
        assert (await totals(server))[1:] == (400, 0)
        assert tracker_of(replica).leased <= 0


async def test_late_figures_admit_nothing_beyond_the_budget(server: PostgresqlDatabase) -> None:
    holder = key_holder(budget=1_000)
    async with slow_replica(server) as (replica, proxy, table), lease_replica(server, "b", 2) as b:
        reservation, _ = await replica.begin(holder, Cost(400, 0))
        proxy.add(Latency(DELAY))
        table.reading.clear()
        await table.reading.wait()
        await asyncio.sleep(DELAY / 4)
        replica.end(reservation, Cost(400, 0))
        await b.run(holder, Cost(600, 0))
        await asyncio.sleep(DELAY)
        with pytest.raises(GatewayError):
            await replica.run(holder, Cost(300, 0))
        await b.flushed()
        await replica.flushed()
        assert (await totals(server))[1] <= 1_000


async def test_a_covered_request_is_refused_after_the_deadline(server: PostgresqlDatabase) -> None:
    """The process was stopped for a minute, say: nothing of it has run since."""
    holder = key_holder(budget=1_000_000)
    async with lease_replica(server, "a") as replica:
        await replica.begin(holder, Cost(10, 0))
        reservation, _ = await replica.begin(holder, Cost(10, 0), longest=Cost(10_000, 0))
        replica.end(reservation, Cost(10, 0))
        assert tracker_of(replica).available > 10
        replica.own.contact_at -= 998
        with pytest.raises(GatewayError):
            await replica.begin(holder, Cost(10, 0))


async def test_the_deadline_holds_while_the_server_does_not_answer(
    server: PostgresqlDatabase,
) -> None:
    """Its own round waits for an answer, for longer than the margin of the deadline."""
    holder, other = key_holder(budget=1_000_000), key_holder("tok_1", budget=1_000_000)
    async with slow_replica(server) as (replica, proxy, _):
        reservation, _ = await replica.begin(holder, Cost(10, 0), longest=Cost(10_000, 0))
        replica.end(reservation, Cost(10, 0))
        proxy.add(Timeout())
        waiting = asyncio.ensure_future(replica.begin(other, Cost(10, 0)))
        await asyncio.sleep(0.1)
        replica.own.contact_at -= 998
        await asyncio.sleep(2)
        with pytest.raises(GatewayError):
            await replica.begin(holder, Cost(10, 0))
        proxy.clear()
        waiting.cancel()
        await asyncio.wait({waiting})


async def test_what_nobody_waits_for_any_more_is_not_leased_later(
    server: PostgresqlDatabase, grants_of: GrantsOf
) -> None:
    """Requests failed in an outage; the budget may have been lowered meanwhile. Nothing is leased
    ahead."""
    holder, url = key_holder(budget=1_000), server.server.url.get_secret_value()
    async with breakable(url, 0.3) as network, lease_replica(server, "a") as replica:
        replica.leases = leases = BudgetLeases(
            network.address, replica.quota, replica.own, unix_us, share=0
        )
        async with leases.run():
            network.plan(b"COMMIT", Fault.UNSENT)
            with pytest.raises(AccountingUnavailable):
                await replica.begin(holder, Cost(100, 0))
            network.hang()
            for _ in range(3):
                with pytest.raises(AccountingUnavailable):
                    await replica.begin(holder, Cost(300, 0))
            network.mend()
            grants = grants_of(leases)
            await asyncio.sleep(1.2)
            assert grants_of(leases) == grants
            await replica.run(holder, Cost(1_000, 0))
