"""Replicas that are gone are removed once, by who has watched them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from sqlalchemy import insert, select

from gateway.store import tokens
from gateway.store.database import Database
from gateway.store.log import pages
from gateway.store.log.integrity import check
from gateway.store.log.recorder import Recorder
from gateway.store.postgresql.schema import budget_leases
from gateway.store.records import ExchangeState
from tests.fleet.replicas import die, listed, replica
from tests.store.sample_rows import intent, token

EXPIRY = 1.5


async def until(condition: Callable[[], bool], seconds: float = 10) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.05)


async def add_default_group(database: Database) -> None:
    await tokens.add_token(database, token(0))


async def leave_running(database: Database, boot_id: str, count: int = 3) -> None:
    """Requests that the replica with this boot has begun."""
    recorder = Recorder(database, boot_id=boot_id)
    recorder._launch()
    for number in range(count):
        row = intent(number, catalog_model="m", expected_input_tokens=7, expected_micro=1000)
        await recorder.record_intent(row)
    await recorder.close()


async def leases(database: Database) -> list[int]:
    async with database.reader.connect() as connection:
        return list(await connection.scalars(select(budget_leases.c.epoch)))


async def add_lease(database: Database, epoch: int, units: int = 5) -> None:
    row = {"holder_kind": "key", "holder_id": "tok_0", "epoch": epoch, "units": units, "usd": 0}
    await database.write(lambda connection: connection.execute(insert(budget_leases).values(row)))


async def test_of_a_dead_replica_leases_end_and_requests_are_settled_once(
    database: Database, tmp_path: Path
) -> None:
    await add_default_group(database)
    async with AsyncExitStack() as stack:
        dead, *living = [
            await stack.enter_async_context(replica(database, tmp_path, name, expiry=EXPIRY))
            for name in "abcd"
        ]
        await leave_running(database, dead.own.boot_id)
        await add_lease(database, dead.own.epoch)
        await add_lease(database, living[0].own.epoch)
        await die(dead)
        async with asyncio.timeout(10):
            while "a" in await listed(database):
                await asyncio.sleep(0.05)
        assert await leases(database) == [living[0].own.epoch]
        rows = await pages.page(database)
        assert [row.state for row in rows] == [ExchangeState.INTERRUPTED] * 3
        await asyncio.sleep(1)  # the others see nothing to do
        (key,) = await tokens.all_tokens(database)
        assert (key.requests, key.input_tokens, key.cost_micro) == (3, 21, 3000)
        assert (await check(database)).ok
        assert set(await listed(database)) == {"b", "c", "d"}


@pytest.mark.slow("waits for expiries of replicas")
async def test_who_had_no_contact_itself_removes_nobody(database: Database, tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        dead, other = [
            await stack.enter_async_context(replica(database, tmp_path, name, expiry=4))
            for name in "ab"
        ]
        await die(dead)
        await asyncio.sleep(2.5)
        other._reaper._looked_at -= 6  # as after an outage
        await asyncio.sleep(2.5)  # now it has been silent for longer than its expiry
        assert "a" in await listed(database)
        async with asyncio.timeout(6):
            while "a" in await listed(database):
                await asyncio.sleep(0.05)


async def test_a_paused_replica_comes_back_with_another_epoch(
    database: Database, tmp_path: Path
) -> None:
    async with AsyncExitStack() as stack:
        paused, _ = [
            await stack.enter_async_context(replica(database, tmp_path, name, expiry=EXPIRY))
            for name in "ab"
        ]
        epoch = paused.own.epoch
        epochs: list[int] = []
        paused.on_epoch.append(epochs.append)
        await die(paused)
        async with asyncio.timeout(10):
            while "a" in await listed(database):
                await asyncio.sleep(0.05)
        paused.own.epoch = epoch
        paused._task = asyncio.ensure_future(paused._run())
        await until(lambda: bool(epochs))
        assert paused.own.epoch == epochs[0] > epoch
        assert "a" in await listed(database)


async def test_leaving_settles_what_still_runs(database: Database, tmp_path: Path) -> None:
    await add_default_group(database)
    async with replica(database, tmp_path, "a") as one:
        await leave_running(database, one.own.boot_id)
        await add_lease(database, one.own.epoch)
    assert await listed(database) == {}
    assert await leases(database) == []
    assert {row.state for row in await pages.page(database)} == {ExchangeState.INTERRUPTED}


async def test_a_start_settles_only_what_no_living_replica_runs(
    database: Database, tmp_path: Path
) -> None:
    await add_default_group(database)
    async with replica(database, tmp_path, "a") as one:
        await leave_running(database, one.own.boot_id, 1)
        starting = Recorder(database, boot_id="starting")
        await starting.start()
        await starting.close()
        assert [row.state for row in await pages.page(database)] == [ExchangeState.RUNNING]


@pytest.mark.slow("waits for expiries of replicas")
async def test_leases_of_a_dead_replica_outlive_its_requests(
    database: Database, tmp_path: Path
) -> None:
    """It may only be cut off. What its requests are charged is taken from its leases."""
    await add_default_group(database)
    async with AsyncExitStack() as stack:
        dead, _ = [
            await stack.enter_async_context(
                replica(database, tmp_path, name, expiry=EXPIRY, lease_expiry=EXPIRY + 2.5)
            )
            for name in "ab"
        ]
        await leave_running(database, dead.own.boot_id)
        await add_lease(database, dead.own.epoch, 5_000)
        await die(dead)
        died_at = time.monotonic()
        async with asyncio.timeout(10):
            while (await listed(database))["a"].row.state != "expired":
                await asyncio.sleep(0.05)
        rows = await pages.page(database)
        assert [row.state for row in rows] == [ExchangeState.INTERRUPTED] * 3
        known = (await listed(database))["a"]
        assert (known.leases, known.leased_units) == (1, 2_000)
        async with asyncio.timeout(10):
            while "a" in await listed(database):
                await asyncio.sleep(0.05)
        assert time.monotonic() - died_at > EXPIRY + 2
        assert await leases(database) == []
        (key,) = await tokens.all_tokens(database)
        assert (key.requests, key.cost_micro) == (3, 3_000)


async def test_an_expired_replica_that_comes_back_has_its_leases(
    database: Database, tmp_path: Path
) -> None:
    async with AsyncExitStack() as stack:
        paused, _ = [
            await stack.enter_async_context(
                replica(database, tmp_path, name, expiry=EXPIRY, lease_expiry=60)
            )
            for name in "ab"
        ]
        epoch = paused.own.epoch
        await add_lease(database, epoch, 5_000)
        await die(paused)
        async with asyncio.timeout(10):
            while (await listed(database))["a"].row.state != "expired":
                await asyncio.sleep(0.05)
        paused.own.epoch = epoch
        paused._task = asyncio.ensure_future(paused._run())
        async with asyncio.timeout(10):
            while (known := (await listed(database))["a"]).row.state == "expired":
                await asyncio.sleep(0.05)
        assert (known.row.epoch, known.leased_units) == (epoch, 5_000)


async def test_an_expired_replica_loses_its_name_and_not_its_leases(
    database: Database, tmp_path: Path
) -> None:
    """A new machine of the same name: the earlier one may still spend what it has leased."""
    async with AsyncExitStack() as stack:
        for name in "ab":
            each = replica(database, tmp_path, name, expiry=EXPIRY, lease_expiry=60)
            first = await stack.enter_async_context(each)
        epoch = first.own.epoch
        await add_lease(database, epoch, 5_000)
        await die(first)
        async with asyncio.timeout(10):
            while (await listed(database))["b"].row.state != "expired":
                await asyncio.sleep(0.05)
        new = replica(database, tmp_path, "b", directory="other", expiry=EXPIRY)
        following = await stack.enter_async_context(new)
        known = await listed(database)
        assert set(known) == {"a", "b", f"b (epoch {epoch})"}
        assert known["b"].row.epoch == following.own.epoch
        assert known[f"b (epoch {epoch})"].row.state == "expired"
        assert following.own.lost == 0
        assert await leases(database) == [epoch]
