"""One grant of the table of leases: what it says, whatever names are, and its round trips."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from gateway.core.limits import FREE, Cost
from gateway.store.errors import ReplicaRemoved
from gateway.store.postgresql.budget_leases import Figures, HolderKey, LeaseTable
from gateway.store.postgresql.database import PostgresqlDatabase
from tests.store.sample_rows import START
from tests.store.server_ledger import behind_proxy, connect, lease, leases, server_ledger
from tests.support.proxy import Direction, FaultProxy
from tests.support.toxics import Onward, Toxic, Traffic

pytestmark = [pytest.mark.timeout(60), pytest.mark.servers]

EPOCH = 7
ODD: HolderKey = ("group", 'it\'s \\ "$1"; -- ü')
PLAIN: HolderKey = ("key", "tok_0")


class Written(Toxic):
    def __init__(self) -> None:
        self.chunks: list[bytes] = []

    async def pass_on(self, data: bytes, traffic: Traffic, onward: Onward) -> None:
        self.chunks.append(data)
        await onward(data)


@pytest.fixture
async def database() -> AsyncIterator[PostgresqlDatabase]:
    async with server_ledger() as database:
        await lease(database, EPOCH, PLAIN, 5, 6)
        await lease(database, EPOCH + 1, PLAIN, 70, -80)
        yield database


@asynccontextmanager
async def opened(database: PostgresqlDatabase) -> AsyncIterator[tuple[LeaseTable, FaultProxy]]:
    async with behind_proxy(database) as (proxy, server):
        table = LeaseTable(server)
        yield table, proxy
        table.disconnect()


async def test_a_grant_says_what_there_is_and_adds_to_it(database: PostgresqlDatabase) -> None:
    seen: dict[HolderKey, Figures] = {}

    def decide(key: HolderKey, figures: Figures, now: int) -> Cost:
        seen[key] = figures
        assert now > START
        return FREE if key == ("key", "tok_1") else Cost(100, 0)

    async with opened(database) as (table, _):
        holders = [PLAIN, ODD, ("key", "tok_1")]
        amounts = await table.grant(EPOCH, holders, START, decide)
        assert amounts == {PLAIN: Cost(100, 0), ODD: Cost(100, 0), ("key", "tok_1"): FREE}
        assert (seen[PLAIN].own, seen[PLAIN].elsewhere) == (Cost(5, 6), Cost(70, 0))
        assert (seen[ODD].own, seen[ODD].elsewhere) == (None, FREE)
        read = await table.figures(EPOCH, [PLAIN, ODD], START)
        assert (read[PLAIN].own, read[ODD].own) == (Cost(105, 6), Cost(100, 0))
    assert ("key", "tok_1") not in await leases(database)


async def test_figures_are_those_of_the_windows(database: PostgresqlDatabase) -> None:
    """Of the month, a week and five hours before the earliest request that asks."""
    day, hour, step = 86_400_000_000, 3_600_000_000, 300_000_000
    month = 1_788_220_800_000_000  # 2026-09-01T00:00:00Z; START is the 21st
    starts = {
        "day": [month - day, month],
        "hour": [START - 7 * day - 2 * hour, START - 7 * day],
        "step": [START - 5 * hour - 2 * step, START - 5 * hour],
    }
    connection = await connect(database)
    for period, moments in starts.items():
        for at in moments:
            insert = "INSERT INTO spending VALUES ('key', 'tok_0', $1, $2, 1, 2)"
            await connection.execute(insert, period, at)
    await connection.close()
    async with opened(database) as (table, _):
        spend = (await table.figures(EPOCH, [PLAIN], START))[PLAIN].spend
    assert list(spend.by_day) == starts["day"][1:]
    assert list(spend.by_hour) == starts["hour"][1:]
    assert list(spend.by_step) == starts["step"][1:]


async def test_a_replica_that_was_removed_gets_nothing(database: PostgresqlDatabase) -> None:
    async with opened(database) as (table, _):
        with pytest.raises(ReplicaRemoved):
            await table.grant(99, [ODD], START, lambda *_: Cost(1, 1))
        assert await table.settle_unclear() == {}
    assert ODD not in await leases(database)


async def test_a_grant_takes_three_round_trips(database: PostgresqlDatabase) -> None:
    """Each is one write: the client sends nothing before the answer."""
    async with opened(database) as (table, proxy):
        await table.grant(EPOCH, [ODD], START, lambda *_: Cost(1, 1))
        sent = Written()
        proxy.add(sent, Direction.UP)
        await table.grant(EPOCH, [ODD], START, lambda *_: Cost(1, 1))
        assert len(sent.chunks) == 3
    assert (await leases(database))[ODD] == (2, 2)
