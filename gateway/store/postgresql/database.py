"""A PostgreSQL server as database, through asyncpg.

Every wait has an end: the server gives statements and locks up after a while, and where it does not
answer at all, this side gives up its connection a little later.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Any, Final, TypeVar

import asyncpg
from sqlalchemy import (
    URL,
    ColumnElement,
    Connection,
    Dialect,
    FromClause,
    String,
    Table,
    and_,
    event,
    exists,
    literal_column,
    select,
    text,
)
from sqlalchemy.dialects.postgresql.asyncpg import AsyncpgString
from sqlalchemy.engine.interfaces import DBAPICursor
from sqlalchemy.exc import DBAPIError, DisconnectionError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from gateway.config.cluster import DatabaseServer
from gateway.store.database import Database, driver_cursor, fetch_value
from gateway.store.errors import DatabaseUnavailable, QueryTimeout, ServerUnavailable, StoreError
from gateway.store.migrations import POSTGRESQL
from gateway.store.postgresql.connection import (
    connect,
    connect_options,
    password_of,
    server_failure,
)
from gateway.store.postgresql.dimension_spending import delete_past
from gateway.store.postgresql.errors import (
    is_cancelled,
    is_data_error,
    is_temporary,
    is_unavailable,
    opening_error,
    reason_of,
)
from gateway.store.postgresql.integrity import wrong_sums
from gateway.store.postgresql.locks import AdvisoryLocks, lock_migrations, retry_migration
from gateway.store.postgresql.partitions import (
    Day,
    add_up_days,
    create_days,
    delete_default_rows,
    drop_days_before,
    sums_of_days,
)
from gateway.store.postgresql.schema import replicas
from gateway.store.postgresql.spool import Spool
from gateway.store.postgresql.writer import PostgresqlWriter
from gateway.store.records import Discrepancy, LogEntry
from gateway.store.schema import attempts, requests, searches

T = TypeVar("T")

MIN_SERVER_VERSION: Final = 14
"""The first with `idle_session_timeout`, which heartbeats set."""
_GRACE: Final = 1.0  # seconds that a server has to give a statement up by itself
_LOCK_TIMEOUT: Final = 1.2  # seconds for another transaction's lock; deadlocks are found before
_IDLE_IN_TRANSACTION: Final = 20.0  # after which the server ends what a lost replica has begun


class PostgresqlDatabase(Database):
    """One connection writes, a pool reads."""

    migrations = POSTGRESQL
    is_shared = True
    has_model_indexes = True

    def __init__(self, server: DatabaseServer) -> None:
        super().__init__()
        self.server = server
        try:
            self._engine = _engine(server, 1, lock_timeout=_LOCK_TIMEOUT)
            self._pool = _engine(server, server.connections, is_reader=True)
        except (SQLAlchemyError, ImportError, OSError) as error:
            raise StoreError(opening_error(error, server)) from error
        self.reader: _Reader = _Reader(self._pool, server.timeout + _GRACE)
        self._writing = asyncio.Lock()
        self._transactions: set[asyncio.Task[Any]] = set()
        self.locks = AdvisoryLocks(self.connect)

    async def write(self, work: Callable[[Connection], T]) -> T:
        with _availability():
            return await self._write(work, self.server.timeout + _GRACE)

    async def change_schema(self, work: Callable[[Connection], T]) -> T:
        def run(connection: Connection) -> T:
            connection.exec_driver_sql("SET LOCAL statement_timeout = 0")
            lock_migrations(connection)
            return work(connection)

        return await retry_migration(lambda: self._write(run, None))

    def lock_table(self, connection: Connection, table: Table) -> None:
        connection.exec_driver_sql(f"LOCK TABLE {table.name} IN SHARE ROW EXCLUSIVE MODE")

    async def write_rows(self, work: Callable[[DBAPICursor], T]) -> T:
        def run(connection: Connection) -> T:
            with driver_cursor(connection) as cursor:
                return work(cursor)

        return await self.write(run)

    def entry_writer(
        self, boot_id: str, spool: Spool | None, committed: Callable[[Sequence[LogEntry]], None]
    ) -> PostgresqlWriter:
        return PostgresqlWriter(self, self.server, boot_id, spool, committed)

    async def connect(self, command_timeout: float | None = None) -> asyncpg.Connection:
        """A connection of the caller's own, which closes it. `command_timeout`: seconds of each of
        its statements. Raises an error of the driver, or OSError."""
        return await connect(self.server, command_timeout)

    async def _write(self, work: Callable[[Connection], T], seconds: float | None) -> T:
        # To its end, also if the caller is cancelled: otherwise the connection would be lost, and
        # whether it was committed.
        task = asyncio.ensure_future(self._transact(work, seconds))
        self._transactions.add(task)
        task.add_done_callback(self._end_transaction)
        return await asyncio.shield(task)

    async def _transact(self, work: Callable[[Connection], T], seconds: float | None) -> T:
        async with (
            self._writing,
            asyncio.timeout(seconds),
            self._engine.begin() as connection,
        ):
            return await connection.run_sync(work)

    def _end_transaction(self, task: asyncio.Task[Any]) -> None:
        self._transactions.discard(task)
        if not task.cancelled():
            task.exception()  # its caller may be gone

    @asynccontextmanager
    async def read_within(self, seconds: float) -> AsyncIterator[AsyncConnection]:
        limit = max(1, int(seconds * 1000))
        with _availability(seconds):
            if seconds <= 0:
                raise QueryTimeout(seconds)
            async with (
                self._pool.connect() as connection,
                asyncio.timeout(seconds + _GRACE),
            ):
                await connection.exec_driver_sql(f"SET LOCAL statement_timeout = {limit}")
                yield connection

    async def check(self) -> None:
        """Raises StoreError with what to do: the server cannot be reached, or not be used."""
        try:
            async with asyncio.timeout(self.server.timeout * 2), self._engine.connect() as writer:
                found = (await writer.execute(_FACTS)).one()
        except (SQLAlchemyError, OSError) as error:
            raise self.opening_error(error) from error
        *facts, is_standby = found
        address = self.server.address
        place = f'the database "{address.name}" on {address.host}:{address.port}'
        if reason := self._unsuitable(*facts):
            raise StoreError(f"{place}: {reason}")
        if is_standby:  # during a failover, for a moment
            raise ServerUnavailable(
                f"{place}: it is a standby, which is read-only: name the primary server"
            )

    def _unsuitable(
        self, version: str, encoding: str, schema: str | None, may_create: bool
    ) -> str | None:
        """Tells why the database cannot be used, and what to do."""
        if int(version) // 10_000 < MIN_SERVER_VERSION:
            number = int(version) // 10_000
            return f"it is PostgreSQL {number}, and {MIN_SERVER_VERSION} or newer is needed"
        if encoding != "UTF8":
            name = self.server.address.name
            return f"its encoding is {encoding}: make one with createdb -E UTF8 -T template0 {name}"
        if schema is None or not may_create:
            user = self.server.address.user
            where = f"in the schema {schema}" if schema else "as it has no schema for that"
            return (
                f'the user "{user}" may not create tables {where}: make the user the owner of the'
                f" database, or GRANT USAGE, CREATE ON SCHEMA {schema or 'public'}"
            )
        return None

    @asynccontextmanager
    async def snapshot(self, seconds: float) -> AsyncIterator[AsyncConnection]:
        async with self.read_within(seconds) as connection:
            await connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            # Before the first read: no day of the log is dropped that the snapshot still has.
            await connection.exec_driver_sql(f"LOCK TABLE {_LOG_TABLES} IN ACCESS SHARE MODE")
            yield connection

    async def wrong_sums(self, connection: AsyncConnection, limit: int) -> list[Discrepancy]:
        return await wrong_sums(connection, limit)

    def is_row_error(self, error: Exception) -> bool:
        if isinstance(error, DBAPIError):
            # Others, such as a missing permission, are no row's fault.
            return not error.connection_invalidated and is_data_error(error)
        return isinstance(error, UnicodeError | OverflowError)

    def is_temporary(self, error: Exception) -> bool:
        return is_temporary(error)

    def left_by_earlier_boots(self, boot_id: str) -> ColumnElement[bool]:
        replica = exists().where(replicas.c.boot_id == requests.c.boot_id)
        return and_(super().left_by_earlier_boots(boot_id), ~replica)

    def sums_of_days(self, since: int, until: int) -> FromClause:
        return sums_of_days(since, until)

    async def has_writers_before(self, schema: int) -> bool:
        now: ColumnElement[int] = literal_column("extract(epoch FROM clock_timestamp()) * 1000000")
        alive = replicas.c.heartbeat_at + replicas.c.expiry_us > now
        query = select(replicas.c.name).where(replicas.c.schema < schema, alive).limit(1)
        return await fetch_value(self, query) is not None

    async def add_up_days(self) -> None:
        await add_up_days(self)

    async def delete_past_spending(self, now_us: int) -> None:
        await self.write(partial(delete_past, now=now_us))

    async def create_days(self, now_us: int) -> list[str]:
        return [day.name for day in await create_days(self, now_us)]

    async def drop_days_before(self, time_us: int) -> int:
        return await drop_days_before(self, Day.of(time_us))

    async def delete_requests(self, before_us: int, batch: int) -> int:
        return await delete_default_rows(self, before_us, batch)

    def opening_error(self, error: Exception) -> StoreError:
        return server_failure(opening_error(error, self.server), error)

    async def close(self) -> None:
        if self.locks is not None:
            await self.locks.close()
        await asyncio.gather(*self._transactions, return_exceptions=True)
        await self._pool.dispose()
        await self._engine.dispose()


_LOG_TABLES: Final = ", ".join(table.name for table in (requests, attempts, searches))

_FACTS: Final = text(
    "SELECT current_setting('server_version_num'), current_setting('server_encoding'),"
    " current_schema(), coalesce(has_schema_privilege(current_schema(), 'CREATE'), false),"
    " pg_is_in_recovery()"
)


class _Reader:
    """Connections that cannot write; each of their statements sees complete commits."""

    def __init__(self, engine: AsyncEngine, seconds: float) -> None:
        self._engine = engine
        self._seconds = seconds

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[AsyncConnection]:
        """Raises DatabaseUnavailable."""
        with _availability():
            async with self._engine.connect() as connection, asyncio.timeout(self._seconds):
                yield connection

    async def dispose(self) -> None:
        await self._engine.dispose()


class SingleReader:
    """One connection that reads, past those of requests. Raises at its first use."""

    def __init__(self, server: DatabaseServer) -> None:
        self._engine = _engine(server, 1, is_reader=True)
        self.reader: _Reader = _Reader(self._engine, server.timeout + _GRACE)

    async def close(self) -> None:
        await self._engine.dispose()


@contextmanager
def _availability(seconds: float | None = None) -> Iterator[None]:
    """Raises DatabaseUnavailable for errors whose cause is the server or the connection; with
    `seconds` QueryTimeout for a statement that was cancelled after them."""
    try:
        yield
    except (SQLAlchemyError, OSError) as error:
        if seconds is not None and is_cancelled(error):
            raise QueryTimeout(seconds) from error
        if is_unavailable(error):
            raise DatabaseUnavailable(reason_of(error)) from error
        raise


def _engine(
    server: DatabaseServer,
    connections: int,
    *,
    is_reader: bool = False,
    lock_timeout: float = 0.0,
) -> AsyncEngine:
    options = connect_options(server)
    options["server_settings"] |= {
        "statement_timeout": str(round(server.timeout * 1000)),
        "idle_in_transaction_session_timeout": str(round(_IDLE_IN_TRANSACTION * 1000)),
        "lock_timeout": str(round(lock_timeout * 1000)),
        "default_transaction_read_only": "on" if is_reader else "off",
        "jit": "off",  # it takes longer than these statements
    }
    engine = create_async_engine(
        _url(server),
        pool_size=connections,
        max_overflow=0,
        pool_timeout=server.timeout,
        hide_parameters=True,
        connect_args=options,
    )

    dialect = engine.dialect
    dialect.colspecs = {**dialect.colspecs, String: _Text}

    @event.listens_for(engine.sync_engine, "checkout")
    def replace_closed(connection: Any, _record: object, _proxy: object) -> None:
        # The driver knows at once of a connection that the server has closed. A question to the
        # server would cost each use a round trip.
        if connection.driver_connection.is_closed():
            raise DisconnectionError

    return engine


class _Text(AsyncpgString):
    """PostgreSQL has no texts with NUL: it becomes what the request log has in its place."""

    def bind_processor(self, dialect: Dialect) -> Callable[[str | None], str | None]:
        def process(value: str | None) -> str | None:
            return value.replace("\0", "\ufffd") if value and "\0" in value else value

        return process


def _url(server: DatabaseServer) -> URL:
    address = server.address
    return URL.create(
        "postgresql+asyncpg",
        username=address.user or None,
        password=password_of(server),
        host=address.host,
        port=address.port,
        database=address.name,
    )
