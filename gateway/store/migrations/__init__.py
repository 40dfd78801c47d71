"""The migrations in order, and how a database gets from its schema to this release's.

Each step is one transaction, the new version number included: a step that fails leaves the
database as it was. Steps are added at the end and never edited; they describe what they create
themselves, not by the tables of `gateway.store.schema`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol, TypeVar

from sqlalchemy import Connection, delete, insert, inspect, select
from sqlalchemy.exc import SQLAlchemyError

from gateway.store.errors import MigrationFailed, NewerSchema, StoreError
from gateway.store.migrations import (
    m001_ledger,
    m002_attempts,
    m003_quota,
    m004_console,
    m005_running,
)
from gateway.store.schema import settings

Step = Callable[[Connection, int], None]
"""Changes the schema by one version; the number is the present time in Unix µs."""

STEPS: tuple[Step, ...] = (
    m001_ledger.upgrade,
    m002_attempts.upgrade,
    m003_quota.upgrade,
    m004_console.upgrade,
    m005_running.upgrade,
)

T = TypeVar("T")

_VERSION = "schema_version"


class MigrationTarget(Protocol):
    """A database that can be written, and copied before it is changed."""

    async def write(self, work: Callable[[Connection], T]) -> T: ...
    async def copy(self, version: int) -> None: ...


async def migrate(database: MigrationTarget, now: int, steps: Sequence[Step] = STEPS) -> None:
    """Bring the database to version `len(steps)`, after a copy of one that is not empty.

    Raises NewerSchema, MigrationFailed, or StoreError for a database that is not ours.
    """
    version = await database.write(_version)
    if version > len(steps):
        raise NewerSchema(
            f"the database has schema {version}, this release supports schemas up to {len(steps)}:"
            " start the newer release, or restore the copy that it made before it migrated"
        )
    if 0 < version < len(steps):
        await database.copy(version)
    for number, step in enumerate(steps[version:], version + 1):
        try:
            await database.write(partial(_apply, step=step, number=number, now=now))
        except SQLAlchemyError as error:
            raise MigrationFailed(
                f"the migration from schema {number - 1} to {number} failed and was rolled back,"
                f" the database is unchanged: {error}"
            ) from error


def _version(connection: Connection) -> int:
    tables = inspect(connection).get_table_names()
    if not tables:
        return 0
    if settings.name not in tables:
        raise StoreError("the database belongs to another program: name another one")
    value = connection.scalar(select(settings.c.value).where(settings.c.name == _VERSION))
    if value is None or not value.isdecimal():
        raise StoreError(f"the database has no readable {_VERSION}: restore a copy of it")
    return int(value)


def _apply(connection: Connection, step: Step, number: int, now: int) -> None:
    step(connection, now)
    connection.execute(delete(settings).where(settings.c.name == _VERSION))
    connection.execute(insert(settings).values(name=_VERSION, value=str(number)))
