"""Entries of the request log on this machine's disk, while the database server cannot be reached.

An SQLite file: what `append` returned for survives the end of the process and of the machine. Each
entry is a JSON array of the values of its records, whose fields the file names.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

import orjson

from gateway.config.file_errors import file_error_reason
from gateway.store.errors import StoreError
from gateway.store.log.batch import sanitize_entry
from gateway.store.log.entry_values import ADVICE, FIELDS, entry_of, is_of_later_release, values_of
from gateway.store.records import LogEntry
from gateway.store.sqlite.file import create_file

T = TypeVar("T")

SPOOL_NAME: Final = "spool.db"

_APPLICATION: Final = 0x67777370  # "gwsp"
_PAGE: Final = 4096
_MIN_PAGES: Final = 16
_FULL: Final = 0.9
"""The share of its size at which it counts as full: the rest is for the settlements of requests
that are running."""

_PRAGMAS: Final = (
    f"PRAGMA page_size = {_PAGE}",
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = FULL",
    "PRAGMA journal_size_limit = 1048576",
)


class Spooled(NamedTuple):
    """Entries, oldest first, and the number of the last one (0: none)."""

    entries: list[LogEntry]
    last: int


class Spool:
    """The file. Its calls run one after the other, in a thread of their own.

    `count` is the number of entries in it, `size` its bytes in use, `since` the
    time at which the oldest came (Unix µs).
    """

    def __init__(
        self, path: Path, size: int, *, clock_ns: Callable[[], int] = time.time_ns
    ) -> None:
        """`size` in bytes is that of the file; its write-ahead log takes up to 5 MiB more."""
        self.path = path
        self._clock_ns = clock_ns
        self.count = 0
        self.size = 0
        self.since: int | None = None
        self._limit = max(size // _PAGE, _MIN_PAGES)
        self._fields: list[list[str]] = FIELDS
        self._connection: sqlite3.Connection | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="spool")

    @property
    def seconds(self) -> float:
        """Returns for how long the oldest entry has waited, 0 if none waits."""
        since = self.since
        return 0.0 if since is None else max(0.0, (self._clock_ns() // 1000 - since) / 1e6)

    @property
    def is_full(self) -> bool:
        return self.size > self._limit * _PAGE * _FULL

    async def open(self) -> None:
        """Raises StoreError for a file that is not ours, is damaged, or is of a later release."""
        try:
            await self._run(self._open)
        except sqlite3.Error as error:
            raise StoreError(f"{self.path} cannot be read: {error}. {ADVICE}") from error
        except OSError as error:
            reason = file_error_reason(error, self.path)
            raise StoreError(f"{self.path} cannot be opened: {reason}") from error

    async def append(self, entries: Sequence[LogEntry], boot_id: str) -> None:
        """Appends entries; rows that have no boot's id get this one. Raises sqlite3.Error if the
        disk or the file is full: then none of them is in it."""
        await self._run(lambda: self._append(entries, boot_id))

    async def first(self, count: int) -> Spooled:
        return await self._run(lambda: self._first(count))

    async def remove(self, last: int) -> None:
        """Remove all entries up to this number."""
        await self._run(lambda: self._remove(last))

    async def close(self) -> None:
        await self._run(self._close)
        self._thread.shutdown()

    async def _run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _open(self) -> None:
        create_file(self.path)
        self._connection = connection = sqlite3.connect(
            self.path, isolation_level=None, check_same_thread=False
        )
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (objects,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if objects and application != _APPLICATION:
            raise StoreError(f"{self.path} is a file of another program. {ADVICE}")
        for pragma in _PRAGMAS:
            connection.execute(pragma)
        connection.execute(f"PRAGMA max_page_count = {self._limit}")
        if not objects:
            self._create(connection)
        (finding,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        if finding != "ok":
            raise StoreError(f"{self.path} is damaged ({finding}). {ADVICE}")
        (fields,) = connection.execute("SELECT fields FROM format").fetchone()
        self._fields = orjson.loads(fields)
        self._count()
        if not self.count:
            self._set_fields(connection)
        elif is_of_later_release(self._fields):
            raise StoreError(f"{self.path} is of a later release: start that one, it empties it")

    def _create(self, connection: sqlite3.Connection) -> None:
        connection.execute("BEGIN")
        connection.execute(f"PRAGMA application_id = {_APPLICATION}")
        connection.execute("CREATE TABLE format (fields TEXT NOT NULL)")
        connection.execute("INSERT INTO format VALUES (?)", (orjson.dumps(FIELDS).decode(),))
        connection.execute(
            "CREATE TABLE entries (number INTEGER PRIMARY KEY AUTOINCREMENT,"
            " at INTEGER NOT NULL, entry BLOB NOT NULL)"
        )
        connection.execute("COMMIT")

    def _set_fields(self, connection: sqlite3.Connection) -> None:
        if self._fields != FIELDS:
            self._fields = FIELDS
            connection.execute("UPDATE format SET fields = ?", (orjson.dumps(FIELDS).decode(),))

    def _count(self) -> None:
        connection = self._opened()
        query = "SELECT count(*), min(at) FROM entries"
        self.count, self.since = connection.execute(query).fetchone()
        self._measure()

    def _measure(self) -> None:
        connection = self._opened()
        pages, free = (
            connection.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("page_count", "freelist_count")
        )
        self.size = (pages - free) * _PAGE

    def _append(self, entries: Sequence[LogEntry], boot_id: str) -> None:
        connection, at = self._opened(), self._clock_ns() // 1000
        rows = [(at, _encode(entry, boot_id)) for entry in entries]
        connection.execute("BEGIN IMMEDIATE")
        try:
            connection.executemany("INSERT INTO entries (at, entry) VALUES (?, ?)", rows)
            connection.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):  # after some errors it is rolled back already
                connection.execute("ROLLBACK")
            raise
        self.count += len(rows)
        if self.since is None:
            self.since = at
        self._measure()

    def _first(self, count: int) -> Spooled:
        query = "SELECT number, entry FROM entries ORDER BY number LIMIT ?"
        rows = self._opened().execute(query, (count,)).fetchall()
        entries = [entry_of(orjson.loads(entry), self._fields) for _, entry in rows]
        return Spooled(entries, rows[-1][0] if rows else 0)

    def _remove(self, last: int) -> None:
        connection = self._opened()
        self.count -= connection.execute("DELETE FROM entries WHERE number <= ?", (last,)).rowcount
        if self.count:
            query = "SELECT at FROM entries ORDER BY number LIMIT 1"
            (self.since,) = connection.execute(query).fetchone()
        else:
            self.since = None
            connection.execute("VACUUM")  # of nothing
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            self._set_fields(connection)
        self._measure()

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _opened(self) -> sqlite3.Connection:
        if self._connection is None:
            raise sqlite3.ProgrammingError(f"{self.path} is closed")
        return self._connection


def _encode(entry: LogEntry, boot_id: str) -> bytes:
    entry = sanitize_entry(entry)
    if not entry.row.boot_id:
        entry = entry._replace(row=entry.row._replace(boot_id=boot_id))
    return orjson.dumps(values_of(entry))
