"""A real PostgreSQL server: what is refused at a start, and what happens where it goes away."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from sqlalchemy import text

from gateway.config.cluster import Tls, TlsMode
from gateway.store import tokens
from gateway.store.database import Database
from gateway.store.errors import DatabaseUnavailable, QueryTimeout, StoreError
from gateway.store.open import open_database
from tests.store.sample_rows import token
from tests.support.databases import server_of
from tests.support.postgres import (
    PostgresServer,
    drop_database,
    empty_database,
    new_database_url,
    postgres_server,
)
from tests.support.timing import SLACK

pytestmark = pytest.mark.servers

SECRET = "s3cret-4471"
SLEEP = text("SELECT pg_sleep(30)")


@pytest.fixture
async def url() -> AsyncIterator[str]:
    url = await new_database_url()
    yield url
    await drop_database(postgres_server(), url.rpartition("/")[2])


@pytest.fixture
async def database(url: str) -> AsyncIterator[Database]:
    database = await open_database(server_of(url, timeout=1.0))
    yield database
    await database.close()


async def refusal(url: str, **options: Any) -> str:
    """What a start says; it takes no longer than the configured time, and names no secret."""
    began = time.monotonic()
    with pytest.raises(StoreError) as caught:
        await open_database(server_of(url, timeout=1.0, **options))
    assert time.monotonic() - began < SLACK
    assert SECRET not in str(caught.value)
    return str(caught.value)


async def execute(url: str, *statements: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        for statement in statements:
            await connection.execute(statement)
    finally:
        await connection.close()


async def test_a_server_that_cannot_be_reached() -> None:
    assert await refusal("postgresql://gw:s3cret-4471@127.0.0.1:1/gateway") == (
        'the database "gateway" on 127.0.0.1:1: the connection was refused'
    )
    assert "its host is unknown" in await refusal("postgresql://gw@nowhere.invalid/gateway")


async def test_a_server_that_says_nothing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        assert "does not answer in time" in await refusal(f"postgresql://gw@127.0.0.1:{port}/gw")


async def test_a_missing_database_and_user(url: str) -> None:
    missing = url.rpartition("/")[0] + "/absent"
    assert 'there is no database "absent": createdb ' in await refusal(missing)
    assert "see pg_hba.conf" in await refusal(url.replace("gateway@", "nobody@"))


async def test_tls_that_the_server_does_not_offer(url: str) -> None:
    message = await refusal(url, tls=Tls(mode=TlsMode.REQUIRE))
    assert "it does not offer TLS; see database.tls" in message
    message = await refusal(url, tls=Tls(mode=TlsMode.VERIFY, ca=Path("/nowhere/ca.pem")))
    assert "No such file" in message


async def test_an_encoding_without_all_characters() -> None:
    server = postgres_server()
    name = "latin_database"
    await execute(
        server.url("postgres"),
        f"CREATE DATABASE {name} TEMPLATE template0 ENCODING LATIN1 LOCALE_PROVIDER libc"
        " LOCALE 'C'",
    )
    try:
        assert "its encoding is LATIN1: make one with createdb -E UTF8" in await refusal(
            server.url(name)
        )
    finally:
        await drop_database(server, name)


async def test_a_user_who_may_not_create_tables() -> None:
    server = postgres_server()
    name = await empty_database(server)
    await execute(server.url(name), "DROP ROLE IF EXISTS poor", "CREATE ROLE poor LOGIN")
    try:
        poor = server.url(name).replace("gateway@", "poor@")
        message = await refusal(poor)
        assert 'the user "poor" may not create tables in the schema public' in message
        await execute(server.url(name), "GRANT CREATE ON SCHEMA public TO poor")
        database = await open_database(server_of(poor))
        await database.close()
    finally:
        await drop_database(server, name)


async def test_tables_of_others(url: str) -> None:
    server = postgres_server()
    name = await empty_database(server)
    await execute(server.url(name), "CREATE TABLE birds (name text)")
    try:
        assert "belongs to another program" in await refusal(server.url(name))
    finally:
        await drop_database(server, name)
    # Tables of this program that belong to another user.
    await execute(url, "DROP ROLE IF EXISTS other", "CREATE ROLE other LOGIN")
    await execute(url, "GRANT CREATE ON SCHEMA public TO other")
    message = await refusal(url.replace("gateway@", "other@"))
    assert 'permission denied for table settings: make the user "other" the owner' in message


async def test_every_text_sorts_by_its_bytes(url: str) -> None:
    """Ids, names and digests compare as in Python, though the server's own order is another."""
    connection = await asyncpg.connect(url)
    try:
        assert await connection.fetchval("SELECT 'a' < 'B'")
        rows = await connection.fetch(
            "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema ="
            " 'public' AND data_type = 'text' AND collation_name IS DISTINCT FROM 'C'"
        )
    finally:
        await connection.close()
    assert [tuple(row) for row in rows] == []


async def test_a_reader_cannot_write(database: Database) -> None:
    async with database.reader.connect() as connection:
        with pytest.raises(Exception, match="read-only transaction"):
            await connection.execute(text("DELETE FROM tokens"))


async def test_statements_have_an_end(database: Database) -> None:
    began = time.monotonic()
    with pytest.raises(DatabaseUnavailable, match="does not answer in time"):
        async with database.reader.connect() as connection:
            await connection.execute(SLEEP)
    with pytest.raises(DatabaseUnavailable, match="does not answer in time"):
        await database.write(lambda connection: connection.execute(SLEEP))
    with pytest.raises(QueryTimeout):
        async with database.read_within(0.1) as connection:
            await connection.execute(SLEEP)
    assert time.monotonic() - began < SLACK
    await works(database)


async def test_a_change_of_the_schema_may_take_long(database: Database) -> None:
    slow = text("SELECT pg_sleep(1.5)")
    assert await database.change_schema(lambda connection: connection.execute(slow).rowcount) == 1


async def test_a_cancelled_write_is_done(database: Database) -> None:
    def write(connection: Any) -> None:
        connection.execute(text("SELECT pg_sleep(0.2)"))
        connection.execute(text("INSERT INTO settings VALUES ('written', 'yes')"))

    writing = asyncio.ensure_future(database.write(write))
    await asyncio.sleep(0.05)
    writing.cancel()
    await asyncio.wait({writing})
    await database.write(lambda _: None)
    async with database.reader.connect() as connection:
        query = text("SELECT value FROM settings WHERE name = 'written'")
        assert await connection.scalar(query) == "yes"


async def test_texts_with_nul(database: Database) -> None:
    await tokens.add_token(database, token(0, name="a\0b"))
    (stored,) = await tokens.all_tokens(database)
    assert stored.name == "a\ufffdb"


@pytest.fixture
def own_server() -> Iterator[PostgresServer]:
    with tempfile.TemporaryDirectory(prefix="gateway-postgres-") as folder:
        Path(folder).chmod(0o755)  # it runs as another user
        server = PostgresServer(Path(folder))
        try:
            yield server
        finally:
            server.stop(signal.SIGQUIT)


@contextmanager
def frozen(server: PostgresServer) -> Iterator[None]:
    """Its processes are stopped: connections stay, and nothing answers."""
    found = subprocess.run(
        ["pgrep", "-P", str(server.process.pid)], capture_output=True, text=True, check=False
    )
    processes = [server.process.pid, *map(int, found.stdout.split())]
    for process in processes:
        os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        for process in processes:
            os.kill(process, signal.SIGCONT)


async def works(database: Database) -> None:
    await read(database)
    await write(database)


async def read(database: Database) -> None:
    async with database.reader.connect() as connection:
        assert await connection.scalar(text("SELECT 1")) == 1


async def write(database: Database) -> None:
    await database.write(lambda connection: connection.execute(text("SELECT 1")))


async def fails(work: Callable[[Database], Awaitable[None]], database: Database) -> str:
    began = time.monotonic()
    with pytest.raises(DatabaseUnavailable) as caught:
        await work(database)
    assert time.monotonic() - began < SLACK
    assert "127.0.0.1" not in str(caught.value)
    return str(caught.value)


@pytest.mark.slow("waits for a PostgreSQL that says nothing")
@pytest.mark.processes
async def test_a_server_that_hangs_restarts_and_goes_away(own_server: PostgresServer) -> None:
    name = await empty_database(own_server)
    server = server_of(own_server.url(name), timeout=1.0)
    database = await open_database(server)
    await works(database)
    with frozen(own_server):
        assert "does not answer in time" in await fails(read, database)
        assert "does not answer in time" in await fails(write, database)
        assert "does not answer in time" in await refusal(own_server.url(name))
    await works(database)
    own_server.stop()
    own_server.start()
    await asyncio.sleep(0.1)  # as it would have run meanwhile
    await works(database)  # with new connections
    own_server.stop(signal.SIGQUIT)
    for work in (read, write, read, write):
        await fails(work, database)
    own_server.start()
    await works(database)
    await database.close()


@pytest.mark.slow("starts a server of its own")
@pytest.mark.processes
async def test_a_wrong_password_and_a_standby(own_server: PostgresServer) -> None:
    name = await empty_database(own_server)
    await execute(own_server.url(name), f"ALTER ROLE gateway PASSWORD '{SECRET}'")
    rules = own_server.folder / "data" / "pg_hba.conf"
    rules.write_text("host all all 127.0.0.1/32 scram-sha-256\n")
    own_server.stop()
    own_server.start()  # waits without a password
    address = own_server.url(name)
    assert "the password of the user" in await refusal(address)
    wrong = address.replace("gateway@", "gateway:wrong@")
    assert 'the password of the user "gateway" is wrong' in await refusal(wrong)
    right = address.replace("gateway@", f"gateway:{SECRET}@")
    database = await open_database(server_of(right))
    await database.close()
    own_server.stop()
    (own_server.folder / "data" / "standby.signal").touch()
    own_server.start()
    assert "it is a standby, which is read-only" in await refusal(right)
