"""The database driver's own cursor, with faults as SQLAlchemy raises them.

This room must not know what is said through the cursor.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Connection
from sqlalchemy.engine.interfaces import DBAPICursor
from sqlalchemy.exc import DBAPIError


@contextmanager
def driver_cursor(connection: Connection) -> Iterator[DBAPICursor]:
    """A cursor for as long as the block runs; it knows nothing of the connection's transaction."""
    cursor = connection.connection.cursor()
    try:
        yield cursor
    except connection.dialect.loaded_dbapi.Error as fault:
        raise DBAPIError.instance(
            None, None, fault, connection.dialect.loaded_dbapi.Error, dialect=connection.dialect
        ) from fault
    finally:
        cursor.close()
