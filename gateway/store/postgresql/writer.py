"""Writes entries of the recorder to a database server: one call of a function for each batch. While
the server cannot be reached, they wait in the spool.

The function is created in the session (`pg_temp`), so replicas of several releases use their own.
It gets the batch that `build_batch` makes on the assumption that nobody else has changed its rows,
and fails if somebody has: then the rows are locked and read, and the batch is built again. So the
common case is one round trip, and repeating a batch after an unknown outcome changes nothing twice.

Rows are inserted only if they do not exist, and updated only in the state that is expected; sums
are changed in the same transaction. Locks are taken in one order: rows by id, hours, tokens,
spending, leases, traffic, each sorted, and last the chain of links."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Sequence
from functools import partial
from typing import Any, Final

import asyncpg

from gateway.config.cluster import DatabaseServer
from gateway.store.database import Database
from gateway.store.errors import InvalidRows, NotKept, RowsChanged, error_reason
from gateway.store.log.batch import build_batch
from gateway.store.log.entry_writer import EntryWriter
from gateway.store.postgresql.batch import function_arguments
from gateway.store.postgresql.connection import connect, time_limits
from gateway.store.postgresql.errors import is_temporary
from gateway.store.postgresql.function import CALL, LOCK, ROWS_CHANGED, function_text
from gateway.store.postgresql.outage import Outage
from gateway.store.postgresql.recovery import mark_interrupted
from gateway.store.postgresql.spool import Spool
from gateway.store.records import ExchangeState, LogEntry, RequestRow

_INVALID: Final = (
    asyncpg.DataError,
    asyncpg.IntegrityConstraintViolationError,
    asyncpg.exceptions._base.DataError,  # raised before anything is sent
    UnicodeError,
    OverflowError,
)
_TRIES: Final = 5  # of one batch in which others' locks are in the way
_TIMEOUT: Final = 1.0  # seconds of a commit
_SPOOL_AFTER: Final = 0.5  # seconds in which nothing could be written, while the server answers
_PAUSE: Final = 0.005  # seconds, more each time

_SETTINGS: Final = {
    # A batch is small and goes by keys, whatever the tables' statistics say.
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "plan_cache_mode": "force_custom_plan",
    "jit": "off",
    "default_transaction_isolation": "read committed",
}


class PostgresqlWriter(EntryWriter):
    """One connection, opened if there is none."""

    commits_slowly = True

    def __init__(
        self,
        database: Database,
        server: DatabaseServer,
        boot_id: str,
        spool: Spool | None = None,
        committed: Callable[[Sequence[LogEntry]], None] = lambda _: None,
    ) -> None:
        """Creates a writer that calls `committed` with what waited in the spool and was written
        later."""
        self._database = database
        self._server = server
        self._boot_id = boot_id
        self.spool = spool
        self._outage: Outage | None = None
        if spool is not None:
            write = partial(self.write_batch, opened=None, seconds=server.timeout)
            self._outage = Outage(spool, write, boot_id, committed)
        self._is_open = False
        self._connection: asyncpg.Connection | None = None
        self._record: Any = None
        """The prepared call of the function."""

    @property
    def is_full(self) -> bool:
        return self._outage is not None and self._outage.is_full

    async def open(self) -> None:
        if self._outage is not None and not self._is_open:
            await self._outage.open()
            self._is_open = True

    async def settle_interrupted(self) -> int:
        left = self._database.left_by_earlier_boots(self._boot_id)
        return await self._database.write(partial(mark_interrupted, left_by=left))

    async def write(
        self, entries: Sequence[LogEntry], opened: Container[str] | None, left: int = 0
    ) -> bool:
        """Raises NotKept if the spool has no room; RowsChanged if the rows keep changing; else
        InvalidRows, an error of the driver, OSError or TimeoutError."""
        if self._outage is not None and self._outage.is_open:
            try:
                await self._outage.append(entries)
            except Exception as error:
                raise NotKept(error_reason(error)) from error
            return False
        await self.write_batch(entries, opened, _TIMEOUT)
        return True

    def begin_outage(self, error: Exception, failures: int, waited: float) -> bool:
        """A connection that was lost once is opened again, which a failover takes. If that fails
        too, entries go to the spool at once: in memory a kill would lose them."""
        if self._outage is None or isinstance(error, NotKept):
            return False
        is_away = failures > 1 and is_temporary(error)
        if not is_away and waited < _SPOOL_AFTER:
            return False
        self._outage.begin(error_reason(error))
        return True

    async def close(self, seconds: float) -> None:
        if self._outage is not None and self._is_open:
            await self._outage.close(seconds)
        if self._connection is not None:
            connection, self._connection = self._connection, None
            try:
                await connection.close(timeout=1)
            except (asyncpg.PostgresError, OSError, TimeoutError):
                connection.terminate()

    async def write_batch(
        self, entries: Sequence[LogEntry], opened: Container[str] | None, seconds: float
    ) -> None:
        """Commit the entries, within so many seconds. Raises InvalidRows; RowsChanged if the rows
        keep changing; else an error of the driver, OSError or TimeoutError. After any but the first
        it may have happened."""
        try:
            async with asyncio.timeout(seconds):
                await self._write(entries, opened)
        except BaseException as error:
            if isinstance(error, _INVALID):
                raise InvalidRows(str(error)) from error
            if not isinstance(error, RowsChanged):
                self.disconnect()
            raise

    def disconnect(self) -> None:
        """Disconnects at once, without a word to the server."""
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None

    async def _connect(self) -> asyncpg.Connection:
        if self._connection is None or self._connection.is_closed():
            settings = _SETTINGS | time_limits(self._server)
            self._connection = connection = await connect(self._server, settings=settings)
            await connection.execute(function_text())
            self._record = await connection.prepare(CALL)
        return self._connection

    async def _write(self, entries: Sequence[LogEntry], opened: Container[str] | None) -> None:
        connection = await self._connect()
        failure: Exception = RowsChanged()
        for number in range(_TRIES):
            try:
                if opened is not None:
                    await self._write_expected(entries, opened)
                else:
                    async with connection.transaction():
                        await self._write_locked(connection, entries)
                return
            except (asyncpg.SerializationError, asyncpg.DeadlockDetectedError) as error:
                failure = error
                await asyncio.sleep(number * _PAUSE)
            except asyncpg.PostgresError as error:
                if error.sqlstate != ROWS_CHANGED:
                    raise
                failure = RowsChanged(str(error))
            opened = None
        raise failure

    async def _write_expected(self, entries: Sequence[LogEntry], opened: Container[str]) -> None:
        batch = function_arguments(build_batch(entries, {}, opened), {}, own=None)
        await self._record.fetchval(*batch, self._boot_id, self.epoch, False)

    async def _write_locked(
        self, connection: asyncpg.Connection, entries: Sequence[LogEntry]
    ) -> None:
        ids = sorted({entry.row.id for entry in entries})
        found = [RequestRow._make(row) for row in await connection.fetch(LOCK, ids)]
        states = {row.id: row.state for row in found}
        interrupted = {row.id: row for row in found if row.state == ExchangeState.INTERRUPTED}
        own = {entry.row.id for entry in entries if entry.row.boot_id in ("", self._boot_id)}
        batch = build_batch(entries, states, interrupted=interrupted)
        await self._record.fetchval(
            *function_arguments(batch, interrupted, own), self._boot_id, self.epoch, True
        )
