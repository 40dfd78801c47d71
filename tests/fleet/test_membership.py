"""Several replicas in one process, on a real server."""

from __future__ import annotations

import asyncio
import shutil
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from gateway.fleet import membership as module
from gateway.fleet.membership import comparable_hash, read_state_id
from gateway.store.database import Database
from gateway.store.errors import ReplicaNameTaken, ReplicaUnclear, SharedStateMissing
from gateway.store.postgresql.replicas import LOST_AFTER, remove, steady_seconds
from tests.fleet.replicas import die, listed, parse, replica
from tests.support.timing import SLACK, until_within


async def test_a_replica_is_listed_until_it_leaves(database: Database, tmp_path: Path) -> None:
    async with replica(database, tmp_path, "one") as one:
        entry = (await listed(database))["one"]
        assert entry.is_living
        assert entry.row.epoch == one.own.epoch > 0
        assert entry.row.state == "starting"
        assert one.own.lease_seconds == pytest.approx(57, abs=1)
    assert await listed(database) == {}


async def test_its_heartbeat_keeps_it_living(database: Database, tmp_path: Path) -> None:
    async with replica(database, tmp_path, "one") as one:
        before, started = (await listed(database))["one"].row.heartbeat_at, steady_seconds()
        async with asyncio.timeout(SLACK):
            while (await listed(database))["one"].row.heartbeat_at == before:
                await asyncio.sleep(0.05)
        assert one.own.contact_age < steady_seconds() - started


async def test_replicas_know_their_number_and_their_place(
    database: Database, tmp_path: Path
) -> None:
    async with AsyncExitStack() as stack:
        replicas = [
            await stack.enter_async_context(replica(database, tmp_path, name)) for name in "bca"
        ]
        async with asyncio.timeout(5):
            while {each.own.position[1] for each in replicas} != {3}:
                await asyncio.sleep(0.05)
        assert [each.own.position for each in replicas] == [(1, 3), (2, 3), (0, 3)]


async def test_its_clock_is_the_servers(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = module.ServerClock().now()
    monkeypatch.setattr("time.time_ns", lambda: 5_000_000_000)  # the machine's is wrong by years
    async with replica(database, tmp_path, "one") as one:
        assert abs(one.clock.now() - real) < 20_000_000


async def test_a_living_replicas_name_is_refused(database: Database, tmp_path: Path) -> None:
    async with replica(database, tmp_path, "one") as one:
        with pytest.raises(ReplicaNameTaken, match=r"has the name 'one'.*replica\.name"):
            async with replica(database, tmp_path, "one", directory="other"):
                pass
        assert (await listed(database))["one"].row.epoch == one.own.epoch


async def test_the_same_state_directory_takes_over_at_once(
    database: Database, tmp_path: Path
) -> None:
    async with replica(database, tmp_path, "one") as killed:
        epoch = killed.own.epoch
        await die(killed)
        started = asyncio.get_running_loop().time()
        async with replica(database, tmp_path, "renamed", directory="one") as next_one:
            assert asyncio.get_running_loop().time() - started < LOST_AFTER - 1
            assert next_one.own.epoch > epoch
            assert list(await listed(database)) == ["renamed"]


async def test_a_copy_of_a_state_directory_is_refused(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOST_AFTER", 1.5)
    async with replica(database, tmp_path, "one") as one:
        shutil.copytree(tmp_path / "one", tmp_path / "two")
        with pytest.raises(ReplicaUnclear, match="a state directory of its own"):
            async with replica(database, tmp_path, "two"):
                pass
        assert (await listed(database))["one"].row.epoch == one.own.epoch


async def test_without_shared_state_there_is_one_replica(
    database: Database, tmp_path: Path
) -> None:
    async with replica(database, tmp_path, "one", shared=False):
        with pytest.raises(SharedStateMissing, match="`shared`"):
            async with replica(database, tmp_path, "two", shared=False):
                pass
    async with replica(database, tmp_path, "two", shared=False):
        pass


async def test_a_replica_that_was_removed_is_registered_again(
    database: Database, tmp_path: Path
) -> None:
    async with replica(database, tmp_path, "one") as one:
        epochs: list[int] = []
        one.on_epoch.append(epochs.append)
        first = one.own.epoch
        await database.write(lambda connection: remove(connection, first))
        async with asyncio.timeout(5):
            while not epochs:
                await asyncio.sleep(0.05)
        assert epochs == [one.own.epoch]
        assert one.own.epoch > first
        assert (await listed(database))["one"].row.epoch == one.own.epoch


async def test_one_is_the_leader_and_another_follows_it(database: Database, tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        one, two, three = [
            await stack.enter_async_context(replica(database, tmp_path, name)) for name in "abc"
        ]
        others = [two, three]
        assert one.own.is_leader
        assert not any(each.own.is_leader for each in others)
        await die(one)
        await until_within(3, lambda: any(each.own.is_leader for each in others))
        await asyncio.sleep(1.2)
        assert sum(each.own.is_leader for each in others) == 1


async def test_without_contact_nobody_leads_and_no_lease_is_used(
    database: Database, tmp_path: Path
) -> None:
    async with replica(database, tmp_path, "one") as one:
        assert one.own.is_leader
        await die(one)
        one.own.holds_leader_lock = True  # as far as a paused process knows
        one.own.epoch = 1
        one.own.contact_at -= 5.1
        assert not one.own.is_leader
        assert one.own.lease_seconds == pytest.approx(51.9, abs=1)
        one.own.contact_at -= 52
        assert one.own.lease_seconds <= 0


def test_a_state_directory_has_one_id(tmp_path: Path) -> None:
    assert read_state_id(tmp_path) == read_state_id(tmp_path)
    (tmp_path / "other").mkdir()
    assert read_state_id(tmp_path / "other") != read_state_id(tmp_path)


def test_the_hash_is_of_what_replicas_have_in_common(tmp_path: Path) -> None:
    url = "postgresql://gateway@127.0.0.1/gateway"
    one, two = parse(url, tmp_path / "a", name="one"), parse(url, tmp_path / "b", name="two")
    assert comparable_hash(one) == comparable_hash(two)
    limits = two.limits.model_copy(update={"concurrent": 7})
    assert comparable_hash(one) != comparable_hash(two.model_copy(update={"limits": limits}))
