"""Admins that are changed at two replicas at once: one of them always stays."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from gateway.admin.access.admins import Admins
from gateway.admin.errors import AdminExists, LastAdmin, UnknownAdmin
from gateway.store import access as store
from gateway.store.database import Database
from gateway.store.records import Role
from tests.support.gateway import RunningGateway, channels
from tests.support.replicas import run_replicas

PASSWORD = "correct horse battery"
ROUNDS = 10

Change = Callable[[Admins, str], Awaitable[Any]]


async def remove(admins: Admins, name: str) -> None:
    await admins.remove(name)


async def demote(admins: Admins, name: str) -> None:
    await admins.update(name, role=Role.VIEWER)


@pytest.fixture
async def replicas(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[RunningGateway, RunningGateway]]:
    monkeypatch.setattr("gateway.admin.access.passwords._SCRYPT_N", 2**10)
    lines = channels("http://127.0.0.1:9")
    async with asyncio.timeout(120), run_replicas(tmp_path, 2, lines) as (first, second):
        yield first, second


async def add_two(*gateways: RunningGateway) -> None:
    """Known to all gateways."""
    await until_known(*gateways)
    first = admins_of(gateways[0])
    for name in ("one", "two"):
        if first.find(name) is None:
            await first.add(name, Role.ADMIN, PASSWORD)
        await first.update(name, role=Role.ADMIN)
    await until_known(*gateways)


async def until_known(*gateways: RunningGateway) -> None:
    expected = await store.all_admins(database_of(gateways[0]))
    async with asyncio.timeout(20):
        while any(admins_of(each).all() != expected for each in gateways):
            await asyncio.sleep(0.005)


def admins_of(gateway: RunningGateway) -> Admins:
    return gateway.daemon.console.access.admins


async def stored(gateway: RunningGateway) -> list[tuple[str, Role]]:
    return [(each.name, each.role) for each in await store.all_admins(database_of(gateway))]


def database_of(gateway: RunningGateway) -> Database:
    return gateway.operations.database


@pytest.mark.parametrize("second_change", [remove, demote])
@pytest.mark.parametrize("first_change", [remove, demote])
async def test_the_last_admin_is_refused_before_its_replica_has_heard_of_the_other(
    replicas: tuple[RunningGateway, RunningGateway], first_change: Change, second_change: Change
) -> None:
    first, second = replicas
    await add_two(first, second)
    async with database_of(second).changing:  # it applies nothing
        await first_change(admins_of(first), "two")
        known = {each.name for each in admins_of(second).all()}
    assert known == {"one", "two"}
    with pytest.raises(LastAdmin):
        await second_change(admins_of(second), "one")
    assert ("one", Role.ADMIN) in await stored(first)


@pytest.mark.parametrize("second_change", [remove, demote])
@pytest.mark.parametrize("first_change", [remove, demote])
async def test_of_two_at_once_one_is_refused(
    replicas: tuple[RunningGateway, RunningGateway], first_change: Change, second_change: Change
) -> None:
    first, second = replicas
    for _ in range(ROUNDS):
        await add_two(first, second)
        results = await asyncio.gather(
            first_change(admins_of(first), "two"),
            second_change(admins_of(second), "one"),
            return_exceptions=True,
        )
        assert [type(each) for each in results if each is not None] == [LastAdmin]
        assert [role for _, role in await stored(first)].count(Role.ADMIN) == 1


async def test_a_new_password_undoes_no_removal_and_no_other_role(
    replicas: tuple[RunningGateway, RunningGateway],
) -> None:
    first, second = replicas
    await add_two(first, second)
    async with database_of(second).changing:
        await admins_of(first).update("one", role=Role.VIEWER)
        old = admins_of(second).get("one")
    assert old.role is Role.ADMIN
    changed = await admins_of(second).update("one", password="another password")
    assert (changed.role, await stored(first)) == (
        Role.VIEWER,
        [("one", Role.VIEWER), ("two", Role.ADMIN)],
    )
    async with database_of(second).changing:
        await admins_of(first).remove("one")
    with pytest.raises(UnknownAdmin):
        await admins_of(second).update("one", password="a third password")
    assert await stored(first) == [("two", Role.ADMIN)]


async def test_a_name_exists_once(replicas: tuple[RunningGateway, RunningGateway]) -> None:
    results = await asyncio.gather(
        *(admins_of(each).add("same", Role.ADMIN, PASSWORD) for each in replicas),
        return_exceptions=True,
    )
    assert [type(each) for each in results].count(AdminExists) == 1
    assert await stored(replicas[0]) == [("same", Role.ADMIN)]
