"""Who uses a key: the first is remembered, strangers are noted once, and it outlives a restart."""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from gateway.admission.key_origins import KeyOriginMonitor, client_product
from gateway.store.database import Database
from gateway.store.records import Token
from gateway.store.registry import Registry
from gateway.store.tokens import record_origin

FIRST = 1_790_000_000_000_000
HOME, AWAY = "192.0.2.1", "198.51.100.9"


class Door:
    """A gateway's knowledge of one key, from one start to the next."""

    def __init__(self, database: Database, registry: Registry) -> None:
        self._registry = registry
        self._now = FIRST
        self.acquaintances = KeyOriginMonitor(
            registry, partial(record_origin, database), lambda: self._now
        )

    def meet(self, address: str, agent: str) -> str | None:
        noted = self.acquaintances.observe(self.token, address, agent)
        self._now += 1
        return noted

    @property
    def token(self) -> Token:
        token = self._registry.token("tok_0")
        assert token is not None
        return token

    async def close(self) -> None:
        await self.acquaintances.close()


async def opened(database: Database) -> Door:
    return Door(database, await Registry.load(database))


async def test_the_first_use_is_recorded(database: Database) -> None:
    door = await opened(database)
    assert door.meet(HOME, "tool/1.2 (linux)") is None
    known = (FIRST, HOME, "tool")
    assert (door.token.first_used_at, door.token.first_address, door.token.first_agent) == known
    assert door.meet(HOME, "tool/1.2 (linux)") is None
    await door.close()
    token = (await opened(database)).token
    assert (token.first_used_at, token.first_address, token.first_agent) == known
    assert (token.changed_at, token.changed) == (None, None)


async def test_versions_of_a_client_are_the_same_client(database: Database) -> None:
    door = await opened(database)
    for agent in ("tool/1.2", "tool/2.0 (x)", "tool", "tool next"):
        assert door.meet(HOME, agent) is None
    await door.close()


@pytest.mark.parametrize(
    ("address", "agent", "told"),
    [
        (AWAY, "tool/2", f"address {AWAY}, first {HOME}"),
        (HOME, "other/1", "client other, first tool"),
        (HOME, "", "client without a name, first tool"),
        (AWAY, "other/1", f"address {AWAY}, first {HOME}; client other, first tool"),
    ],
)
async def test_a_new_origin_is_reported_once(
    database: Database, caplog: pytest.LogCaptureFixture, address: str, agent: str, told: str
) -> None:
    door = await opened(database)
    door.meet(HOME, "tool/1")
    with caplog.at_level(logging.WARNING):
        assert door.meet(address, agent) == f"new: {told}"
        assert door.meet(address, agent) is None
        assert door.meet(HOME, "tool/1") is None
    assert [record.getMessage() for record in caplog.records] == [
        f"key name 0 (tok_0) is used by a new client: {told}"
    ]
    assert (door.token.changed_at, door.token.changed) == (FIRST + 1, told)
    await door.close()
    again = await opened(database)
    assert (again.token.changed_at, again.token.changed) == (FIRST + 1, told)
    assert again.meet(address, agent) is None, "a restart is nothing new"


@pytest.mark.parametrize("odd", ["ev\udcffil", "ev\0il"], ids=["surrogate", "nul"])
async def test_origins_with_invalid_bytes_are_recorded(
    database: Database, caplog: pytest.LogCaptureFixture, odd: str
) -> None:
    door = await opened(database)
    door.meet(HOME, "tool/1")
    assert door.meet(f"{AWAY}{odd}{'x' * 200}", f"{odd}/1") is not None
    await door.close()
    assert "could not be stored" not in caplog.text
    told = (await opened(database)).token.changed
    assert told is not None
    assert told == door.token.changed
    assert len(told) < 300


async def test_a_first_use_with_invalid_bytes_is_recognised_again(database: Database) -> None:
    door = await opened(database)
    for _ in range(2):
        assert door.meet(f"{HOME}\udcff", "t\udcff/1") is None
    await door.close()
    again = await opened(database)
    assert again.meet(f"{HOME}\udcff", "t\udcff/1") is None


async def test_several_origins_are_distinguished(database: Database) -> None:
    door = await opened(database)
    door.meet(HOME, "")
    assert door.meet(AWAY, "") == f"new: address {AWAY}, first {HOME}"
    assert door.meet(HOME, "tool") == "new: client tool, first none"
    assert door.meet(AWAY, "") is None
    assert door.token.changed == "client tool, first none"
    await door.close()
    assert (await opened(database)).token.changed == "client tool, first none"


async def test_the_number_of_origins_is_limited(database: Database) -> None:
    """A key that is used from everywhere fills neither log nor memory."""
    door = await opened(database)
    door.meet(HOME, "tool")
    noted = [door.meet(f"10.0.{number // 256}.{number % 256}", "tool") for number in range(1000)]
    assert [each is not None for each in noted] == [True] * 64 + [False] * 936
    await door.close()


async def test_concurrent_changes_by_an_operator_stay(database: Database) -> None:
    registry = await Registry.load(database)
    door = Door(database, registry)
    registry.put_token(replace(door.token, note="of the lab"))
    door.meet(HOME, "tool")
    door.meet(AWAY, "tool")
    assert door.token.note == "of the lab"
    await door.close()


async def test_a_full_disk_stops_no_request(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    async def write(token_id: str, **found: Any) -> None:
        raise OSError("no space left")

    registry = await Registry.load(database)
    acquaintances = KeyOriginMonitor(registry, write, lambda: FIRST)
    token = registry.token("tok_0")
    assert token is not None
    assert acquaintances.observe(token, HOME, "tool") is None
    await acquaintances.close()
    assert "the origin of key tok_0 could not be stored" in caplog.text


async def test_close_without_origins(database: Database) -> None:
    await (await opened(database)).close()


@pytest.mark.parametrize(
    ("agent", "name"),
    [
        ("tool/1.2 (linux)", "tool"),
        ("tool 1.2", "tool"),
        ("Tool-JS/1", "Tool-JS"),
        ("", ""),
        ("/1", ""),
        ("t" * 300, "t" * 100),
    ],
)
def test_the_name_of_a_client(agent: str, name: str) -> None:
    assert client_product(agent) == name
