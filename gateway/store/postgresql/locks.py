"""Locks of a database server, of which one replica at a time has each: advisory locks by name, for
as long as it wants, and that of migrations."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from hashlib import blake2b
from typing import Any, Final, TypeVar

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from gateway.store.errors import ServerUnavailable, error_reason
from gateway.store.postgresql.connection import ERRORS, server_failure
from gateway.store.postgresql.schema import AdvisoryLock

T = TypeVar("T")

_PAUSES: Final = (0.01, 0.02, 0.04, 0.08, 0.1, 0.15, 0.2, 0.2, 0.2)
"""Seconds between tries of `acquire`: the holder may be about to release the lock."""
_TIMEOUT: Final = 2.0
_KEEPALIVE: Final = (
    "SET tcp_keepalives_idle = 10; SET tcp_keepalives_interval = 5; SET tcp_keepalives_count = 3"
)
"""The locks of a machine that has died end within half a minute."""

MIGRATION_TIMEOUT: Final = 300.0
"""Seconds of waiting for other replicas, and for transactions that use the tables."""

_TABLE_LOCK_TIMEOUT: Final = 300  # milliseconds
_MIGRATION_PAUSE: Final = 0.3  # seconds
_LOCK_NOT_AVAILABLE: Final = "55P03"
_DEADLOCK: Final = "40P01"

_log = logging.getLogger(__name__)

Connect = Callable[[float], Awaitable[Any]]
"""Opens a connection whose statements take that many seconds at most."""


class AdvisoryLocks:
    """Named locks. Their connection is opened at the first use, and with it the server ends them.
    After a lost connection the held locks are acquired again, except those that another replica has
    acquired meanwhile."""

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self._connection: Any = None
        self._held = Counter[int]()
        self._turn = asyncio.Lock()
        self._releases: set[asyncio.Task[None]] = set()

    async def acquire(self, *name: str) -> bool:
        """Whether this replica now holds the lock; tries for about a second. A lock can be held
        several times and is then released as often. Raises StoreError."""
        number = _number(name)
        try:
            for pause in (*_PAUSES, None):
                if await self._run("SELECT pg_try_advisory_lock($1)", number):
                    self._held[number] += 1
                    return True
                if pause is None:
                    break
                await asyncio.sleep(pause)
        except ERRORS as error:
            text = f"locks cannot be taken: {error_reason(error)}"
            raise server_failure(text, error) from error
        except asyncio.CancelledError:
            self.release(*name)  # the server may have granted it
            raise
        return False

    def release(self, *name: str) -> None:
        """Release the lock in the background."""
        task = asyncio.ensure_future(self._release(_number(name)))
        self._releases.add(task)
        task.add_done_callback(self._releases.discard)

    async def close(self) -> None:
        """Close the connection, which releases all locks."""
        for task in tuple(self._releases):
            task.cancel()
        if self._connection is not None:
            self._connection.terminate()

    async def _release(self, number: int) -> None:
        self._held[number] -= 1
        if self._held[number] <= 0:
            del self._held[number]
        with suppress(*ERRORS):  # the server ends them with the connection
            await self._run("SELECT pg_advisory_unlock($1)", number)

    async def _run(self, query: str, number: int) -> bool:
        async with self._turn, asyncio.timeout(_TIMEOUT):
            if self._connection is None or self._connection.is_closed():
                self._connection = await self._connect(_TIMEOUT)
                await self._connection.execute(_KEEPALIVE)
                for held, times in self._held.items():
                    for _ in range(times):
                        await self._connection.fetchval("SELECT pg_try_advisory_lock($1)", held)
            return bool(await self._connection.fetchval(query, number))


def _number(name: tuple[str, ...]) -> int:
    """The key of the lock: a signed integer of 64 bits."""
    digest = blake2b("\0".join(name).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


class MigrationsLocked(Exception):
    """Another replica holds the lock of migrations."""


def lock_migrations(connection: Connection) -> None:
    """Hold the lock until the transaction ends. Raises MigrationsLocked. Later statements of the
    transaction wait for locks of tables for a short time only, because all later statements on a
    table queue behind one that waits."""
    query = f"SELECT pg_try_advisory_xact_lock({AdvisoryLock.MIGRATIONS:d})"
    if not connection.exec_driver_sql(query).scalar():
        raise MigrationsLocked
    connection.exec_driver_sql(f"SET LOCAL lock_timeout = {_TABLE_LOCK_TIMEOUT}")


async def retry_migration(migrate: Callable[[], Awaitable[T]]) -> T:
    """Call it, whose transaction is rolled back each time, until it gets all locks. Raises
    ServerUnavailable after `MIGRATION_TIMEOUT`."""
    now = asyncio.get_running_loop().time
    began, reason = now(), ""
    while now() - began < MIGRATION_TIMEOUT:
        try:
            return await migrate()
        except MigrationsLocked:
            found = "another replica changes the database's schema"
        except DBAPIError as error:
            if getattr(error.orig, "sqlstate", None) not in (_LOCK_NOT_AVAILABLE, _DEADLOCK):
                raise
            found = "tables are in use by a long transaction"
        if found != reason:
            reason = found
            _log.info("waiting: %s", reason)
        await asyncio.sleep(_MIGRATION_PAUSE)
    raise ServerUnavailable(
        f"the schema was not changed within {MIGRATION_TIMEOUT:.0f} s: {reason}. Start it again; "
        "pg_stat_activity shows who is in the way"
    )
