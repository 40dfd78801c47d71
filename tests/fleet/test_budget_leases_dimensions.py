"""Leases of the daily budgets of end users on a real database server."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator

import pytest
from sqlalchemy import func, select

from gateway.config.cluster import DatabaseServer
from gateway.core.limits import Cost
from gateway.errors import GatewayError, InsufficientQuota
from gateway.fleet import budget_leases
from gateway.quota.leased_budgets import LeasedTracker
from gateway.quota.limits import HolderKind
from gateway.store.database import Database, fetch
from gateway.store.open import open_database
from gateway.store.postgresql.schema import budget_leases as lease_table
from gateway.store.postgresql.schema import spending
from gateway.store.records import DAY_US
from gateway.store.schema import requests
from gateway.store.tokens import add_token
from tests.fleet.lease_replicas import LeaseReplica, lease_replica, unix_us, user_holder
from tests.store.sample_rows import token
from tests.support.postgres import new_database_url

pytestmark = pytest.mark.servers

USERS = [f"user {number}" for number in range(5)]


@pytest.fixture
async def server() -> AsyncIterator[Database]:
    url = await new_database_url()
    database = await open_database(DatabaseServer.model_validate({"url": url}))
    await add_token(database, token(0))
    yield database
    await database.close()


async def spent_by_user(server: Database) -> dict[str, int]:
    rows = await fetch(server, select(spending).where(spending.c.holder_kind == "end_user"))
    assert {(row.period, row.start % DAY_US) for row in rows} <= {("day", 0)}
    return {row.holder_id.removeprefix("tok_0 "): row.units for row in rows}


async def test_replicas_together_spend_at_most_the_budget_of_each(server: Database) -> None:
    admitted = Counter[str]()

    async def load(replica: LeaseReplica) -> None:
        async def run(user: str) -> None:
            try:
                await replica.run(user_holder(user, budget_day=5_000), Cost(250, 0), 0.002)
                admitted[user] += 1
            except GatewayError:
                await asyncio.sleep(0.02)

        for _ in range(8):
            await asyncio.gather(*(run(user) for user in USERS * 4))

    async with lease_replica(server, "a", 2) as one, lease_replica(server, "b", 2) as other:
        await asyncio.gather(load(one), load(other))
        await asyncio.gather(one.flushed(), other.flushed())
    assert admitted.keys() == set(USERS)
    assert all(15 <= count <= 20 for count in admitted.values()), admitted
    assert await spent_by_user(server) == {user: 250 * admitted[user] for user in USERS}
    query = select(requests.c.end_user, func.sum(requests.c.cost_micro)).group_by("end_user")
    assert {user: int(units) for user, units in await fetch(server, query)} == await spent_by_user(
        server
    )


async def test_a_later_replica_knows_what_is_spent(server: Database) -> None:
    holder = user_holder("alice", budget_usd_day=1_000)
    async with lease_replica(server, "a") as first:
        for _ in range(4):
            await first.run(holder, Cost(0, 250))
        await first.flushed()
    async with lease_replica(server, "b") as second:
        with pytest.raises(InsufficientQuota) as refused:
            await second.run(holder, Cost(0, 250))
        assert "this end user: daily budget of $0.001" in refused.value.message
        await second.run(user_holder("bob", budget_usd_day=1_000), Cost(0, 250))


async def test_a_request_from_before_the_budget_spoils_no_lease(server: Database) -> None:
    holder = user_holder("alice", budget_day=1_000)
    async with lease_replica(server, "a") as replica:
        await replica.run(holder, Cost(400, 0))
        await replica.flushed()
        replica.record(holder.id, Cost(300, 0), unix_us())
        await replica.flushed()
        tracker = replica.quota.budget(HolderKind.END_USER, holder.id)
        assert isinstance(tracker, LeasedTracker)
        assert tracker.unsettled == 0
        with pytest.raises(InsufficientQuota):
            await replica.run(holder, Cost(301, 0))
        await replica.run(holder, Cost(300, 0))


async def test_unused_trackers_are_forgotten(
    server: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("_FORGET", "_HOLD", "_REFRESH", "_IN_USE"):
        monkeypatch.setattr(budget_leases, name, 0.5)
    holder = user_holder("alice", budget_day=1_000)
    async with lease_replica(server, "a") as replica:
        await replica.run(holder, Cost(400, 0))
        async with asyncio.timeout(15):
            while (HolderKind.END_USER, holder.id) in replica.quota._usages:
                await asyncio.sleep(0.05)
        with pytest.raises(InsufficientQuota):
            await replica.run(holder, Cost(700, 0))


async def test_past_days_are_deleted(server: Database) -> None:
    holder = user_holder("alice", budget_day=1_000)
    async with lease_replica(server, "a") as replica:
        await replica.run(holder, Cost(400, 0))
        await replica.flushed()
        await server.delete_past_spending(unix_us())
        assert await spent_by_user(server) == {"alice": 400}
        await server.delete_past_spending(unix_us() + 3 * DAY_US)
        assert await spent_by_user(server) == {}
        with pytest.raises(InsufficientQuota):
            await replica.run(holder, Cost(1_001, 0))
    query = select(spending.c.holder_kind).distinct().order_by(spending.c.holder_kind)
    assert [kind for (kind,) in await fetch(server, query)] == ["group", "key"]
    assert not await fetch(server, select(lease_table).where(lease_table.c.units < 0))
