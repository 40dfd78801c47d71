"""Migrations by command: which would run and how long each takes, tried on a copy, or for real."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from sqlalchemy.exc import SQLAlchemyError

from gateway.config.cluster import DatabaseServer
from gateway.store.database import Database
from gateway.store.errors import StoreError
from gateway.store.migrations import (
    MIGRATIONS,
    NAMES,
    apply_migration,
    migrations_for,
    read_version,
)
from gateway.store.sqlite.backup import (
    Progress,
    free_space,
    remove_empty_log,
    schema_of,
    size_with_log,
    trial_copy,
)
from gateway.store.sqlite.database import SqliteDatabase
from gateway.store.sqlite.lock import DATABASE_NAME, check_owner, lock_state_dir


@dataclass(frozen=True, slots=True)
class Step:
    """A migration to the schema `number`."""

    number: int
    name: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Migrated:
    """`size` and `free` are bytes: of the database with its log, and on its disk; None for a
    server. `copy` is the file from before, where the database was changed."""

    schema: int
    steps: tuple[Step, ...]
    size: int | None
    free: int | None
    copy: str | None = None


def try_migrations(state_dir: Path, progress: Progress) -> Migrated:
    """Migrates a copy. Raises StoreError, also for a migration that would fail."""
    check_owner(state_dir)
    path = _existing(state_dir)
    steps: tuple[Step, ...] = ()
    if schema_of(path) != len(MIGRATIONS):
        with trial_copy(state_dir, progress) as copy:
            steps = asyncio.run(_migrate(_Uncopied(copy)))
    remove_empty_log(state_dir)
    return Migrated(len(MIGRATIONS), steps, size_with_log(path), free_space(state_dir))


def migrate_now(state_dir: Path) -> Migrated:
    """Migrates while no gateway runs. Raises StoreError."""
    path = _existing(state_dir)
    with lock_state_dir(state_dir):
        steps = asyncio.run(_migrate(SqliteDatabase(path)))
    before = len(MIGRATIONS) - len(steps)
    copy = str(path.with_name(f"{path.name}.schema-{before}.copy")) if steps else None
    return Migrated(len(MIGRATIONS), steps, size_with_log(path), free_space(state_dir), copy)


def migrate_server(server: DatabaseServer, *, dry_run: bool) -> Migrated:
    """Migrates while replicas run. A dry run only says what would be done. Raises StoreError."""
    from gateway.store.postgresql.database import PostgresqlDatabase

    async def run() -> tuple[Step, ...]:
        return await _migrate(PostgresqlDatabase(server), dry_run=dry_run)

    return Migrated(len(MIGRATIONS), asyncio.run(run()), None, None)


class _Uncopied(SqliteDatabase):
    """A database that is a copy itself."""

    async def copy(self, version: int) -> None:
        """Copies nothing."""


async def _migrate(database: Database, *, dry_run: bool = False) -> tuple[Step, ...]:
    steps: list[Step] = []
    migrations = migrations_for(database.migrations.name)
    try:
        await database.check()
        version = await database.write(partial(read_version, dialect=database.migrations))
        for number in range(version + 1, len(MIGRATIONS) + 1):
            began = time.monotonic()
            if not dry_run:
                if version and not steps:
                    await database.copy(version)
                await apply_migration(database, number, time.time_ns() // 1000, migrations)
            steps.append(Step(number, NAMES[number - 1], time.monotonic() - began))
    except SQLAlchemyError as error:
        raise StoreError(f"the database cannot be migrated: {error}") from error
    finally:
        await database.close()
    return tuple(steps)


def _existing(state_dir: Path) -> Path:
    path = state_dir / DATABASE_NAME
    if not path.is_file():
        raise StoreError(f"there is no database {path}")
    return path
