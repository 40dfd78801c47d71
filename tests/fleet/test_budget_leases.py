"""Leases of budgets on a real database server: exact over several replicas."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, suppress

import pytest
from sqlalchemy import delete

from gateway.config.cluster import DatabaseServer
from gateway.core.limits import Cost
from gateway.errors import AccountingUnavailable, GatewayError, InsufficientQuota, TooManyRequests
from gateway.fleet.admission import SharedAdmission
from gateway.quota.leased_budgets import LeasedTracker
from gateway.quota.limits import BudgetStatus, Holder, HolderKind
from gateway.store.database import Database
from gateway.store.open import open_database
from gateway.store.postgresql.database import PostgresqlDatabase
from gateway.store.postgresql.schema import replicas
from gateway.store.tokens import add_token
from tests.fleet.lease_replicas import (
    GrantsOf,
    LeaseReplica,
    key_holder,
    lease_replica,
    totals,
    unix_us,
)
from tests.store.sample_rows import token
from tests.support.postgres import new_database_url

pytestmark = pytest.mark.servers

DAY_US = 86_400_000_000


@pytest.fixture
async def server() -> AsyncIterator[Database]:
    url = await new_database_url()
    database = await open_database(DatabaseServer.model_validate({"url": url}))
    await add_token(database, token(0))
    yield database
    await database.close()


@pytest.mark.parametrize("seconds", [0.0, 0.004])
async def test_replicas_together_admit_exactly_the_budget(server: Database, seconds: float) -> None:
    """A fixed cost divides the budget: all of it is used, and nothing more."""
    holder, cost = key_holder(budget=100_000), Cost(250, 0)
    admitted = 0

    async def load(replica: LeaseReplica) -> int:
        done = 0
        for _ in range(5):
            results = await asyncio.gather(
                *(replica.run(holder, cost, seconds) for _ in range(25)), return_exceptions=True
            )
            assert all(result is None or isinstance(result, GatewayError) for result in results)
            done += results.count(None)
        return done

    async with AsyncExitStack() as stack:
        fleet = [
            await stack.enter_async_context(lease_replica(server, f"r{number}", 4))
            for number in range(4)
        ]
        admitted = sum(await asyncio.gather(*map(load, fleet)))
        await asyncio.gather(*(each.flushed() for each in fleet))
        async with asyncio.timeout(5):
            while admitted * 250 < 100_000:  # what others gave back a moment ago
                for each in fleet:
                    try:
                        await each.run(holder, cost)
                        admitted += 1
                    except GatewayError:
                        await asyncio.sleep(0.05)
        for each in fleet:
            with pytest.raises(InsufficientQuota):
                await each.run(holder, cost)
    assert admitted == 400
    rows, spent, _ = await totals(server)
    assert rows == spent == 100_000


@pytest.mark.slow("tries many costs")
async def test_never_beyond_with_random_costs_and_two_currencies(server: Database) -> None:
    chance = random.Random(7)
    holder = key_holder(budget=60_000, budget_usd_day=45_000, budget_5h=50_000)

    async def load(replica: LeaseReplica) -> None:
        for _ in range(120):
            expected = Cost(chance.randint(1, 900), chance.randint(1, 900))
            try:
                reservation, _ = await replica.begin(
                    holder, expected, longest=Cost(*(3 * each for each in expected))
                )
            except (TooManyRequests, InsufficientQuota):
                continue
            await asyncio.sleep(chance.random() / 500)
            replica.end(reservation, Cost(*(chance.randint(0, each) for each in reservation.cost)))

    async with AsyncExitStack() as stack:
        fleet = [
            await stack.enter_async_context(lease_replica(server, f"r{number}", 4))
            for number in range(4)
        ]
        await asyncio.gather(*(load(each) for each in fleet for _ in range(5)))
        await asyncio.gather(*(each.flushed() for each in fleet))
        rows, spent, leased = await totals(server)
        assert rows == spent <= spent + leased <= 50_000
        assert spent > 40_000


async def test_a_reply_longer_than_reserved_waits_for_more(server: Database) -> None:
    async with lease_replica(server, "a") as replica:
        holder = key_holder(budget=10_000)
        reservation, _ = await replica.begin(holder, Cost(100, 0))
        with pytest.raises(InsufficientQuota) as short:
            reservation.extend(0, Cost(5_000, 0))
        assert short.value.is_leased
        admission = SharedAdmission(replica.quota, None, None, replica.leases)
        await admission.extend(reservation, 0, Cost(5_000, 0))
        assert reservation.cost == Cost(5_000, 0)
        with pytest.raises(InsufficientQuota):
            await admission.extend(reservation, 0, Cost(10_001, 0))
        replica.end(reservation, Cost(5_000, 0))


async def test_what_one_replica_does_not_use_is_there_for_another(server: Database) -> None:
    holder = key_holder(budget=1_000)
    async with lease_replica(server, "a", 2) as first, lease_replica(server, "b", 2) as second:
        reservation, _ = await first.begin(holder, Cost(100, 0), longest=Cost(1_000, 0))
        with pytest.raises(TooManyRequests):
            await second.begin(holder, Cost(100, 0))
        first.end(reservation, Cost(50, 0))
        begun = asyncio.get_running_loop().time()
        reservation, _ = await second.begin(holder, Cost(900, 0))
        assert asyncio.get_running_loop().time() - begun < 0.5
        second.end(reservation, Cost(900, 0))


async def test_a_spent_budget_is_final_for_a_replica_that_spent_nothing(server: Database) -> None:
    holder = key_holder(budget_month=1_000)
    async with lease_replica(server, "a", 2) as first, lease_replica(server, "b", 2) as second:
        await first.run(holder, Cost(1_000, 0))
        await first.flushed()
        with pytest.raises(InsufficientQuota, match="monthly budget"):
            await second.begin(holder, Cost(1, 0))


async def test_a_request_of_yesterday_is_charged_to_yesterday(server: Database) -> None:
    """Midnight was a moment ago: today's budget is unused, that of yesterday is spent."""
    holder = key_holder(budget_day=1_000)
    now = unix_us()
    yesterday = now - now % DAY_US - 1
    async with lease_replica(server, "a") as replica:
        reservation, _ = await replica.begin(holder, Cost(1_000, 0), at=yesterday)
        replica.end(reservation, Cost(1_000, 0))
        await replica.flushed()
        reservation, _ = await replica.begin(holder, Cost(400, 0), longest=Cost(600, 0))
        with pytest.raises(GatewayError):
            await replica.begin(holder, Cost(10, 0), at=yesterday)
        replica.end(reservation, Cost(400, 0))


async def test_leases_end_with_the_replica(server: Database) -> None:
    holder = key_holder(budget=1_000)
    async with lease_replica(server, "a", 2) as dead, lease_replica(server, "b", 2) as living:
        await dead.begin(holder, Cost(1_000, 0))
        with pytest.raises(TooManyRequests):
            await living.begin(holder, Cost(1, 0))
        of_dead = delete(replicas).where(replicas.c.epoch == dead.own.epoch)
        await server.write(lambda connection: connection.execute(of_dead))
        await living.run(holder, Cost(1_000, 0))
        with pytest.raises(GatewayError):  # its epoch has ended
            await dead.begin(holder, Cost(1, 0))


async def test_without_contact_nothing_is_admitted(server: Database) -> None:
    holder = key_holder(budget=1_000_000)
    async with lease_replica(server, "a") as replica:
        reservation, _ = await replica.begin(holder, Cost(10, 0), longest=Cost(10_000, 0))
        replica.end(reservation, Cost(10, 0))
        replica.own.contact_at -= 998
        await asyncio.sleep(1.2)
        with pytest.raises(AccountingUnavailable):
            await replica.begin(holder, Cost(10, 0))
        replica.own.contact_at += 998
        await replica.run(holder, Cost(10, 0))


async def test_a_cost_above_its_reservation_is_charged(server: Database) -> None:
    holder = key_holder(budget=1_000)
    async with lease_replica(server, "a") as replica:
        reservation, _ = await replica.begin(holder, Cost(100, 0))
        replica.end(reservation, Cost(700, 0))
        await replica.flushed()
        with pytest.raises(InsufficientQuota):
            await replica.begin(holder, Cost(301, 0))
        await replica.run(holder, Cost(300, 0))
        await replica.flushed()
    assert (await totals(server))[1] == 1_000


async def test_a_covered_request_asks_nobody(server: Database, grants_of: GrantsOf) -> None:
    assert isinstance(server, PostgresqlDatabase)
    holder = key_holder(budget=10**9)
    async with lease_replica(server, "a") as replica:
        for _ in range(30):
            await asyncio.gather(*(replica.run(holder, Cost(100, 0)) for _ in range(20)))
            await asyncio.sleep(0.05)
        before = grants_of(replica.leases)
        for _ in range(20):
            await replica.run(holder, Cost(100, 0))
        assert grants_of(replica.leases) <= before + 1


async def test_what_only_another_replica_uses_is_known_here(
    server: Database, grants_of: GrantsOf
) -> None:
    """For pages and alerts of this replica: what is spent, and what is leased. It leases as much,
    so that the key can come here when the server is away."""
    holder = key_holder(budget=100_000)
    async with (
        lease_replica(server, "r1") as one,
        lease_replica(server, "r2", holders=[holder]) as two,
    ):
        (status,) = two.quota.budget_statuses((holder,), unix_us())
        assert (status.spent, status.reserved) == (0, 0)
        reservation, _ = await one.begin(holder, Cost(300, 0))
        await _until(lambda: _status(two, holder).reserved >= 300)
        one.end(reservation, Cost(200, 0))
        await _until(lambda: _status(two, holder).spent == 200)
        tracker = _tracker(two)
        await _until(lambda: tracker.available >= 300)
        grants = grants_of(two.leases)
        await two.run(holder, Cost(200, 0))
        assert grants_of(two.leases) == grants


@pytest.mark.slow("waits for several rounds of leases")
async def test_a_lease_is_a_share_of_what_is_left_and_near_the_limit_none(
    server: Database, grants_of: GrantsOf
) -> None:
    """Of two replicas each leases four fifths of its half ahead, until a twentieth is left."""
    holder = key_holder(budget=100_000)
    async with lease_replica(server, "a", 2) as replica:
        tracker = _tracker(replica)
        for _ in range(5):
            await replica.run(holder, Cost(100, 0))
        await _until(lambda: tracker.available > 39_000)
        assert tracker.available < 40_000
        grants = grants_of(replica.leases)
        await replica.run(holder, Cost(38_000, 0))
        assert grants_of(replica.leases) == grants
        await replica.run(holder, Cost(57_000, 0))
        await replica.flushed()
        await _until(lambda: tracker.available == 0)


async def test_a_reply_that_competes_gets_what_is_leased_ahead_elsewhere(server: Database) -> None:
    """Beside a running request its longest reply is reserved; another replica uses nothing."""
    holder = key_holder(budget=10_000)
    async with lease_replica(server, "a", 2) as idle, lease_replica(server, "b", 2) as busy:
        reservation, _ = await idle.begin(holder, Cost(100, 0), longest=Cost(3_000, 0))
        idle.end(reservation, Cost(100, 0))
        await idle.flushed()
        await busy.begin(holder, Cost(100, 0), longest=Cost(1_000, 0))
        assert _tracker(idle).available > 3_000
        reservation, _ = await busy.begin(holder, Cost(100, 0), longest=Cost(8_000, 0))
        assert reservation.cost == Cost(8_000, 0)


async def test_what_a_long_reply_had_reserved_is_not_kept_beyond_the_share(
    server: Database,
) -> None:
    holder = key_holder(budget=10_000)
    async with lease_replica(server, "a", 2) as replica:
        reservation, _ = await replica.begin(holder, Cost(100, 0), longest=Cost(4_000, 0))
        replica.end(reservation, Cost(100, 0))
        await replica.flushed()
        await _until(lambda: 3_900 < _tracker(replica).available <= 4_000)


async def test_a_request_gets_what_is_leased_ahead_elsewhere(server: Database) -> None:
    """All that is left, from three others at once, each after minutes of use."""
    holder = key_holder(budget=100_000)
    async with AsyncExitStack() as stack:
        first, *others = [
            await stack.enter_async_context(lease_replica(server, f"r{number}", 4))
            for number in range(4)
        ]
        for each in others:
            for _ in range(5):
                await each.run(holder, Cost(100, 0))
        await _until(lambda: sum(_tracker(each).available for each in others) > 40_000)
        await asyncio.gather(*(each.flushed() for each in others))
        reservation, _ = await first.begin(holder, Cost(98_500, 0))
        first.end(reservation, Cost(98_500, 0))
        await first.flushed()
        for each in (first, *others):
            with pytest.raises(InsufficientQuota):
                await each.begin(holder, Cost(1, 0))
    assert (await totals(server))[1] == 100_000


async def test_requests_beyond_the_budget_hold_nothing_that_another_replica_needs(
    server: Database,
) -> None:
    """They are refused, again and again."""
    holder = key_holder(budget=100_000)
    async with lease_replica(server, "a", 2) as full, lease_replica(server, "b", 2) as other:

        async def ask_in_vain() -> None:
            while True:
                with pytest.raises(InsufficientQuota):
                    await full.begin(holder, Cost(99_800, 0))
                await asyncio.sleep(0.003)

        for _ in range(5):
            await full.run(holder, Cost(100, 0))
        await _until(lambda: _tracker(full).available > 39_000)
        await full.flushed()
        tasks = [asyncio.create_task(ask_in_vain()) for _ in range(30)]
        async with asyncio.timeout(3):
            while _tracker(other).reserved == 0:
                with suppress(TooManyRequests):
                    await other.begin(holder, Cost(65_000, 0))
        assert not any(task.done() for task in tasks)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def test_what_is_leased_ahead_of_a_lowered_budget_admits_nothing(server: Database) -> None:
    before, after = key_holder(budget=100_000), key_holder(budget=500)
    async with lease_replica(server, "a", 2) as replica:
        for _ in range(3):
            await replica.run(before, Cost(100, 0))
        await _until(lambda: _tracker(replica).available > 30_000)
        work = (replica.run(after, Cost(100, 0)) for _ in range(20))
        results = await asyncio.gather(*work, return_exceptions=True)
        assert all(result is None or isinstance(result, GatewayError) for result in results)
        assert results.count(None) == 2
        await replica.flushed()
    assert (await totals(server))[1] == 500


async def test_many_holders_are_given_back_at_once(server: Database) -> None:
    """However many have become unused before the one that another replica needs."""
    holders = [key_holder(f"tok_{number}", budget=1_000) for number in range(700)]
    async with lease_replica(server, "a", 2) as idle, lease_replica(server, "b", 2) as busy:
        for holder in holders:
            reservation, _ = await idle.begin(holder, Cost(10, 0), longest=Cost(400, 0))
            reservation.settle(0, Cost(0, 0))
        for lease in idle.leases._leases.values():
            lease.used_at -= 1_000
        begun = asyncio.get_running_loop().time()
        await busy.begin(holders[-1], Cost(900, 0))
        assert asyncio.get_running_loop().time() - begun < 0.5


def _tracker(replica: LeaseReplica) -> LeasedTracker:
    tracker = replica.quota.budget(HolderKind.KEY, "tok_0")
    assert isinstance(tracker, LeasedTracker)
    return tracker


def _status(replica: LeaseReplica, holder: Holder) -> BudgetStatus:
    (status,) = replica.quota.budget_statuses((holder,), unix_us())
    return status


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(15):
        while not condition():
            await asyncio.sleep(0.05)
