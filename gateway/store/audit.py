"""Rows of the audit log."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from sqlalchemy import Connection, Table, delete, insert, select
from sqlalchemy.dialects import sqlite

from gateway.store.database import Database, fetch
from gateway.store.errors import StoreError
from gateway.store.log.expressions import id_between
from gateway.store.records import AuditRow
from gateway.store.schema import audit_log


def add_to_file(path: Path, row: AuditRow) -> bool:
    """Adds a row to a file; False if its schema is older than the audit log. The caller holds the
    lock of the state directory, or alone knows the file. Raises StoreError."""
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


MAX_PAGE: Final = 1000

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class AuditedWriter:
    """Writes a change and its row of the audit log in one transaction.

    Who puts the change into memory does so next, without waiting for anything else: until then
    nobody else runs, so nobody has put there what other replicas have changed since.
    """

    database: Database
    row: AuditRow

    async def write(self, work: Callable[[Connection], T]) -> T:
        def run(connection: Connection) -> T:
            result = work(connection)
            connection.execute(insert(audit_log).values(self.row._asdict()))
            return result

        async with self.database.changing:
            return await self.database.write(run)

    def lock_table(self, connection: Connection, table: Table) -> None:
        self.database.lock_table(connection, table)


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """Fields that are None match everything. `actor` is a part of the actor, `action` an action or
    its beginning up to a dot (`key`), `target` a whole target, or the name or id of `name (id)`;
    times are Unix microseconds, `until` is excluded."""

    actor: str | None = None
    action: str | None = None
    target: str | None = None
    since: int | None = None
    until: int | None = None


async def add(database: Database, rows: Sequence[AuditRow]) -> None:
    def work(connection: Connection) -> None:
        connection.execute(insert(audit_log), [row._asdict() for row in rows])

    await database.write(work)


async def page(
    database: Database, matching: AuditFilter, *, limit: int = 50, before: str | None = None
) -> list[AuditRow]:
    """Returns a page, newest first, from the row before the id `before`."""
    column = audit_log.c
    query = select(audit_log).order_by(column.id.desc()).limit(limit)
    if matching.actor is not None:
        query = query.where(column.actor.icontains(matching.actor, autoescape=True))
    if matching.action is not None:
        prefix = column.action.istartswith(f"{matching.action}.", autoescape=True)
        query = query.where(prefix | (column.action == matching.action))
    if (target := matching.target) is not None:
        is_name = column.target.startswith(f"{target} (", autoescape=True)
        is_id = column.target.endswith(f" ({target})", autoescape=True)
        query = query.where((column.target == target) | is_name | is_id)
    since, until = (
        None if time is None else first_id(time) for time in (matching.since, matching.until)
    )
    query = query.where(*id_between(column.id, first=[since], end=[until, before]))
    return [AuditRow(*row) for row in await fetch(database, query)]


async def delete_before(
    database: Database, cutoff_us: int, *, batch: int = 500, pause: float = 0.02
) -> int:
    """Returns the number of deleted rows. After a transaction, which deletes `batch` of them, other
    writers have the database for `pause` seconds."""
    expired = select(audit_log.c.id).where(audit_log.c.id < first_id(cutoff_us)).limit(batch)
    statement = delete(audit_log).where(audit_log.c.id.in_(expired.scalar_subquery()))
    deleted = 0
    while count := await database.write(lambda connection: connection.execute(statement).rowcount):
        deleted += count
        await asyncio.sleep(pause)
    return deleted


def first_id(at: int) -> str:
    """Returns an id such that no row from that time on has a smaller one."""
    return f"aud_{max(at, 0):014x}"
