"""Both ends of a copy between a database file and a database server, each read and written in
batches by its driver.

A batch and the note of how far the copy is are one transaction of the target. As long as there is
such a note, no gateway starts on it (`gateway.store.migrations`).
"""
# Names of tables and columns are those of the schema.
# ruff: noqa: S608

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, Protocol

import asyncpg
from sqlalchemy import Boolean, Connection, LargeBinary, Table, Text, insert

from gateway.config.cluster import DatabaseServer
from gateway.store.database import Database
from gateway.store.errors import StoreError
from gateway.store.migrations import COPY_NOTE, MIGRATIONS
from gateway.store.open import open_database
from gateway.store.postgresql.database import PostgresqlDatabase
from gateway.store.postgresql.partitions import Day, create_listed
from gateway.store.postgresql.schema import spending
from gateway.store.records import sanitize_text
from gateway.store.schema import metadata

Row = Sequence[Any]
Rows = list[Row]

TABLES: Final = tuple(table for table in metadata.sorted_tables if table.name != "settings")
"""The tables without `settings`, which is copied last; a table comes after those that it
references."""

_BATCH: Final = 5000
_BATCH_OF_BODIES: Final = 8  # rows that have several bodies of megabytes
_TIMEOUT: Final = 3600.0


class Source(Protocol):
    """One consistent state of a database."""

    async def rows(self, query: str) -> Rows:
        """Yields all rows of a query."""

    def batches(self, table: Table, after: Row | None) -> AsyncIterator[Rows]:
        """Batches of a table's rows in the order of the primary key, after the key `after`."""


class Target(Protocol):
    @property
    def database(self) -> Database: ...

    async def rows(self, query: str) -> Rows: ...

    async def write(self, table: Table, rows: Rows, note: str) -> None:
        """Add rows and replace the note of the progress, in one transaction."""

    async def execute(self, statement: str) -> None: ...

    async def add_spending(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Fill the table of spending, so that budgets continue."""

    async def prepare_days(self, days: Iterable[int]) -> None:
        """Create partitions of the request log for these days, counted from the Unix epoch."""


def key_of(table: Table) -> list[str]:
    return [column.name for column in table.primary_key.columns]


def batch_size(table: Table) -> int:
    bodies = [each for each in table.columns if isinstance(each.type, LargeBinary)]
    return _BATCH_OF_BODIES if any("digest" not in each.name for each in bodies) else _BATCH


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


def _selection(table: Table, after: Row | None, marks: Iterable[str]) -> str:
    key = _quoted(key_of(table))
    later = "" if after is None else f" WHERE ({key}) > ({', '.join(marks)})"
    return f'SELECT {_quoted(table.c.keys())} FROM "{table.name}"{later} ORDER BY {key}'


class FileSource:
    """A database file; the caller has locked its state directory."""

    def __init__(self, path: Path) -> None:
        url = f"{path.absolute().as_uri()}?mode=ro"
        self._connection = sqlite3.connect(
            url, uri=True, isolation_level=None, check_same_thread=False
        )

    async def rows(self, query: str) -> Rows:
        return await asyncio.to_thread(lambda: self._connection.execute(query).fetchall())

    async def batches(self, table: Table, after: Row | None) -> AsyncIterator[Rows]:
        query = _selection(table, after, "?" * len(after or ()))
        cursor = await asyncio.to_thread(self._connection.execute, query, tuple(after or ()))
        size = batch_size(table)
        while batch := await asyncio.to_thread(cursor.fetchmany, size):
            yield batch

    def close(self) -> None:
        self._connection.close()


class ServerSource:
    """Reads in one transaction, which sees no later commits."""

    def __init__(self, session: asyncpg.Connection) -> None:
        self._session = session

    async def rows(self, query: str) -> Rows:
        return [tuple(row) for row in await self._session.fetch(query)]

    async def batches(self, table: Table, after: Row | None) -> AsyncIterator[Rows]:
        marks = [f"${number}" for number in range(1, len(after or ()) + 1)]
        cursor = await self._session.cursor(_selection(table, after, marks), *(after or ()))
        size = batch_size(table)
        while batch := await cursor.fetch(size):
            yield [tuple(row) for row in batch]


class FileTarget:
    def __init__(self, database: Database) -> None:
        self.database = database

    async def rows(self, query: str) -> Rows:
        async with self.database.reader.connect() as connection:
            return [tuple(row) for row in await connection.exec_driver_sql(query)]

    async def write(self, table: Table, rows: Rows, note: str) -> None:
        marks = ", ".join("?" * len(table.columns))
        insertion = f'INSERT INTO "{table.name}" ({_quoted(table.c.keys())}) VALUES ({marks})'

        def write(cursor: Any) -> None:
            cursor.executemany(insertion, rows)
            cursor.execute("DELETE FROM settings WHERE name = ?", (COPY_NOTE,))
            cursor.execute("INSERT INTO settings VALUES (?, ?)", (COPY_NOTE, note))

        await self.database.write_rows(write)

    async def execute(self, statement: str) -> None:
        await self.database.write_rows(lambda cursor: cursor.execute(statement) and None)

    async def prepare_days(self, days: Iterable[int]) -> None:
        """A file has no partitions."""

    async def add_spending(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Does nothing: with a file, spending is derived from the hourly sums."""


class ServerTarget:
    def __init__(self, database: PostgresqlDatabase, session: asyncpg.Connection) -> None:
        self.database = database
        self._session = session

    async def rows(self, query: str) -> Rows:
        return [tuple(row) for row in await self._session.fetch(query)]

    async def write(self, table: Table, rows: Rows, note: str) -> None:
        converted = _for_server(table, rows)
        async with self._session.transaction():
            await self._session.copy_records_to_table(
                table.name, records=converted, columns=table.c.keys()
            )
            await self._session.execute("DELETE FROM settings WHERE name = $1", COPY_NOTE)
            await self._session.execute("INSERT INTO settings VALUES ($1, $2)", COPY_NOTE, note)

    async def execute(self, statement: str) -> None:
        await self._session.execute(statement)

    async def prepare_days(self, days: Iterable[int]) -> None:
        await create_listed(self.database, map(Day, days))

    async def add_spending(self, rows: Sequence[Mapping[str, Any]]) -> None:
        def write(connection: Connection) -> None:
            connection.execute(spending.delete())
            if rows:
                connection.execute(insert(spending), rows)

        await self.database.write(write)


def _for_server(table: Table, rows: Rows) -> Iterable[Row]:
    """Yields rows of a file as a server takes them: SQLite has 0 and 1 as booleans, and NULs in
    texts."""
    converters: list[tuple[int, Callable[[Any], Any]]] = []
    for position, column in enumerate(table.columns):
        if isinstance(column.type, Boolean):
            converters.append((position, bool))
        elif isinstance(column.type, Text):
            converters.append((position, _without_nul))
    for row in rows:
        values = list(row)
        for position, convert in converters:
            if values[position] is not None:
                values[position] = convert(values[position])
        yield values


def _without_nul(text: str) -> str:
    return sanitize_text(text) if "\0" in text else text


@asynccontextmanager
async def file_source(path: Path) -> AsyncIterator[Source]:
    source = FileSource(path)
    try:
        yield source
    finally:
        source.close()


@asynccontextmanager
async def server_source(server: DatabaseServer) -> AsyncIterator[Source]:
    database = PostgresqlDatabase(server)
    try:
        await database.check()
    finally:
        await database.close()
    async with _session(database) as session:
        await _refuse_other_schema(session)
        await refuse_living_replicas(session)
        async with session.transaction(isolation="repeatable_read", readonly=True):
            yield ServerSource(session)
        await refuse_living_replicas(session)


@asynccontextmanager
async def file_target(path: Path) -> AsyncIterator[Target]:
    database = await open_database(path, while_copying=True)
    try:
        yield FileTarget(database)
    finally:
        await database.close()


@asynccontextmanager
async def server_target(server: DatabaseServer) -> AsyncIterator[Target]:
    await (await open_database(server, while_copying=True)).close()
    # Sums over all rows take longer than a request would wait.
    database = PostgresqlDatabase(server.model_copy(update={"timeout": _TIMEOUT}))
    try:
        async with _session(database) as session:
            await refuse_living_replicas(session)
            yield ServerTarget(database, session)
    finally:
        await database.close()


@asynccontextmanager
async def _session(database: PostgresqlDatabase) -> AsyncIterator[asyncpg.Connection]:
    session = await database.connect(command_timeout=_TIMEOUT)
    try:
        yield session
    finally:
        await session.close(timeout=5)


async def _refuse_other_schema(session: asyncpg.Connection) -> None:
    if await session.fetchval("SELECT to_regclass('settings')") is None:
        raise StoreError("the database server's database is not a gateway's")
    query = "SELECT value FROM settings WHERE name = 'schema_version'"
    if (schema := await session.fetchval(query)) != str(len(MIGRATIONS)):
        raise StoreError(
            f"the database server's database has schema {schema}, this release {len(MIGRATIONS)}:"
            " use that release, or start this one once"
        )
    if await session.fetchval("SELECT 1 FROM settings WHERE name = $1", COPY_NOTE):
        raise StoreError("the database server's database is itself a copy that was interrupted")


async def refuse_living_replicas(session: asyncpg.Connection) -> None:
    """Raises StoreError if a gateway uses the database, or may still come back to it."""
    names = await session.fetch(
        "SELECT name FROM replicas WHERE heartbeat_at + expiry_us"
        " > extract(epoch FROM clock_timestamp()) * 1000000 ORDER BY name"
    )
    if names:
        raise StoreError(
            "the database server is used by the replicas "
            f"{', '.join(name for (name,) in names[:5])}: stop them first; one that was killed is"
            " waited for until its `replica.expiry` has passed"
        )
