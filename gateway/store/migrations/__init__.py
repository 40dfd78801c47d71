"""Brings a database from its schema to this release's, by the SQL files of this folder in order.

A migration is one transaction, the new version number included: one that fails leaves the database
as it was. On a server, which several replicas use, its first line can say with which earlier schema
a release still works on what it leaves: `-- compatible with: 16`. It does so by adding only:
columns with defaults, tables, indexes. Without that line only releases that know it do.

Migrations are added at the end and never edited. The text between braces is what
dialects write differently (`MigrationDialect.words`), or `now`, the present time in Unix µs.
`NNN_name.sql` is for both dialects; of `NNN_name.postgresql.sql` and `NNN_name.sqlite.sql` each has
the one with its name, and nothing to do where there is none.
"""

from __future__ import annotations

import logging
import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple, Protocol, TypeVar

from sqlalchemy import Connection, delete, insert, inspect, select
from sqlalchemy.exc import SQLAlchemyError

from gateway.store.errors import MigrationFailed, NewerSchema, StoreError
from gateway.store.schema import settings

_FILES: Final = sorted(Path(__file__).parent.glob("[0-9]*.sql"))
NAMES: Final = tuple(dict.fromkeys(file.name.partition(".")[0] for file in _FILES))
"""Such as `001_request_log`."""


def migrations_for(dialect: str) -> tuple[str, ...]:
    """The text of each migration; "" where it has nothing to do with this dialect."""
    texts = dict.fromkeys(NAMES, "")
    for file in _FILES:
        name, *only_for, _ = file.name.split(".")
        if not only_for or only_for == [dialect]:
            texts[name] = file.read_text()
    return tuple(texts.values())


MIGRATIONS: Final = migrations_for("sqlite")

_END_OF_STATEMENT: Final = re.compile(r";\n(?! )")
"""The lines of a function's body, which have such ends too, are indented."""

_BYTE_ORDER: Final = """
DO $$
DECLARE found record;
BEGIN
    FOR found IN
        SELECT pg_class.relname, attname FROM pg_attribute
        JOIN pg_class ON pg_class.oid = attrelid
        WHERE relnamespace = current_schema()::regnamespace
        AND relkind IN ('r', 'p') AND NOT relispartition
        AND attcollation = 'default'::regcollation AND NOT attisdropped
    LOOP
        EXECUTE format(
            'ALTER TABLE %I ALTER COLUMN %I TYPE text COLLATE "C"', found.relname, found.attname
        );
    END LOOP;
END $$
"""
"""Texts compare by their bytes, as with SQLite and in Python, whatever the database's collation."""


class MigrationDialect(NamedTuple):
    """The steps that only migrations of one kind of database have.

    `name` is in the names of files. `words` are what the text between braces becomes. `last` is a
    statement at the end of each. `is_shared`: replicas of several releases use the database.
    `restore`: what to do where no older release can use it any more.
    """

    name: str
    words: Mapping[str, str]
    last: str | None
    is_shared: bool
    restore: str


SQLITE: Final = MigrationDialect(
    "sqlite",
    {"binary": "BLOB", "false": "0", "true": "1", "without_rowid": "WITHOUT ROWID"},
    None,
    is_shared=False,
    restore="restore the copy that it made before it migrated",
)
POSTGRESQL: Final = MigrationDialect(
    "postgresql",
    {"binary": "BYTEA", "false": "false", "true": "true", "without_rowid": ""},
    _BYTE_ORDER,
    is_shared=True,
    restore="restore a backup from before it",
)

_COMPATIBLE_WITH: Final = re.compile(r"-- compatible with: (\d+)\n")

_VERSION: Final = "schema_version"
_COMPATIBLE: Final = "compatible_schema"
"""The oldest schema that a release must know to use the database; without it, the database's."""

COPY_NOTE: Final = "unfinished_copy"
"""The setting of a database into which another one is being copied: how far that is."""

JOURNAL_MARK: Final = "request_journal"
"""The setting of a file: how far it has the journal beside it (`gateway.store.sqlite`)."""

OWN_SETTINGS: Final = frozenset({_VERSION, _COMPATIBLE, COPY_NOTE, JOURNAL_MARK})
"""Settings of the database itself, not of the gateway."""

_log = logging.getLogger(__name__)

T = TypeVar("T")


class MigrationTarget(Protocol):
    """A database that can be written, and copied before it is changed."""

    @property
    def migrations(self) -> MigrationDialect: ...
    def is_temporary(self, error: Exception) -> bool: ...
    async def write(self, work: Callable[[Connection], T]) -> T: ...
    async def change_schema(self, work: Callable[[Connection], T]) -> T: ...
    async def copy(self, version: int) -> None: ...


async def migrate(
    database: MigrationTarget,
    now: int,
    migrations: Sequence[str] | None = None,
    *,
    while_copying: bool = False,
) -> None:
    """Bring the database to this release's version, or `len(migrations)`,
    after a copy of one that is not empty.

    One with a newer schema that this release can use is left alone. Raises NewerSchema,
    MigrationFailed, or StoreError for a database that is not ours, or has a part of a copy and
    this is not `while_copying`.
    """
    if migrations is None:
        migrations = migrations_for(database.migrations.name)
    read = partial(
        read_version,
        dialect=database.migrations,
        newest=len(migrations),
        while_copying=while_copying,
    )
    version = await database.write(read)
    if version > len(migrations):
        text = "the database has schema %d of a newer release, which this one (%d) can use"
        _log.info(text, version, len(migrations))
    if 0 < version < len(migrations):
        await database.copy(version)
        _log.info("the database's schema changes from %d to %d", version, len(migrations))
    while version < len(migrations):
        changed = await apply_migration(database, version + 1, now, migrations)
        if changed > version + 1:
            _log.info("another replica has changed the database's schema to %d", changed)
        version = changed


async def apply_migration(
    database: MigrationTarget, number: int, now: int, migrations: Sequence[str]
) -> int:
    """Migrates from the schema before `number`, if no other replica has done it; returns the schema
    that the database has then. Raises MigrationFailed."""
    apply = partial(
        _apply, dialect=database.migrations, sql=migrations[number - 1], number=number, now=now
    )
    try:
        return await database.change_schema(apply)
    except SQLAlchemyError as error:
        if database.is_temporary(error):
            raise
        raise MigrationFailed(
            f"the migration from schema {number - 1} to {number} failed and was rolled back,"
            f" the database is unchanged: {error}"
        ) from error


def read_version(
    connection: Connection,
    dialect: MigrationDialect,
    newest: int = len(MIGRATIONS),
    *,
    while_copying: bool = False,
) -> int:
    """Reads the version of the schema; 0 for an empty database. Raises NewerSchema if a release
    that knows `newest` cannot use it, or StoreError for one that is not ours or not complete."""
    version = _version(connection)
    if version and not while_copying and _setting(connection, COPY_NOTE) is not None:
        raise StoreError(
            "the database has a part of a copy: run `gateway db copy` again, it goes on from there"
        )
    oldest = _compatible(connection) or version if version else 0
    if oldest > newest:
        least = f" for releases that know {oldest}" if oldest < version else ""
        raise NewerSchema(
            f"the database has schema {version}{least}, this release supports schemas up to "
            f"{newest}: start the newer release, or {dialect.restore}"
        )
    return version


def _version(connection: Connection) -> int:
    tables = inspect(connection).get_table_names()
    if not tables:
        return 0
    if settings.name not in tables:
        raise StoreError("the database belongs to another program: name another one")
    value = _setting(connection, _VERSION)
    if value is None or not value.isdecimal():
        raise StoreError(f"the database has no readable {_VERSION}: restore a copy of it")
    return int(value)


def _compatible(connection: Connection) -> int | None:
    """Returns the setting that a server's database has; a file is used by one release at a time."""
    value = _setting(connection, _COMPATIBLE)
    return None if value is None else int(value)


def _setting(connection: Connection, name: str) -> str | None:
    return connection.scalar(select(settings.c.value).where(settings.c.name == name))


def _apply(
    connection: Connection, dialect: MigrationDialect, sql: str, number: int, now: int
) -> int:
    if dialect.is_shared and (version := _version(connection)) >= number:
        return version
    for statement in _statements(sql, dialect, now):
        connection.exec_driver_sql(statement)
    if dialect.last is not None:
        connection.exec_driver_sql(dialect.last)
    _set(connection, _VERSION, number)
    if dialect.is_shared:
        stated = _COMPATIBLE_WITH.match(sql)
        oldest = int(stated[1]) if stated else number if sql else number - 1
        _set(connection, _COMPATIBLE, max(_compatible(connection) or number - 1, oldest))
    return number


def _statements(sql: str, dialect: MigrationDialect, now: int) -> Iterator[str]:
    text = sql.format(**dialect.words, now=now)
    return filter(None, map(str.strip, _END_OF_STATEMENT.split(text)))


def create_schema(connection: sqlite3.Connection, version: int) -> None:
    """Creates what the migrations up to `version` leave in an empty file."""
    for sql in MIGRATIONS[:version]:
        for statement in _statements(sql, SQLITE, 0):
            connection.execute(statement)


def _set(connection: Connection, name: str, number: int) -> None:
    connection.execute(delete(settings).where(settings.c.name == name))
    connection.execute(insert(settings).values(name=name, value=str(number)))
