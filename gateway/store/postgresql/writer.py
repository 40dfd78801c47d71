"""Writes entries of the recorder to a database server: one call of a function for each batch.

The function is created in the session (`pg_temp`), so replicas of several releases use their own.
It gets the batch that `build_batch` makes on the assumption that nobody else has changed its rows,
and fails if somebody has: then the rows are locked and read, and the batch is built again. So the
common case is one round trip, and repeating a batch after an unknown outcome changes nothing twice.

Rows are inserted only if they do not exist, and updated only in the state that is expected; sums
are changed in the same transaction. Locks are taken in one order: rows by id, hours, tokens,
spending, leases, each sorted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Sequence
from typing import Any, Final

import asyncpg

from gateway.config.cluster import DatabaseServer
from gateway.store.errors import InvalidRows, RowsChanged
from gateway.store.log.batch import build_batch
from gateway.store.postgresql.batch import server_batch
from gateway.store.postgresql.connection import connect
from gateway.store.postgresql.function import CALL, LOCK, ROWS_CHANGED, function_text
from gateway.store.postgresql.outage import Outage
from gateway.store.postgresql.spool import Spool
from gateway.store.records import Entry, ExchangeState, RequestRow

_INVALID: Final = (
    asyncpg.DataError,
    asyncpg.IntegrityConstraintViolationError,
    asyncpg.exceptions._base.DataError,  # raised before anything is sent
    UnicodeError,
    OverflowError,
)
_TRIES: Final = 5  # of one batch in which others' locks are in the way
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


class ServerWriter:
    """One connection, opened where there is none. It is used by one task at a time.

    `epoch` is this replica's: the cost of its own rows is taken from its leases.
    """

    def __init__(self, server: DatabaseServer, boot_id: str) -> None:
        self.epoch: int | None = None
        self._server = server
        self._boot_id = boot_id
        self._connection: asyncpg.Connection | None = None
        self._record: Any = None
        """The prepared call of the function."""

    @property
    def timeout(self) -> float:
        """Seconds of a statement that a request waits for."""
        return self._server.timeout

    async def write(
        self, entries: Sequence[Entry], opened: Container[str] | None, seconds: float
    ) -> None:
        """Commit the entries, within so many seconds. `opened` are the rows that are known to be
        running; None after a failure: then nothing is known.

        Raises InvalidRows; RowsChanged where the rows keep changing; else an error of the driver,
        OSError or TimeoutError. After any but the first it may have happened.
        """
        try:
            async with asyncio.timeout(seconds):
                await self._write(entries, opened)
        except BaseException as error:
            if isinstance(error, _INVALID):
                raise InvalidRows(str(error)) from error
            if not isinstance(error, RowsChanged):
                self.disconnect()
            raise

    def outage(self, spool: Spool, committed: Callable[[Sequence[Entry]], None]) -> Outage:
        """What keeps entries while the server cannot be reached; it calls `committed` with those
        that were written later."""
        return Outage(spool, self, self._boot_id, committed)

    def disconnect(self) -> None:
        """At once, without a word to the server."""
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None

    async def close(self) -> None:
        if self._connection is not None:
            connection, self._connection = self._connection, None
            try:
                await connection.close(timeout=1)
            except (asyncpg.PostgresError, OSError, TimeoutError):
                connection.terminate()

    async def _connect(self) -> asyncpg.Connection:
        if self._connection is None or self._connection.is_closed():
            self._connection = connection = await connect(
                self._server, settings=_SETTINGS | self._limits()
            )
            await connection.execute(function_text())
            self._record = await connection.prepare(CALL)
        return self._connection

    def _limits(self) -> dict[str, str]:
        """A server that no longer hears from this connection gives its locks back soon."""
        milliseconds = str(int(self._server.timeout * 1000))
        return {
            "statement_timeout": milliseconds,
            "idle_in_transaction_session_timeout": milliseconds,
        }

    async def _write(self, entries: Sequence[Entry], opened: Container[str] | None) -> None:
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

    async def _write_expected(self, entries: Sequence[Entry], opened: Container[str]) -> None:
        batch = server_batch(build_batch(entries, {}, opened), {}, own=None)
        await self._record.fetchval(*batch, self._boot_id, self.epoch, False)

    async def _write_locked(self, connection: asyncpg.Connection, entries: Sequence[Entry]) -> None:
        ids = sorted({entry.row.id for entry in entries})
        found = [RequestRow._make(row) for row in await connection.fetch(LOCK, ids)]
        states = {row.id: row.state for row in found}
        interrupted = {row.id: row for row in found if row.state == ExchangeState.INTERRUPTED}
        own = {entry.row.id for entry in entries if entry.row.boot_id in ("", self._boot_id)}
        batch = build_batch(entries, states, interrupted=interrupted)
        await self._record.fetchval(
            *server_batch(batch, interrupted, own), self._boot_id, self.epoch, True
        )
