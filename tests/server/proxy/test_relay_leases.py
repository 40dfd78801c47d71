"""Streams that outgrow their reservation, where a database server leases budgets to replicas."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from gateway.core.formats import Format
from gateway.store.records import ExchangeState
from tests.server.key_limits import limit_key
from tests.server.record.test_billing_reservations import MODELS, UNIT, long_stream, stream
from tests.support.gateway import RunningGateway, channels, run_gateway
from tests.support.postgres import PostgresServer, empty_database, own_postgres_server
from tests.support.upstream import ScriptedUpstream
from tests.support.valkey import valkey_server

END = b"data: [DONE]"


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    """One that can be stopped."""
    with own_postgres_server() as server:
        yield server


@asynccontextmanager
async def leasing_gateway(
    server: PostgresServer, folder: Path, upstream: ScriptedUpstream, **replica: Any
) -> AsyncIterator[RunningGateway]:
    url = server.url(await empty_database(server))
    options = {"database": {"url": url, "timeout": 1}, "shared": valkey_server().url}
    async with run_gateway(
        folder, channels(upstream.address), models=MODELS, replica=replica, **options
    ) as gateway:
        yield gateway


async def spent(server: PostgresServer, gateway: RunningGateway) -> int:
    database = gateway.daemon.runtime.config.database
    assert database is not None
    connection = await asyncpg.connect(database.url.get_secret_value())
    try:
        query = "SELECT units FROM spending WHERE holder_kind = 'key' AND period = 'total'"
        return int(await connection.fetchval(query))
    finally:
        await connection.close()


@pytest.mark.slow("relays a long reply")
@pytest.mark.large
@pytest.mark.parametrize("pause", [0.0, 0.005])
async def test_a_long_reply_gets_more_of_its_budget(
    server: PostgresServer, tmp_path: Path, upstream: ScriptedUpstream, pause: float
) -> None:
    upstream.respond_with(long_stream(Format.CHAT, pause=pause, words=100))
    async with leasing_gateway(server, tmp_path, upstream) as gateway:
        limit_key(gateway, budget=100_000 * UNIT)
        body = await stream(gateway, max_tokens=1)
        row = await gateway.row()
        assert body.count(b"Hello " * 17) == 100
        assert END in body
        assert row.state is ExchangeState.OK
        assert await spent(server, gateway) == row.cost_micro


@pytest.mark.slow("relays a long reply")
async def test_it_ends_where_the_budget_is_spent(
    server: PostgresServer, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    upstream.respond_with(long_stream(Format.CHAT, pause=0.1))  # read one by one on a busy machine
    async with leasing_gateway(server, tmp_path, upstream) as gateway:
        limit_key(gateway, budget=140 * UNIT)
        body = await stream(gateway, max_tokens=1)
        row = await gateway.row()
    assert END not in body
    assert b"total budget of 140 units" in body
    assert row.error_code == "insufficient_quota"
    assert row.cost_micro <= 190 * UNIT


@pytest.mark.slow("waits for a server")
@pytest.mark.processes
async def test_it_waits_for_a_server_that_is_away(
    server: PostgresServer, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    upstream.respond_with(long_stream(Format.CHAT, pause=0.05, words=60))
    async with leasing_gateway(server, tmp_path, upstream, expiry=10) as gateway:
        limit_key(gateway, budget=100_000 * UNIT)
        reading = asyncio.ensure_future(stream(gateway, max_tokens=1))
        await asyncio.sleep(0.6)
        await asyncio.to_thread(server.stop)
        await asyncio.sleep(4)
        assert not reading.done()
        await asyncio.to_thread(server.start)
        async with asyncio.timeout(30):
            body = await reading
        row = await gateway.row()
        assert body.count(b"Hello " * 17) == 60
        assert END in body
        assert row.state is ExchangeState.OK
        assert await spent(server, gateway) == row.cost_micro
