"""What the gateway asks of a database, whichever there is; `store/open.py` chooses.

Everything is written by `write` and `write_rows`, one transaction after the other, through one
connection; `reader` cannot write. If both could, readers would fail with "database is locked".
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, TypeVar

from sqlalchemy import ColumnElement, Connection, Executable, FromClause, Table
from sqlalchemy.engine.interfaces import DBAPICursor
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.store.errors import StoreError
from gateway.store.log.entry_writer import EntryWriter
from gateway.store.migrations import MigrationDialect
from gateway.store.records import Discrepancy, LogEntry
from gateway.store.schema import requests

if TYPE_CHECKING:  # only with a server are they imported
    from gateway.store.postgresql.locks import AdvisoryLocks
    from gateway.store.postgresql.spool import Spool

T = TypeVar("T")


class Writer(Protocol):
    """A database, or what adds something to each of its transactions."""

    async def write(self, work: Callable[[Connection], T]) -> T: ...
    def lock_table(self, connection: Connection, table: Table) -> None: ...


class Connections(Protocol):
    """Connections that cannot write; each of their statements sees complete commits."""

    def connect(self) -> AbstractAsyncContextManager[AsyncConnection]: ...
    async def dispose(self) -> None: ...


class Reader(Protocol):
    """A database, or one connection of it that only reads."""

    @property
    def reader(self) -> Connections: ...


class FreePages(NamedTuple):
    """The number of unused pages of a file. `can_shrink`: whether they can be cut off."""

    free: int
    pages: int
    page_size: int
    can_shrink: bool


class Database(ABC):
    """One database. Methods with a body here do what is right if one process has it to itself."""

    reader: Connections
    migrations: ClassVar[MigrationDialect]
    is_shared: ClassVar[bool] = False
    """Whether replicas use it at the same time."""
    has_model_indexes: ClassVar[bool] = False
    """Whether requests are indexed by the catalog's model and by other names that clients sent."""
    flush: Callable[[], Awaitable[None]] | None = None
    """What is awaited before each read, so that it sees what the recorder still keeps."""
    locks: AdvisoryLocks | None = None
    """Locks that replicas take from each other; None if there is one process."""

    def __init__(self) -> None:
        self.changing = asyncio.Lock()
        """Held while rows that are in memory too are changed, or are read to be put there: what was
        read before a change is never put over it."""

    @abstractmethod
    async def write(self, work: Callable[[Connection], T]) -> T:
        """Run `work` in one transaction and return its result; if it raises, nothing is changed.

        It may run in another thread, so it must not touch what belongs to the event loop. If the
        caller is cancelled, it may happen or not, as a whole in either case.
        """

    @abstractmethod
    async def write_rows(self, work: Callable[[DBAPICursor], T]) -> T:
        """Run `work`, of compiled statements, in one transaction, as `write` does, through the
        driver's own cursor."""

    @abstractmethod
    def entry_writer(
        self, boot_id: str, spool: Spool | None, committed: Callable[[Sequence[LogEntry]], None]
    ) -> EntryWriter:
        """Make what writes the recorder's entries. A writer that keeps entries in the `spool` calls
        `committed` with those that it has written later."""

    async def change_schema(self, work: Callable[[Connection], T]) -> T:
        """Run `work` as `write` does, for however long it takes, and while no other replica changes
        the schema."""
        return await self.write(work)

    def lock_table(self, connection: Connection, table: Table) -> None:
        """Let nobody else change the table until the transaction ends."""

    @abstractmethod
    def read_within(self, seconds: float) -> AbstractAsyncContextManager[AsyncConnection]:
        """A connection that reads; `seconds` after the block began its statement is cancelled and
        QueryTimeout raised."""

    @abstractmethod
    def snapshot(self, seconds: float) -> AbstractAsyncContextManager[AsyncConnection]:
        """A connection all of whose reads see what was committed before the first of them."""

    @abstractmethod
    async def check(self) -> None:
        """Raises DamagedDatabase for a file that is no database or has inconsistent pages, and
        StoreError for a server that cannot be used."""

    async def recover(self) -> None:
        """Write what an earlier run has left beside a file. Raises StoreError."""

    async def find_damage(self, connection: AsyncConnection) -> tuple[str, ...]:
        """Returns what the database reports of itself after it has read everything."""
        return ()

    async def wrong_sums(self, connection: AsyncConnection, limit: int) -> Sequence[Discrepancy]:
        """Sums besides those of tokens and hours that do not add up, at most `limit` of a kind."""
        return ()

    @abstractmethod
    def is_row_error(self, error: Exception) -> bool:
        """Whether a row is the cause, not the database: trying it again would fail every time."""

    def is_temporary(self, error: Exception) -> bool:
        """Whether trying again later can succeed as it is."""
        return False

    @abstractmethod
    def opening_error(self, error: Exception) -> StoreError:
        """Tells what is wrong with the database, and what to do."""

    def left_by_earlier_boots(self, boot_id: str) -> ColumnElement[bool]:
        """The requests of processes that have ended; `boot_id` is this one's."""
        return requests.c.boot_id != boot_id

    def sums_of_days(self, since: int, until: int) -> FromClause | None:
        """The sums of a span of Unix hours, with the columns of `usage_hours`, from those of whole
        days where these will do; None if there are none of days."""
        return None

    async def add_up_days(self) -> None:
        """Add up the sums of days that are over. Raises Busy."""

    async def delete_past_spending(self, now_us: int) -> None:
        """Delete what end users and sessions have spent on days that are over."""

    async def has_writers_before(self, schema: int) -> bool:
        """Whether replicas are running that know only an earlier schema."""
        return False

    async def create_days(self, now_us: int) -> list[str]:
        """Create the parts of the request log for today and the next days; returns the dates of
        those that did not exist."""
        return []

    async def drop_days_before(self, time_us: int) -> int:
        """Drop whole days of the request log that end before; returns how many requests they
        had."""
        return 0

    @abstractmethod
    async def delete_requests(self, before_us: int, batch: int) -> int:
        """Delete up to `batch` requests that started before and have ended, attempts and searches
        included; returns their number."""

    async def copy(self, version: int) -> None:
        """Copy a file next to it, named after its schema; an older copy is replaced."""

    async def free_pages(self) -> FreePages | None:
        """Counts the free pages; None if the database looks after its space itself."""
        return None

    async def shrink(self) -> None:
        """Cut some free pages from the end of the file."""

    @abstractmethod
    async def close(self) -> None:
        """Close all connections; a file is left complete, without a write-ahead log."""


async def fetch(database: Reader, query: Executable) -> Sequence[Any]:
    """Returns all rows of a query."""
    async with database.reader.connect() as connection:
        return (await connection.execute(query)).all()


async def fetch_one(database: Reader, query: Executable) -> Any:
    """Returns the first row of a query; None without one."""
    async with database.reader.connect() as connection:
        return (await connection.execute(query)).first()


async def fetch_value(database: Reader, query: Executable) -> Any:
    """Returns the first value of the first row; None without a row."""
    async with database.reader.connect() as connection:
        return await connection.scalar(query)


async def execute(database: Writer, *statements: Executable) -> None:
    """Runs the statements in one transaction."""

    def work(connection: Connection) -> None:
        for statement in statements:
            connection.execute(statement)

    await database.write(work)


@contextmanager
def driver_cursor(connection: Connection) -> Iterator[DBAPICursor]:
    """The driver's own cursor, independent of the connection's transaction; its errors are raised
    as SQLAlchemy's."""
    cursor = connection.connection.cursor()
    try:
        yield cursor
    except connection.dialect.loaded_dbapi.Error as error:
        raise DBAPIError.instance(
            None, None, error, connection.dialect.loaded_dbapi.Error, dialect=connection.dialect
        ) from error
    finally:
        cursor.close()
