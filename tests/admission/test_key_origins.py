"""Origins of a key: the first is recorded, new ones are reported once, also over a restart."""

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


class Gateway:
    """A monitor of one key, from one start to the next."""

    def __init__(self, database: Database, registry: Registry) -> None:
        self._registry = registry
        self._now = FIRST
        self.acquaintances = KeyOriginMonitor(
            registry, partial(record_origin, database), lambda: self._now
        )

    def observe(self, address: str, agent: str) -> str | None:
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


async def start(database: Database) -> Gateway:
    return Gateway(database, await Registry.load(database))


async def test_the_first_use_is_recorded(database: Database) -> None:
    gateway = await start(database)
    assert gateway.observe(HOME, "tool/1.2 (linux)") is None
    known = (FIRST, HOME, "tool")
    assert (
        gateway.token.first_used_at,
        gateway.token.first_address,
        gateway.token.first_agent,
    ) == known
    assert gateway.observe(HOME, "tool/1.2 (linux)") is None
    await gateway.close()
    token = (await start(database)).token
    assert (token.first_used_at, token.first_address, token.first_agent) == known
    assert (token.changed_at, token.changed) == (None, None)


async def test_versions_of_a_client_are_the_same_client(database: Database) -> None:
    gateway = await start(database)
    for agent in ("tool/1.2", "tool/2.0 (x)", "tool", "tool next"):
        assert gateway.observe(HOME, agent) is None
    await gateway.close()


@pytest.mark.parametrize(
    ("address", "agent", "origin"),
    [
        (AWAY, "tool/2", f"address {AWAY}, first {HOME}"),
        (HOME, "other/1", "client other, first tool"),
        (HOME, "", "client without a name, first tool"),
        (AWAY, "other/1", f"address {AWAY}, first {HOME}; client other, first tool"),
    ],
)
async def test_a_new_origin_is_reported_once(
    database: Database, caplog: pytest.LogCaptureFixture, address: str, agent: str, origin: str
) -> None:
    gateway = await start(database)
    gateway.observe(HOME, "tool/1")
    with caplog.at_level(logging.WARNING):
        assert gateway.observe(address, agent) == f"new: {origin}"
        assert gateway.observe(address, agent) is None
        assert gateway.observe(HOME, "tool/1") is None
    assert [record.getMessage() for record in caplog.records] == [
        f"key name 0 (tok_0) is used by a new client: {origin}"
    ]
    assert (gateway.token.changed_at, gateway.token.changed) == (FIRST + 1, origin)
    await gateway.close()
    again = await start(database)
    assert (again.token.changed_at, again.token.changed) == (FIRST + 1, origin)
    assert again.observe(address, agent) is None, "a restart is nothing new"


@pytest.mark.parametrize("invalid", ["ev\udcffil", "ev\0il"], ids=["surrogate", "nul"])
async def test_origins_with_invalid_bytes_are_recorded(
    database: Database, caplog: pytest.LogCaptureFixture, invalid: str
) -> None:
    gateway = await start(database)
    gateway.observe(HOME, "tool/1")
    assert gateway.observe(f"{AWAY}{invalid}{'x' * 200}", f"{invalid}/1") is not None
    await gateway.close()
    assert "could not be stored" not in caplog.text
    origin = (await start(database)).token.changed
    assert origin is not None
    assert origin == gateway.token.changed
    assert len(origin) < 300


async def test_a_first_use_with_invalid_bytes_is_recognised_again(database: Database) -> None:
    gateway = await start(database)
    for _ in range(2):
        assert gateway.observe(f"{HOME}\udcff", "t\udcff/1") is None
    await gateway.close()
    again = await start(database)
    assert again.observe(f"{HOME}\udcff", "t\udcff/1") is None


async def test_several_origins_are_distinguished(database: Database) -> None:
    gateway = await start(database)
    gateway.observe(HOME, "")
    assert gateway.observe(AWAY, "") == f"new: address {AWAY}, first {HOME}"
    assert gateway.observe(HOME, "tool") == "new: client tool, first none"
    assert gateway.observe(AWAY, "") is None
    assert gateway.token.changed == "client tool, first none"
    await gateway.close()
    assert (await start(database)).token.changed == "client tool, first none"


async def test_the_number_of_origins_is_limited(database: Database) -> None:
    """A key with many origins fills neither log nor memory."""
    gateway = await start(database)
    gateway.observe(HOME, "tool")
    noted = [
        gateway.observe(f"10.0.{number // 256}.{number % 256}", "tool") for number in range(1000)
    ]
    assert [each is not None for each in noted] == [True] * 64 + [False] * 936
    await gateway.close()


async def test_concurrent_changes_by_an_operator_stay(database: Database) -> None:
    registry = await Registry.load(database)
    gateway = Gateway(database, registry)
    registry.put_token(replace(gateway.token, note="of the lab"))
    gateway.observe(HOME, "tool")
    gateway.observe(AWAY, "tool")
    assert gateway.token.note == "of the lab"
    await gateway.close()


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
    await (await start(database)).close()


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
