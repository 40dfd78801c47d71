"""Copies of the database file: backups, their restoration, and a copy without free pages.

A copy is read in one transaction, also while a gateway writes, and appears complete under its name
or not at all. The connections here never write the file of a running gateway, nor checkpoint it:
SQLite before 3.51.3 can corrupt a write-ahead log that two connections checkpoint.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final

from gateway.config.file_errors import file_error_reason
from gateway.core.text import escape_unprintable
from gateway.store.audit import add_to_file
from gateway.store.errors import DamagedDatabase, NewerSchema, StateLocked, StoreError
from gateway.store.migrations import MIGRATIONS, create_schema
from gateway.store.records import AuditRow
from gateway.store.sqlite.file import sync_directory
from gateway.store.sqlite.journal import JOURNAL_END
from gateway.store.sqlite.lock import DATABASE_NAME, check_owner, lock_state_dir

BACKUP_DIR: Final = "backups"
"""The directory of backups in the state directory."""

PART: Final = ".part"
"""The end of the name of a copy that is not complete."""

_NAME: Final = re.compile(r"gateway-\d{8}T\d{6}Z\.db")
_PAGES: Final = 512
"""The pages of one step, after which `Progress` is called."""
_MAX_NAMES: Final = 200
"""Characters of a message, of what a file has and should not."""
_RESERVE: Final = 16 * 2**20
"""Bytes that a copy leaves free on the disk."""

Progress = Callable[[int, int], None]
"""Gets the number of copied pages, and of all pages."""


@dataclass(frozen=True, slots=True)
class Copied:
    """`schema` is its version. `removed` are older backups."""

    file: Path
    size: int
    schema: int
    removed: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True)
class Restored:
    """`replaced` is the folder with the database that was there before, or None."""

    file: Path
    schema: int
    replaced: Path | None


@dataclass(frozen=True, slots=True)
class Compacted:
    size_before: int
    size: int


def backup_name(now: datetime) -> str:
    return f"gateway-{now.astimezone(UTC):%Y%m%dT%H%M%S}Z.db"


def back_up(
    state_dir: Path, target: Path, progress: Progress, *, keep: int | None = None
) -> Copied:
    """Copies the database, also while a gateway runs. With `keep`, removes all but the newest
    backups in the target's directory that have a name of `backup_name`. Raises StoreError."""
    source = state_dir / DATABASE_NAME
    check_owner(state_dir)
    if not source.is_file():
        raise StoreError(f"there is no database {source}")
    if target.parent == state_dir / BACKUP_DIR:
        with _file_errors(target.parent):
            target.parent.mkdir(mode=0o700, exist_ok=True)
    if target.exists() or target.is_symlink():
        raise StoreError(f"{target} exists: name another file; backups are never overwritten")
    with _draft(target) as draft, _reader(source) as reader:
        _check_space(target.parent, _value(reader, "page_count") * _value(reader, "page_size"))
        _copy(reader, draft, progress)
        schema = check_copy(draft, source)
        size = draft.stat().st_size
        draft.rename(target)
    remove_empty_log(state_dir)
    return Copied(target, size, schema, _remove_old(target.parent, keep))


def restore(
    state_dir: Path,
    backup: Path,
    progress: Progress,
    now: datetime,
    note: AuditRow | None = None,
) -> Restored:
    """Replaces the database, while no gateway runs. There is a complete one at any moment. `note`
    is added to its audit log. Raises StoreError for a file that is no database of this or an older
    release."""
    target = state_dir / DATABASE_NAME
    if not backup.is_file():
        raise StoreError(f"there is no file {backup}")
    with lock_state_dir(state_dir), _draft(target) as draft:
        _check_space(state_dir, backup.stat().st_size)
        with _reader(backup) as reader:
            _copy(reader, draft, progress)
        schema = check_copy(draft, backup, "restore another backup")
        _check_objects(draft, backup, schema)
        if note is not None:
            add_to_file(draft, note)
        replaced = _set_aside(target, now) if target.exists() else None
        draft.rename(target)
    return Restored(target, schema, replaced)


def compact(state_dir: Path) -> Compacted:
    """Rewrites the file without its free pages, while no gateway runs; from then on a running
    gateway can shrink it. Raises StoreError."""
    path = state_dir / DATABASE_NAME
    check_owner(state_dir)
    if not path.is_file():
        raise StoreError(f"there is no database {path}")
    with lock_state_dir(state_dir), _draft(path) as draft:
        before = path.stat().st_size
        with _database_errors(path), closing(sqlite3.connect(path, isolation_level=None)) as owner:
            owner.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            pages = _value(owner, "page_count") - _value(owner, "freelist_count")
            _check_space(state_dir, pages * _value(owner, "page_size"))
            owner.execute("PRAGMA auto_vacuum = INCREMENTAL")
            owner.execute("VACUUM INTO ?", (str(draft),))
        check_copy(draft, path)
        size = draft.stat().st_size
        draft.rename(path)
    return Compacted(before, size)


@contextmanager
def trial_copy(state_dir: Path, progress: Progress) -> Iterator[Path]:
    """A copy of the database beside it, for the time of the block."""
    with _draft(state_dir / f"{DATABASE_NAME}.trial") as draft:
        with _reader(state_dir / DATABASE_NAME) as reader:
            size = _value(reader, "page_count") * _value(reader, "page_size")
            _check_space(state_dir, 3 * size)  # the trial's write-ahead log, and its own copy
            _copy(reader, draft, progress)
        yield draft


def size_with_log(path: Path) -> int:
    """Bytes of a database and its write-ahead log, which may have most of it."""
    log = path.with_name(f"{path.name}-wal")
    with suppress(FileNotFoundError):
        return path.stat().st_size + log.stat().st_size
    return path.stat().st_size


def check_copy(file: Path, source: Path, advice: str = "gateway db check says more") -> int:
    """The schema of a copy. Raises StoreError if it is damaged, or no database of this or an
    older release; the messages name what it is a copy of."""
    with _database_errors(source), closing(sqlite3.connect(file, isolation_level=None)) as copy:
        copy.execute("PRAGMA journal_mode = DELETE")  # so that it is a single file
        finding = copy.execute("PRAGMA quick_check(1)").fetchone()[0]
        if finding != "ok":
            reason = " ".join(finding.split())
            raise DamagedDatabase(f"{source} is damaged ({reason}): {advice}")
        return _read_schema(copy, source)


_OBJECTS: Final = """
    SELECT type || ' ' || name, coalesce(sql, '') FROM sqlite_master
    WHERE name NOT IN ('sqlite_stat1', 'sqlite_stat4')
    UNION SELECT 'user_version ' || user_version, '' FROM pragma_user_version WHERE user_version
    UNION SELECT 'application_id ' || application_id, '' FROM pragma_application_id
    WHERE application_id
"""
"""The objects except what ANALYZE adds, and the numbers of the head that no gateway sets."""


def _check_objects(file: Path, source: Path, schema: int) -> None:
    """Raises StoreError if a copy has other tables, columns, indexes, triggers or views than the
    migrations up to its schema leave: a trigger would act on every row."""
    with closing(sqlite3.connect(":memory:")) as model, closing(sqlite3.connect(file)) as copy:
        create_schema(model, schema)
        own, found = (
            {(name, "".join(sql.split())) for name, sql in each.execute(_OBJECTS)}
            for each in (model, copy)
        )
    if others := sorted({name for name, _ in own ^ found}):
        names = escape_unprintable(", ".join(others)[:_MAX_NAMES])
        raise StoreError(
            f"{source} is not as schema {schema} of a gateway is: {names}: restore another backup"
        )


def schema_of(path: Path) -> int:
    """Returns the schema of a database, without a check of its pages. Raises as `check_copy`."""
    with _reader(path) as reader:
        return _read_schema(reader, path)


def _read_schema(connection: sqlite3.Connection, path: Path) -> int:
    query = "SELECT value FROM settings WHERE name = 'schema_version'"
    tables = "SELECT 1 FROM sqlite_master WHERE name = 'settings'"
    row = connection.execute(query).fetchone() if connection.execute(tables).fetchone() else None
    if row is None or not str(row[0]).isdecimal():
        raise StoreError(f"{path} is no database of a gateway")
    if (schema := int(row[0])) > len(MIGRATIONS):
        raise NewerSchema(
            f"{path} has schema {schema}, this release supports schemas up to {len(MIGRATIONS)}: "
            "use the newer release"
        )
    return schema


def free_space(directory: Path) -> int:
    """Bytes that this process can still write."""
    return shutil.disk_usage(directory).free


def _check_space(directory: Path, size: int) -> None:
    free = free_space(directory)
    if free < size + _RESERVE:
        raise StoreError(
            f"not enough space in {directory}: {_mib(size + _RESERVE)} are needed, "
            f"{_mib(free)} are free"
        )


def _mib(size: int) -> str:
    return f"{size / 2**20:,.1f} MiB"


@contextmanager
def _reader(path: Path) -> Iterator[sqlite3.Connection]:
    """A file that nobody has open, such as a backup in a directory of others, is read as it is."""
    has_log = path.with_name(f"{path.name}-wal").exists() or path.name == DATABASE_NAME
    url = f"{path.absolute().as_uri()}?{'mode=ro' if has_log else 'immutable=1'}"
    connect = partial(sqlite3.connect, url, uri=True, isolation_level=None, timeout=10)
    with _database_errors(path), closing(connect()) as reader:
        yield reader


def _value(connection: sqlite3.Connection, pragma: str) -> int:
    return int(connection.execute(f"PRAGMA {pragma}").fetchone()[0])


def _copy(reader: sqlite3.Connection, draft: Path, progress: Progress) -> None:
    # In a transaction: the copy would begin again with every commit of the gateway.
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM sqlite_master").fetchone()
    with _database_errors(draft), closing(sqlite3.connect(draft, isolation_level=None)) as copy:
        copy.execute("PRAGMA journal_mode = OFF")  # a copy that fails is removed
        reader.backup(
            copy, pages=_PAGES, progress=lambda _, left, total: progress(total - left, total)
        )
    reader.execute("ROLLBACK")


@contextmanager
def _draft(target: Path) -> Iterator[Path]:
    """A new file beside the target, only for its owner, which has to be renamed; else it is
    removed. Of two copies to one target the second is rejected."""
    draft = target.with_name(f"{target.name}{PART}")
    with _file_errors(target.parent):
        handle = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if not _is_locked_by_us(handle):
            raise StoreError(f"{draft} is written by another process")
        try:
            os.ftruncate(handle, 0)
            with _file_errors(draft):
                yield draft
                os.fsync(handle)
        finally:
            with suppress(FileNotFoundError):  # it was renamed
                if os.stat(draft).st_ino == os.fstat(handle).st_ino:
                    draft.unlink()
            for end in ("-journal", "-wal", "-shm"):
                draft.with_name(f"{draft.name}{end}").unlink(missing_ok=True)
            sync_directory(target.parent)
    finally:
        os.close(handle)


def _is_locked_by_us(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _set_aside(path: Path, now: datetime) -> Path:
    """Links the database and moves its logs into a new folder, which is returned."""
    with suppress(sqlite3.Error), closing(sqlite3.connect(path)) as owner:
        owner.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # a damaged one keeps its log
    folder = path.with_name(f"{path.name}.replaced-{now.astimezone(UTC):%Y%m%dT%H%M%S}Z")
    folder.mkdir(mode=0o700)
    for end in ("-wal", "-shm", JOURNAL_END):
        log = path.with_name(f"{path.name}{end}")
        if log.exists():
            log.rename(folder / log.name)
    os.link(path, folder / path.name)
    sync_directory(folder)
    return folder


def remove_empty_log(state_dir: Path) -> None:
    """Removes the empty log that the reader has left if no gateway runs; only a writer can."""
    path = state_dir / DATABASE_NAME
    with (
        suppress(StateLocked, sqlite3.Error),
        lock_state_dir(state_dir),
        closing(sqlite3.connect(path)) as owner,
    ):
        owner.execute("SELECT count(*) FROM sqlite_master").fetchone()


def _remove_old(directory: Path, keep: int | None) -> tuple[Path, ...]:
    """Removes old backups, and what interrupted backups left."""
    if keep is None:
        return ()
    backups = sorted(each for each in directory.iterdir() if _NAME.fullmatch(each.name))
    old = backups[: max(0, len(backups) - keep)]
    for part in directory.glob(f"gateway-*.db{PART}*"):
        if _NAME.fullmatch(part.name.partition(PART)[0]) and not _is_written(part):
            part.unlink(missing_ok=True)
    for file in old:
        file.unlink(missing_ok=True)
    return tuple(old)


def _is_written(part: Path) -> bool:
    with suppress(FileNotFoundError), part.open("rb") as file:
        return not _is_locked_by_us(file.fileno())
    return False


@contextmanager
def _file_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        place = Path(error.filename) if isinstance(error.filename, str) else path
        raise StoreError(f"cannot write {path}: {file_error_reason(error, place)}") from error


@contextmanager
def _database_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.OperationalError as error:
        raise StoreError(f"{path} cannot be used: {error}") from error
    except sqlite3.DatabaseError as error:
        raise DamagedDatabase(f"{path} is no database, or damaged: {error}") from error
