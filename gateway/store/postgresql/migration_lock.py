"""One replica at a time applies a migration on a database server, while requests go on.

A migration that does not get the advisory lock, or the locks of its tables, is rolled back and
tried again. It waits for table locks for a short time only, because all later statements on a table
queue behind a waiting migration."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final, Protocol, TypeVar

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from gateway.store.errors import ServerUnavailable
from gateway.store.postgresql.schema import AdvisoryLock

T = TypeVar("T")

MIGRATION_TIMEOUT: Final = 300.0
"""Seconds of waiting for other replicas, and for transactions that use the tables."""

_TABLE_LOCK_TIMEOUT: Final = 300  # milliseconds
_PAUSE: Final = 0.3  # seconds
_LOCK_NOT_AVAILABLE: Final = "55P03"
_DEADLOCK: Final = "40P01"

_log = logging.getLogger(__name__)


class MigrationsLocked(Exception):
    """Another replica holds the lock."""


class Target(Protocol):
    async def change_schema(self, work: Callable[[Connection], T]) -> T: ...


def lock_migrations(connection: Connection) -> None:
    """Hold the lock until the transaction ends. Raises MigrationsLocked. With SQLite there is
    nothing to lock: one process has the file."""
    if connection.dialect.name != "postgresql":
        return
    query = f"SELECT pg_try_advisory_xact_lock({AdvisoryLock.MIGRATIONS:d})"
    if not connection.exec_driver_sql(query).scalar():
        raise MigrationsLocked
    connection.exec_driver_sql(f"SET LOCAL lock_timeout = {_TABLE_LOCK_TIMEOUT}")


async def change_schema_locked(database: Target, work: Callable[[Connection], T]) -> T:
    """`Database.change_schema`, repeated until it gets all locks. Raises ServerUnavailable after
    `MIGRATION_TIMEOUT`."""
    now = asyncio.get_running_loop().time
    began, reason = now(), ""
    while now() - began < MIGRATION_TIMEOUT:
        try:
            return await database.change_schema(work)
        except MigrationsLocked:
            found = "another replica changes the database's schema"
        except DBAPIError as error:
            if getattr(error.orig, "sqlstate", None) not in (_LOCK_NOT_AVAILABLE, _DEADLOCK):
                raise
            found = "tables are in use by a long transaction"
        if found != reason:
            reason = found
            _log.info("waiting: %s", reason)
        await asyncio.sleep(_PAUSE)
    raise ServerUnavailable(
        f"the schema was not changed within {MIGRATION_TIMEOUT:.0f} s: {reason}. Start it again; "
        "pg_stat_activity shows who is in the way"
    )
