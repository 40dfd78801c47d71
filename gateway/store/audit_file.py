"""Adds a row to the audit log of a database file that no gateway has opened."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from sqlalchemy import insert
from sqlalchemy.dialects import sqlite

from gateway.store.errors import StoreError
from gateway.store.records import AuditRow
from gateway.store.schema import audit_log


def add_to_file(path: Path, row: AuditRow) -> bool:
    """False if its schema is older than the audit log. The caller holds the lock of the state
    directory, or alone knows the file. Raises StoreError."""
    statement = str(insert(audit_log).compile(dialect=sqlite.dialect()))
    try:
        with closing(sqlite3.connect(path)) as connection, connection:
            known = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'audit_log'")
            if known.fetchone() is None:
                return False
            connection.execute(statement, tuple(row))
            return True
    except sqlite3.Error as error:
        raise StoreError(f"{path} cannot be written: {error}") from error
