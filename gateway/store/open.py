"""Opens the database that the configuration names: a file, or a server."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from sqlalchemy.exc import SQLAlchemyError

from gateway.config.cluster import DatabaseServer
from gateway.store.database import Database
from gateway.store.migrations import migrate
from gateway.store.sqlite.database import SqliteDatabase


async def open_database(
    place: str | Path | DatabaseServer,
    *,
    clock_ns: Callable[[], int] = time.time_ns,
    while_copying: bool = False,
) -> Database:
    """Open a database and bring its schema up to date; a missing file is created, mode 0600, and
    gets what a gateway that was killed left in the journal.

    `place` is a file's path, or a server. Raises StoreError with what to do: a damaged file, a
    newer schema, a migration that failed, a server that cannot be used, a part of a copy if this
    is not `while_copying`. On any error nothing stays open.
    """
    database: Database
    if isinstance(place, DatabaseServer):
        from gateway.store.postgresql.database import PostgresqlDatabase  # needs its driver

        database = PostgresqlDatabase(place)
    else:
        database = SqliteDatabase(Path(place))
    try:
        await database.check()
        now = clock_ns() // 1000
        await migrate(database, now, while_copying=while_copying)
        await database.recover()
    except BaseException as error:
        await database.close()
        if isinstance(error, SQLAlchemyError | OSError):
            raise database.opening_error(error) from error
        raise
    return database
