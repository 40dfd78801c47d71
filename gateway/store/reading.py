"""Reads that people wait for, and the time that each of them may take.

However rare what is looked for, a reader is given back soon. This room must not know what is read.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.store.database import Database
from gateway.store.errors import QueryTimeout

READ_TIMEOUT: Final = 2.0
"""Seconds."""

_CLOCK_INTERVAL: Final = 20_000  # of SQLite's machine between two looks at the clock: about a millisecond

_CANCELLED: Final = "57014"  # what PostgreSQL calls a statement that took too long


@asynccontextmanager
async def timed_reader(
    database: Database, seconds: float = READ_TIMEOUT
) -> AsyncIterator[AsyncConnection]:
    """A connection that reads; `seconds` after the block began a statement is given up and
    TooMuchToRead raised."""
    async with database.reader.connect() as connection:
        is_file = database.dialect.name == "sqlite"
        try:
            if is_file:
                await _set_deadline(connection, time.monotonic() + seconds)
            else:
                await connection.exec_driver_sql(
                    f"SET LOCAL statement_timeout = {max(1, int(seconds * 1000))}"
                )
            yield connection
        except DBAPIError as fault:
            if not _is_timeout(fault):
                raise
            raise QueryTimeout(
                f"This was not found within {seconds:g} s: narrow the time that is searched."
            ) from fault
        finally:
            if is_file and not connection.invalidated:
                await _set_deadline(connection, None)


async def _set_deadline(connection: AsyncConnection, deadline: float | None) -> None:
    driver: Any = (await connection.get_raw_connection()).driver_connection

    def is_late() -> bool:
        return deadline is not None and time.monotonic() > deadline

    await driver.set_progress_handler(None if deadline is None else is_late, _CLOCK_INTERVAL)


def _is_timeout(fault: DBAPIError) -> bool:
    cause = fault.orig
    if isinstance(cause, sqlite3.OperationalError):
        return cause.sqlite_errorcode == sqlite3.SQLITE_INTERRUPT
    return getattr(cause, "sqlstate", None) == _CANCELLED
