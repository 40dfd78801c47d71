"""What one replica has learned of an upstream, the others know."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from gateway.config.cluster import SharedServer
from gateway.core.target import COMPACTION
from gateway.fleet.refusals import SharedRefusals
from gateway.fleet.valkey.connection import Connection
from gateway.routing.refusals import LIFETIME, TRIAL, Refusals
from tests.fleet.test_health import config
from tests.support.valkey import valkey_server

NOW = 1_800_000_000_000_000
MODEL = "main", "upstream-model"


@asynccontextmanager
async def replica(
    prefix: str, key: str = "secret-of-the-first"
) -> AsyncIterator[tuple[Refusals, Connection]]:
    server = SharedServer.model_validate({"url": valkey_server().url, "prefix": prefix})
    connection, refusals, settings = Connection(server), Refusals(), config(key)
    await connection.open()
    SharedRefusals(connection, refusals, lambda: settings).start()
    try:
        yield refusals, connection
    finally:
        await connection.close()


async def known(refusals: Refusals, *names: str) -> None:
    async with asyncio.timeout(5):
        while refusals.values_of(MODEL, NOW) != names:
            await asyncio.sleep(0.01)


async def test_others_know_what_is_confirmed_and_so_do_later_replicas() -> None:
    async with replica("refusals1") as (a, connection), replica("refusals1") as (b, _):
        a.add_values(MODEL, ["beta:tried"], NOW, TRIAL)
        async with asyncio.timeout(5):
            while not b.values_of(MODEL, NOW):  # until its subscription begins
                a.add_values(MODEL, [COMPACTION], NOW)
                await asyncio.sleep(0.05)
        assert b.values_of(MODEL, NOW) == (COMPACTION,)
        assert b.values_of(MODEL, NOW + LIFETIME) == ()
        async with replica("refusals1") as (later, _):
            await known(later, COMPACTION)
        async with replica("refusals1", "a-new-secret") as (other, _):
            await asyncio.sleep(0.2)
            assert other.values == {}  # it may be another upstream
        assert "secret" not in repr(await connection.call("HGETALL", "{refusals1}:refusals"))
        assert 0 < await connection.call("PTTL", "{refusals1}:refusals") <= LIFETIME // 1000
        await connection.call("PUBLISH", "{refusals1}:refusals:new", "[1]")
        await connection.call("HSET", "{refusals1}:refusals", "x", "no JSON")
        async with replica("refusals1") as (later, _):
            await known(later, COMPACTION)
