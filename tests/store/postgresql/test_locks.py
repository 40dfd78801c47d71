"""Migrations of a database server: once for any number of replicas, beside requests, and beside
the previous release."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import asyncpg
import pytest
from sqlalchemy.exc import DBAPIError

from gateway.config.cluster import DatabaseServer
from gateway.store import tokens
from gateway.store.errors import MigrationFailed, NewerSchema, ServerUnavailable
from gateway.store.log import pages
from gateway.store.log.integrity import check
from gateway.store.log.recorder import Recorder
from gateway.store.migrations import migrate, migrations_for
from gateway.store.open import open_database
from gateway.store.postgresql import locks
from gateway.store.postgresql.database import PostgresqlDatabase
from gateway.store.postgresql.schema import AdvisoryLock
from tests.store.sample_rows import attempt, intent, settled, token
from tests.support.next_release import COMPATIBLE, INCOMPATIBLE
from tests.support.postgres import empty_database, new_database_url, postgres_server

pytestmark = [pytest.mark.timeout(60), pytest.mark.servers]

THIS_RELEASE = migrations_for("postgresql")
ONCE = "CREATE TABLE once (number INTEGER);\nINSERT INTO once VALUES (1);\n"
NOW = 1_790_000_000_000_000


def server_at(url: str) -> DatabaseServer:
    return DatabaseServer.model_validate({"url": url})


@pytest.fixture
async def server() -> DatabaseServer:
    return server_at(await new_database_url())


@pytest.fixture
async def database(server: DatabaseServer) -> AsyncIterator[PostgresqlDatabase]:
    database = PostgresqlDatabase(server)
    yield database
    await database.close()


@pytest.fixture
async def session(database: PostgresqlDatabase) -> AsyncIterator[asyncpg.Connection]:
    session = await database.connect(command_timeout=10)
    yield session
    await session.close()


async def test_replicas_that_start_together_migrate_once() -> None:
    postgres = postgres_server()
    server = server_at(postgres.url(await empty_database(postgres)))
    replicas = [PostgresqlDatabase(server) for _ in range(6)]
    await asyncio.gather(*(migrate(each, NOW, (*THIS_RELEASE, ONCE)) for each in replicas))
    session = await replicas[0].connect()
    assert await session.fetchval("SELECT count(*) FROM once") == 1
    query = "SELECT value FROM settings WHERE name = 'schema_version'"
    assert await session.fetchval(query) == str(len(THIS_RELEASE) + 1)
    assert await session.fetchval("SELECT count(*) FROM groups") == 1
    await session.close()
    for each in replicas:
        await each.close()


async def test_the_previous_release_runs_on_a_compatible_schema(
    server: DatabaseServer, database: PostgresqlDatabase
) -> None:
    await migrate(database, NOW, (*THIS_RELEASE, COMPATIBLE))
    previous = await open_database(server)
    await tokens.add_token(previous, token(0))
    recorder = Recorder(previous)
    await recorder.start()
    await recorder.record_intent(intent(1))
    recorder.record_settlement(settled(intent(1)), (attempt(),))
    await recorder.close()
    assert (await check(previous)).ok
    assert len(await pages.page(previous)) == 1
    await previous.close()


@pytest.mark.parametrize("then", [(), (COMPATIBLE.replace("next_release", "later"),)])
async def test_an_incompatible_schema_stops_the_start_of_the_previous_release(
    server: DatabaseServer, database: PostgresqlDatabase, then: tuple[str, ...]
) -> None:
    """Also where a compatible one followed."""
    await migrate(database, NOW, (*THIS_RELEASE, INCOMPATIBLE, *then))
    with pytest.raises(NewerSchema, match=rf"supports schemas up to {len(THIS_RELEASE)}: start"):
        await open_database(server)


async def test_requests_go_on_while_the_schema_changes(
    server: DatabaseServer,
    database: PostgresqlDatabase,
    session: asyncpg.Connection,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The migration has to wait for a long query. Nothing waits behind it for long, and statements
    that were prepared before are right after it."""
    previous = await open_database(server)
    await tokens.add_token(previous, token(0))
    recorder = Recorder(previous)
    await recorder.start()
    waits: list[float] = []
    done = asyncio.Event()

    async def serve() -> None:
        number = 0
        while not done.is_set():
            number, began = number + 1, time.monotonic()
            await recorder.record_intent(intent(number))
            await pages.page(previous, limit=5)
            waits.append(time.monotonic() - began)
            recorder.record_settlement(settled(intent(number)), (attempt(),))
            await asyncio.sleep(0.005)

    serving = asyncio.ensure_future(serve())
    reading = session.transaction()
    await reading.start()
    await session.fetchval("SELECT count(*) FROM requests")
    migrating = asyncio.ensure_future(migrate(database, NOW, (*THIS_RELEASE, COMPATIBLE)))
    await asyncio.sleep(1.5)
    assert not migrating.done(), "a query reads the table"
    await reading.rollback()
    await migrating
    before = len(waits)
    while len(waits) < before + 20:
        await asyncio.sleep(0.01)
    done.set()
    await serving
    await recorder.close()
    assert max(waits) < 1.0
    assert (await check(previous)).rows == len(waits)
    assert (await check(previous)).ok
    await previous.close()


async def test_waiting_ends(
    database: PostgresqlDatabase, session: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "MIGRATION_TIMEOUT", 1.0)
    await session.execute("BEGIN; LOCK TABLE requests IN ACCESS SHARE MODE")
    with pytest.raises(ServerUnavailable, match="in use by a long transaction"):
        await migrate(database, NOW, (*THIS_RELEASE, COMPATIBLE))
    await session.execute(f"ROLLBACK; SELECT pg_advisory_lock({AdvisoryLock.MIGRATIONS:d})")
    with pytest.raises(ServerUnavailable, match="another replica changes"):
        await migrate(database, NOW, (*THIS_RELEASE, COMPATIBLE))


async def test_other_errors_are_raised_at_once(database: PostgresqlDatabase) -> None:
    began = time.monotonic()
    with pytest.raises(MigrationFailed, match="rolled back") as failed:
        await migrate(database, NOW, (*THIS_RELEASE, "ALTER TABLE nowhere ADD COLUMN x TEXT"))
    assert isinstance(failed.value.__cause__, DBAPIError)
    assert time.monotonic() - began < 5
