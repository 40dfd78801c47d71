"""The ledger's database: opened, checked, migrated, closed. It must not know what the rows mean.

Everything is written by `write`, one transaction after the other, through one connection;
`reader` cannot write. With one way for both, readers would fail with "database is locked".
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeVar

from sqlalchemy import Connection, Dialect
from sqlalchemy.engine.interfaces import DBAPICursor
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from gateway.store import sqlite
from gateway.store.driver import driver_cursor
from gateway.store.errors import StoreError
from gateway.store.migrations import migrate

T = TypeVar("T")


class Writer(Protocol):
    """What a kind of database must offer to be written."""

    @property
    def dialect(self) -> Dialect: ...
    async def write(self, work: Callable[[Connection], T]) -> T: ...
    async def write_rows(self, work: Callable[[DBAPICursor], T]) -> T: ...
    async def check(self) -> None: ...
    async def copy(self, version: int) -> None: ...
    async def close(self) -> None: ...


class Database:
    """One ledger. `reader` is for whoever only looks; its rows are whole commits."""

    def __init__(self, writer: Writer, reader: AsyncEngine) -> None:
        self._writer = writer
        self.reader = reader

    @classmethod
    async def open(
        cls, path_or_url: str | Path, *, clock_ns: Callable[[], int] = time.time_ns
    ) -> Database:
        """Open a ledger and bring its schema up to date; a missing file is made, mode 0600.

        `path_or_url` is a path, or the address of a server (`postgresql+asyncpg://…`). Raises
        StoreError with what to do: a damaged file, a newer schema, a migration that failed, an
        address that cannot be used. On any error nothing stays open.
        """
        if isinstance(path_or_url, str) and "://" in path_or_url:
            database = _on_server(path_or_url)
        else:
            database = _in_file(Path(path_or_url))
        try:
            await database._writer.check()
            await migrate(database._writer, clock_ns() // 1000)
        except BaseException as fault:
            await database.close()
            if isinstance(fault, SQLAlchemyError | OSError):
                raise StoreError(f"the database cannot be opened: {fault}") from fault
            raise
        return database

    @property
    def dialect(self) -> Dialect:
        return self._writer.dialect

    async def write(self, work: Callable[[Connection], T]) -> T:
        """Do `work` in one transaction and answer what it returns; if it raises, nothing happened.

        It runs where it may block, so it must not touch what belongs to the event loop. Cancelled
        while it waits, it may happen or not, whole in either case.
        """
        return await self._writer.write(work)

    async def write_rows(self, work: Callable[[DBAPICursor], T]) -> T:
        """The same for work that runs compiled statements through the driver's own cursor."""
        return await self._writer.write_rows(work)

    async def close(self) -> None:
        """Give everything back; a file is left whole, without a write-ahead log beside it."""
        await self.reader.dispose()
        await self._writer.close()


class _ServerWriter:
    """A writer over a database server's asynchronous driver; the server looks after itself."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine
        self.dialect = engine.dialect

    async def write(self, work: Callable[[Connection], T]) -> T:
        async with self._engine.begin() as connection:
            return await connection.run_sync(work)

    async def write_rows(self, work: Callable[[DBAPICursor], T]) -> T:
        def through_driver(connection: Connection) -> T:
            with driver_cursor(connection) as cursor:
                return work(cursor)

        return await self.write(through_driver)

    async def check(self) -> None:
        """Nothing to check: a server does not start on damaged files."""

    async def copy(self, version: int) -> None:
        """Nothing to copy: a server's backups are its operator's."""

    async def close(self) -> None:
        await self._engine.dispose()


def _in_file(path: Path) -> Database:
    try:
        sqlite.create_file(path)
    except OSError as fault:
        raise StoreError(f"the database {path} cannot be made: {fault.strerror}") from fault
    return Database(sqlite.SqliteWriter(path), sqlite.open_reader(path))


def _on_server(address: str) -> Database:
    try:
        engine = create_async_engine(address, pool_size=1, max_overflow=0, hide_parameters=True)
        if engine.dialect.name == "sqlite":
            raise StoreError("an SQLite database is named by its path, not by an address")
        reader = create_async_engine(
            address, hide_parameters=True, execution_options={"postgresql_readonly": True}
        )
    except (SQLAlchemyError, ImportError) as fault:
        raise StoreError(f"the database address cannot be used: {fault}") from fault
    return Database(_ServerWriter(engine), reader)
