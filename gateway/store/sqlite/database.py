"""A database in one file."""

from __future__ import annotations

import asyncio
import logging
import os
import shlex
import shutil
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy import URL, Connection, FromClause, create_engine, delete, event, select
from sqlalchemy.dialects.sqlite.base import SQLiteCompiler
from sqlalchemy.engine.interfaces import DBAPICursor
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, ProgrammingError
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine

from gateway.config.file_errors import describe_owner, file_error_reason
from gateway.store.database import Database, FreePages, driver_cursor
from gateway.store.errors import DamagedDatabase, QueryTimeout, StoreError
from gateway.store.log.pages import first_id
from gateway.store.migrations import SQLITE
from gateway.store.records import ExchangeState, LogEntry
from gateway.store.schema import requests
from gateway.store.sqlite.file import create_file
from gateway.store.sqlite.journal import JOURNAL_END, journal_of
from gateway.store.sqlite.journal_recovery import recover
from gateway.store.sqlite.writer import SqliteWriter

if TYPE_CHECKING:  # only with a database server is it imported
    from gateway.store.postgresql.spool import Spool

T = TypeVar("T")

_WRITER_TIMEOUT = 1.0  # seconds for another program's lock; the recorder tries again by itself
_READER_TIMEOUT = 5.0
_READERS = 4
_CLOCK_INTERVAL = 20_000  # virtual instructions between two checks of the clock: 1 ms
_PART = ".part"  # of a copy that is not complete
_COPIES = 3  # that are kept, of those before migrations
_SHRINK_PAGES = 25  # of one step: a commit that waits for it takes no longer than without

_PRAGMAS = (
    "PRAGMA auto_vacuum = INCREMENTAL",  # of a new file: before it has tables
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = FULL",
    "PRAGMA foreign_keys = ON",
    "PRAGMA journal_size_limit = 67108864",
)

_log = logging.getLogger(__name__)

# The driver looks up an adapter for every value that is not exactly a text or a number, None and
# booleans included, and takes long where it finds none. These take a tenth of that; `{}.get`
# returns None for None without a Python call, which its type does not say.
sqlite3.register_adapter(type(None), {}.get)  # type: ignore[arg-type]
sqlite3.register_adapter(bool, int)
sqlite3.register_adapter(ExchangeState, str.__str__)


class SqliteDatabase(Database):
    """One file. A single connection, in a thread of its own, does every write and every checkpoint:
    SQLite before 3.51.3 can corrupt a write-ahead log that two connections checkpoint. Every method
    is one call in the thread, as each further one would cost more than a row.
    """

    migrations = SQLITE

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        try:
            if path.is_file() and not path.stat().st_size:
                raise DamagedDatabase(f"{path} is empty (0 bytes): {self._restore_hint()}")
            create_file(path)
        except OSError as error:
            reason = file_error_reason(error, path)
            raise StoreError(f"the database {path} cannot be opened: {reason}") from error
        self.reader = _Reader(self)
        self._closed = False
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="ledger")
        self._engine = create_engine(
            _file_url("sqlite+pysqlite", path, "rw"),
            pool_size=1,
            max_overflow=0,
            **_engine_options(_WRITER_TIMEOUT),
        )
        self._connection: Connection | None = None

        @event.listens_for(self._engine, "connect")
        def prepare(connection: sqlite3.Connection, _record: object) -> None:
            for pragma in _PRAGMAS:
                connection.execute(pragma)

        @event.listens_for(self._engine, "begin")
        def begin(connection: Connection) -> None:
            connection.exec_driver_sql("BEGIN IMMEDIATE")

    async def write(self, work: Callable[[Connection], T]) -> T:
        def run() -> T:
            connection = self._connect()
            with connection.begin():
                return work(connection)

        return await self._run_in_thread(run)

    async def write_rows(self, work: Callable[[DBAPICursor], T]) -> T:
        def run() -> T:
            with driver_cursor(self._connect()) as cursor:
                cursor.execute("BEGIN IMMEDIATE")
                try:
                    result = work(cursor)
                    cursor.execute("COMMIT")
                finally:
                    # After some errors SQLite has rolled back by itself.
                    if cursor.connection.in_transaction:
                        cursor.execute("ROLLBACK")
                return result

        return await self._run_in_thread(run)

    @asynccontextmanager
    async def read_within(self, seconds: float) -> AsyncIterator[AsyncConnection]:
        async with self.reader.connect() as connection:
            try:
                await _set_deadline(connection, time.monotonic() + seconds)
                yield connection
            except DBAPIError as error:
                if getattr(error.orig, "sqlite_errorcode", None) != sqlite3.SQLITE_INTERRUPT:
                    raise
                raise QueryTimeout(seconds) from error
            finally:
                if not connection.invalidated:
                    await _set_deadline(connection, None)

    def entry_writer(
        self, boot_id: str, spool: Spool | None, committed: Callable[[Sequence[LogEntry]], None]
    ) -> SqliteWriter:
        return SqliteWriter(self, boot_id, journal_of(self.path), self._thread)

    @asynccontextmanager
    async def snapshot(self, seconds: float) -> AsyncIterator[AsyncConnection]:
        async with self.reader.connect() as connection:
            await connection.exec_driver_sql("BEGIN")
            try:
                yield connection
            finally:
                await connection.rollback()

    async def check(self) -> None:
        await self._run_in_thread(self._check)

    async def find_damage(self, connection: AsyncConnection) -> tuple[str, ...]:
        findings = (await connection.exec_driver_sql("PRAGMA integrity_check")).scalars().all()
        return tuple(finding for finding in findings if finding != "ok")

    def is_row_error(self, error: Exception) -> bool:
        if isinstance(error, DBAPIError) and error.connection_invalidated:
            return False
        kinds = DataError | IntegrityError | ProgrammingError | UnicodeError | OverflowError
        return isinstance(error, kinds)

    def opening_error(self, error: Exception) -> StoreError:
        cause = error.orig if isinstance(error, DBAPIError) else error
        return StoreError(f"the database cannot be opened: {cause}")

    async def delete_requests(self, before_us: int, batch: int) -> int:
        # Attempts and searches refer to their request and are deleted with it.
        expired = (
            select(requests.c.id)
            .where(
                requests.c.id < first_id(before_us),
                requests.c.started_at < before_us,
                requests.c.state != ExchangeState.RUNNING,
            )
            .order_by(requests.c.id)
            .limit(batch)
        )
        statement = delete(requests).where(requests.c.id.in_(expired.scalar_subquery()))
        return await self.write(lambda connection: connection.execute(statement).rowcount)

    async def copy(self, version: int) -> None:
        await self._run_in_thread(lambda: self._copy(f"{self.path.name}.schema-{version}.copy"))

    async def free_pages(self) -> FreePages:
        async with self.reader.connect() as connection:
            names = ("freelist_count", "page_count", "page_size", "auto_vacuum")
            values = [await connection.exec_driver_sql(f"PRAGMA {name}") for name in names]
            free, pages, size, mode = (int(value.scalar_one()) for value in values)
        return FreePages(free, pages, size, bool(mode))

    async def shrink(self) -> None:
        # As a script, and outside of a transaction: the driver steps other statements only once.
        script = f"PRAGMA incremental_vacuum({_SHRINK_PAGES})"
        await self._run_in_thread(lambda: self._connect().connection.cursor().executescript(script))

    async def close(self) -> None:
        await self.reader.dispose()
        if not self._closed:
            self._closed = True
            await self._run_in_thread(self._close)
            self._thread.shutdown()

    async def recover(self) -> None:
        await recover(self, journal_of(self.path))

    async def _run_in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _connect(self) -> Connection:
        # Kept between transactions: fetching it from the pool costs as much as a small batch.
        if self._connection is None or self._connection.invalidated:
            self._connection = self._engine.connect()
        return self._connection

    def _run(self, statement: str, *parameters: str) -> Any:
        """Runs one statement outside of any transaction; returns the first field of its first
        row."""
        row = self._connect().connection.cursor().execute(statement, parameters).fetchone()
        return row and row[0]

    def _check(self) -> None:
        try:
            finding = self._run("PRAGMA quick_check(1)")
        except (sqlite3.Error, DBAPIError) as error:
            cause = error.orig if isinstance(error, DBAPIError) else error
            if isinstance(cause, sqlite3.OperationalError):
                # A command as another user has created files that this process cannot write.
                others = [each for each in self._files() if not os.access(each, os.R_OK | os.W_OK)]
                reason = "".join(f"; {describe_owner(file)}" for file in others)
                raise StoreError(f"{self.path} cannot be opened: {cause}{reason}") from error
            finding = str(cause)
        if finding != "ok":
            raise DamagedDatabase(f"{self.path} is damaged ({finding}): {self._restore_hint()}")

    def _files(self) -> list[Path]:
        """The database's files that exist."""
        return [
            file
            for end in ("", "-wal", "-shm", JOURNAL_END)
            if (file := self.path.with_name(f"{self.path.name}{end}")).exists()
        ]

    def _restore_hint(self) -> str:
        """Tells what to do, as commands if there is a backup next to the file."""
        folder, name = self.path.parent, self.path.name
        away = folder / f"{name}.damaged"
        move = f"mkdir -p {_quoted(away)} && mv {_quoted(*self._files())} {_quoted(away)}"
        backups = [
            each
            for each in folder.glob(f"{name}.*")
            if each.is_file() and each.suffix != _PART and each.stat().st_size
        ]
        if not backups:
            return (
                f"there is no backup next to it. Move it away ({move}) and put a backup in its "
                "place; without a file there, the next start creates an empty database"
            )
        newest = max(backups, key=lambda each: each.stat().st_mtime)
        return (
            f"the newest backup next to it is {newest.name}. To restore that, stop the gateway and "
            f"run: {move} && cp -p {_quoted(newest, self.path)}"
        )

    def _copy(self, name: str) -> None:
        # Under another name first, so that a copy with the right name is always complete.
        draft, copy = self.path.with_name(f"{name}{_PART}"), self.path.with_name(name)
        draft.unlink(missing_ok=True)
        size, free = self.path.stat().st_size, shutil.disk_usage(self.path.parent).free
        if free < 2 * size:  # the copy, and what the migration writes
            raise StoreError(
                f"the database is copied before its schema changes, and {self.path.parent} has too"
                f" little space: {2 * size / 2**20:,.0f} MiB are needed, {free / 2**20:,.0f} free"
            )
        create_file(draft)
        self._run("VACUUM INTO ?", str(draft))
        draft.replace(copy)
        _log.info("the database was copied to %s before its schema changes", copy)
        copies = self.path.parent.glob(f"{self.path.name}.schema-*.copy")
        for old in sorted(copies, key=lambda each: each.stat().st_mtime)[:-_COPIES]:
            old.unlink(missing_ok=True)

    def _close(self) -> None:
        try:
            if self._connection is not None:
                self._run("PRAGMA wal_checkpoint(TRUNCATE)")
                self._connection.close()
        except sqlite3.OperationalError as error:
            _log.warning("%s keeps its write-ahead log until the next start: %s", self.path, error)
        finally:
            self._engine.dispose()


class _Reader:
    """Connections that only read, and see what the recorder was given before."""

    def __init__(self, database: SqliteDatabase) -> None:
        self._database = database
        self._engine = create_async_engine(
            _file_url("sqlite+aiosqlite", database.path, "ro"),
            pool_size=_READERS,
            max_overflow=0,
            **_engine_options(_READER_TIMEOUT),
        )
        self._engine.dialect.statement_compiler = _Compiler
        self.dispose = self._engine.dispose

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[AsyncConnection]:
        if self._database.flush is not None:
            await self._database.flush()
        async with self._engine.connect() as connection:
            yield connection


async def _set_deadline(connection: AsyncConnection, deadline: float | None) -> None:
    driver: Any = (await connection.get_raw_connection()).driver_connection

    def is_late() -> bool:
        return deadline is not None and time.monotonic() > deadline

    await driver.set_progress_handler(None if deadline is None else is_late, _CLOCK_INTERVAL)


def _quoted(*paths: Path) -> str:
    return shlex.join(map(str, paths))


class _Compiler(SQLiteCompiler):
    """Renders the hints that a query has for this dialect (`INDEXED BY …`), which SQLAlchemy
    leaves out."""

    def get_from_hint_text(self, table: FromClause, text: str | None) -> str | None:
        return text


def _file_url(driver: str, path: Path, mode: str) -> URL:
    return URL.create(
        driver, database=path.absolute().as_uri(), query={"mode": mode, "uri": "true"}
    )


def _engine_options(timeout: float) -> dict[str, Any]:
    # Without an isolation level the driver sends no BEGIN. Its BEGIN would be a deferred one: the
    # first write can fail immediately, whatever the timeout.
    return {
        "connect_args": {"isolation_level": None, "timeout": timeout},
        "hide_parameters": True,
    }
