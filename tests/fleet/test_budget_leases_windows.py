"""Every window and currency is exact across replicas, also with clocks that differ."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from gateway.core.limits import BUDGETS, Cost, Currency, Limits
from gateway.errors import GatewayError
from gateway.quota.limits import Holder, HolderKind
from gateway.store.postgresql.database import PostgresqlDatabase
from tests.fleet.lease_replicas import LeaseReplica, key_holder, lease_replica, totals, unix_us
from tests.store.server_ledger import server_ledger

pytestmark = [pytest.mark.timeout(90), pytest.mark.servers]


@pytest.fixture
async def server() -> AsyncIterator[PostgresqlDatabase]:
    async with server_ledger() as database:
        yield database


@pytest.fixture
async def four(server: PostgresqlDatabase) -> AsyncIterator[list[LeaseReplica]]:
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(lease_replica(server, each, 4)) for each in "abcd"]


async def admits(replica: LeaseReplica, holder: Holder, cost: Cost, at: int = 0) -> bool:
    try:
        reservation, _ = await replica.begin(holder, cost, at=at)
    except GatewayError:
        return False
    await asyncio.sleep(0.001)
    replica.end(reservation, cost)
    return True


@pytest.mark.parametrize("name", BUDGETS)
async def test_every_budget_is_exact(name: str, four: list[LeaseReplica]) -> None:
    holder = Holder(HolderKind.KEY, "tok_0", "tok_0", Limits(**{name: 100}))
    cost = Cost(0, 7) if BUDGETS[name].currency is Currency.USD else Cost(7, 0)
    admitted = await asyncio.gather(*(admits(each, holder, cost) for each in four * 20))
    admitted += [await admits(each, holder, cost) for each in four]
    assert sum(admitted) == 14


async def test_clocks_five_seconds_apart(four: list[LeaseReplica]) -> None:
    holder = key_holder(budget_day=60, budget_5h=60)
    skews = (-5_000_000, 0, 2_000_000, 5_000_000)
    work = (
        admits(each, holder, Cost(1, 0), unix_us() + skew)
        for each, skew in zip(four * 100, skews * 100, strict=True)
    )
    assert sum(await asyncio.gather(*work)) == 60


async def test_thousands_of_requests_at_a_small_budget(
    server: PostgresqlDatabase, four: list[LeaseReplica]
) -> None:
    holder, places = key_holder(budget=60), asyncio.Semaphore(100)

    async def send(number: int) -> bool:
        async with places:
            return await admits(four[number % 4], holder, Cost(1, 0))

    assert sum(await asyncio.gather(*map(send, range(4_000)))) == 60
    for each in four:
        await each.flushed()
    assert (await totals(server))[1] == 60


async def test_a_lowered_budget_is_followed_within_two_rounds(four: list[LeaseReplica]) -> None:
    before, after = key_holder(budget=100_000), key_holder(budget=5)
    for each in four:
        reservation, _ = await each.begin(before, Cost(10, 0), longest=Cost(1_000, 0))
        each.end(reservation, Cost(10, 0))
    for each in four:
        await admits(each, after, Cost(1, 0))
    await asyncio.sleep(1.2)
    async with asyncio.timeout(10):  # a machine may be late
        while any([await admits(each, after, Cost(1, 0)) for each in four]):
            await asyncio.sleep(0.1)
