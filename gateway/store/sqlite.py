"""SQLite's own ways: one file, one writing connection in a thread, readers that cannot write.

That one connection does every write and every checkpoint: SQLite before 3.51.3 can corrupt a
write-ahead log that two connections checkpoint. A transaction is one visit to the thread, for
every further visit would cost more than a row. This room must not know any table.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import URL, Connection, FromClause, create_engine, event
from sqlalchemy.dialects.sqlite.base import SQLiteCompiler
from sqlalchemy.engine.interfaces import DBAPICursor
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from gateway.store.driver import driver_cursor
from gateway.store.errors import DamagedDatabase, StoreError
from gateway.store.records import ExchangeState

_log = logging.getLogger(__name__)

_WRITER_TIMEOUT = 1.0  # seconds for another program's lock; the recorder tries again by itself
_READER_TIMEOUT = 5.0
_READERS = 4

_PRAGMAS = (
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = FULL",
    "PRAGMA foreign_keys = ON",
    "PRAGMA journal_size_limit = 67108864",
)

T = TypeVar("T")

# The driver looks for a way to write every value that is not exactly a text or a number, also for
# nothing and for truth, at length where it finds none. These take a tenth of that; `{}.get` gives
# None for None without a Python call, and its type says less than that.
sqlite3.register_adapter(type(None), {}.get)  # type: ignore[arg-type]
sqlite3.register_adapter(bool, int)
sqlite3.register_adapter(ExchangeState, str.__str__)


class SqliteWriter:
    """The writing connection to one file. Every method visits the thread once, in turn."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._closed = False
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="ledger")
        self._engine = create_engine(
            _address("sqlite+pysqlite", path, "rw"),
            pool_size=1,
            max_overflow=0,
            **_options(_WRITER_TIMEOUT),
        )
        self.dialect = self._engine.dialect
        self._connection: Connection | None = None

        @event.listens_for(self._engine, "connect")
        def prepare(connection: sqlite3.Connection, _record: object) -> None:
            for pragma in _PRAGMAS:
                connection.execute(pragma)

        @event.listens_for(self._engine, "begin")
        def begin(connection: Connection) -> None:
            connection.exec_driver_sql("BEGIN IMMEDIATE")

    async def write(self, work: Callable[[Connection], T]) -> T:
        """One transaction, sure of its lock from the start. Cancelled, it may still happen."""
        return await self._run_in_thread(lambda: self._transact(work))

    async def write_rows(self, work: Callable[[DBAPICursor], T]) -> T:
        """The same for statements that are already compiled, without SQLAlchemy's part of it."""
        return await self._run_in_thread(lambda: self._transact_rows(work))

    async def check(self) -> None:
        """Refuse a file that is no database, or one whose pages contradict each other."""
        await self._run_in_thread(self._check)

    async def copy(self, version: int) -> None:
        """A compact copy beside the file, named after its schema; an older one is replaced."""
        await self._run_in_thread(lambda: self._copy(f"{self.path.name}.schema-{version}.copy"))

    async def close(self) -> None:
        """Leave the file whole, without a write-ahead log. A second time it does nothing."""
        if self._closed:
            return
        self._closed = True
        await self._run_in_thread(self._close)
        self._thread.shutdown()

    async def _run_in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _transact(self, work: Callable[[Connection], T]) -> T:
        connection = self._connected()
        with connection.begin():
            return work(connection)

    def _transact_rows(self, work: Callable[[DBAPICursor], T]) -> T:
        with driver_cursor(self._connected()) as cursor:
            cursor.execute("BEGIN IMMEDIATE")
            try:
                result = work(cursor)
                cursor.execute("COMMIT")
            finally:
                # After some faults SQLite has rolled back by itself.
                if cursor.connection.in_transaction:
                    cursor.execute("ROLLBACK")
            return result

    def _connected(self) -> Connection:
        # Kept between transactions: fetching it from the pool costs as much as a small batch.
        if self._connection is None or self._connection.invalidated:
            self._connection = self._engine.connect()
        return self._connection

    def _run(self, statement: str, *parameters: str) -> Any:
        """One statement outside of any transaction; the first field of its first row."""
        row = self._connected().connection.cursor().execute(statement, parameters).fetchone()
        return row and row[0]

    def _check(self) -> None:
        try:
            finding = self._run("PRAGMA quick_check(1)")
        except (sqlite3.Error, DBAPIError) as fault:
            cause = fault.orig if isinstance(fault, DBAPIError) else fault
            if isinstance(cause, sqlite3.OperationalError):
                raise StoreError(f"{self.path} cannot be opened: {cause}") from fault
            finding = str(cause)
        if finding != "ok":
            raise DamagedDatabase(f"{self.path} is damaged ({finding}): {self._restore_hint()}")

    def _restore_hint(self) -> str:
        copies = self.path.parent.glob(f"{self.path.name}.*.copy")
        newest = max(copies, key=lambda copy: copy.stat().st_mtime, default=None)
        beside = f"the newest copy beside it is {newest}" if newest else "no copy lies beside it"
        return (
            "move it away, with its -wal and -shm files, and put a backup in its place"
            f" ({beside}); without a file there, the next start makes an empty one"
        )

    def _copy(self, name: str) -> None:
        # Under another name first, so that a copy with the right name is always whole.
        draft = self.path.with_name(f"{name}.part")
        draft.unlink(missing_ok=True)
        _make(draft)
        self._run("VACUUM INTO ?", str(draft))
        draft.replace(self.path.with_name(name))

    def _close(self) -> None:
        try:
            if self._connection is not None:
                self._run("PRAGMA wal_checkpoint(TRUNCATE)")
                self._connection.close()
        except sqlite3.OperationalError as fault:
            _log.warning("%s keeps its write-ahead log until the next start: %s", self.path, fault)
        finally:
            self._engine.dispose()


def create_file(path: Path) -> None:
    """Make sure that the file exists; a new one, and all that SQLite puts beside it, is 0600."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    _make(path)


class _Compiler(SQLiteCompiler):
    """Speaks the hints that a query has for this dialect (`INDEXED BY …`) where tables are named;
    SQLAlchemy leaves them out."""

    def get_from_hint_text(self, table: FromClause, text: str | None) -> str | None:
        return text


def open_reader(path: Path) -> AsyncEngine:
    """An engine of read-only connections: each statement sees what was committed before it."""
    engine = create_async_engine(
        _address("sqlite+aiosqlite", path, "ro"),
        pool_size=_READERS,
        max_overflow=0,
        **_options(_READER_TIMEOUT),
    )
    engine.dialect.statement_compiler = _Compiler
    return engine


def _make(path: Path) -> None:
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))


def _address(driver: str, path: Path, mode: str) -> URL:
    return URL.create(
        driver, database=path.absolute().as_uri(), query={"mode": mode, "uri": "true"}
    )


def _options(timeout: float) -> dict[str, Any]:
    # Without an isolation level the driver sends no BEGIN of its own. Its BEGIN is a deferred
    # one, whose first write may fail at once, whatever the patience.
    return {
        "connect_args": {"isolation_level": None, "timeout": timeout},
        "hide_parameters": True,
    }
