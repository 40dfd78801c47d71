"""The database, opened only for reading: a running gateway is not disturbed."""

from __future__ import annotations

import shutil
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from gateway.admin.units import format_duration
from gateway.doctor.findings import Area, Finding
from gateway.runtime import unix_microseconds
from gateway.store.migrations import MIGRATIONS
from gateway.store.sqlite.backup import size_with_log
from gateway.store.sqlite.lock import DATABASE_NAME

_CHECK_TIMEOUT: Final = 20.0
"""Seconds; `gateway db check` has no limit."""
_PROGRESS_STEPS: Final = 10_000
_MIB: Final = 2**20
_LARGE_WAL: Final = 256 * _MIB
_LITTLE_DISK: Final = 1024 * _MIB
_NO_DISK: Final = 100 * _MIB
_OLD_REQUEST_US: Final = 3_600_000_000
_CLOCK_TOLERANCE_US: Final = 60_000_000


def check_database(
    state_dir: Path, *, running: bool, now_us: Callable[[], int] = unix_microseconds
) -> list[Finding]:
    """`running`: whether a gateway has it open."""
    area, path = Area("database"), state_dir / DATABASE_NAME
    _check_disk(area, state_dir)
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        area.ok(str(path), "does not exist yet: the first start creates it")
        return area.findings
    except OSError as error:
        area.warn(str(path), f"cannot be read: {error.strerror}", _OWN_USER)
        return area.findings
    if not size:
        area.problem(str(path), "is empty (0 bytes)", "move it away, or restore a backup")
        return area.findings
    try:
        with closing(sqlite3.connect(_url(path, running=running), uri=True)) as database:
            _check_pages(area, path, size_with_log(path), database)
            _check_schema(area, path, database)
            _check_rows(area, path, database, running=running, now=now_us())
    except sqlite3.OperationalError as error:
        area.warn(str(path), f"cannot be read: {error}", _OWN_USER)
    except sqlite3.DatabaseError as error:
        area.problem(str(path), f"is damaged: {error}", _RESTORE)
    _check_wal(area, path, running=running)
    return area.findings


_OWN_USER: Final = "run this command as the gateway's own user"
_RESTORE: Final = "stop the gateway, move the file away and restore a backup; its start says how"


def _url(path: Path, *, running: bool) -> str:
    """Builds the URL of the file. Without a write-ahead log nobody has it open; opened as
    immutable, none is created."""
    is_open = running or path.with_name(f"{path.name}-wal").exists()
    return f"{path.absolute().as_uri()}?{'mode=ro' if is_open else 'immutable=1'}"


def _check_pages(area: Area, path: Path, size: int, database: sqlite3.Connection) -> None:
    deadline = time.monotonic() + _CHECK_TIMEOUT
    database.set_progress_handler(lambda: time.monotonic() > deadline, _PROGRESS_STEPS)
    try:
        finding = _value(database, "PRAGMA quick_check(1)")
    except sqlite3.OperationalError as error:
        if "interrupted" not in str(error):
            raise
        area.warn(str(path), f"not checked within {_CHECK_TIMEOUT:g} s", "gateway db check")
        return
    finally:
        database.set_progress_handler(None, 0)
    if finding == "ok":
        area.ok(str(path), f"complete, {size / _MIB:,.1f} MiB")
    else:
        area.problem(str(path), f"is damaged: {finding}", _RESTORE)


def _check_schema(area: Area, path: Path, database: sqlite3.Connection) -> None:
    text = _value(database, "SELECT value FROM settings WHERE name = 'schema_version'")
    version, newest = int(text or 0), len(MIGRATIONS)
    if version > newest:
        remedy = "start the newer release, or restore the copy that it made before it migrated"
        area.problem("schema", f"{version}, this release supports up to {newest}", remedy)
    elif version < newest:
        remedy = "nothing to do; have free disk space of the size of the database"
        area.warn("schema", f"{version}: the next start copies and migrates to {newest}", remedy)
    else:
        area.ok("schema", str(version))


def _check_rows(
    area: Area, path: Path, database: sqlite3.Connection, *, running: bool, now: int
) -> None:
    query = "SELECT count(*), min(started_at) FROM requests WHERE state = 'running'"
    count, oldest = database.execute(query).fetchone()
    if not count:
        area.ok("open rows", "none")
    elif running and now - oldest > _OLD_REQUEST_US:
        age = format_duration(now - oldest)
        area.warn("open rows", f"{count}, the oldest for {age}", "gateway logs list --limit 20")
    elif running:
        area.ok("open rows", f"{count} running requests")
    else:
        area.ok("open rows", f"{count} from the last run: the next start ends them")
    newest = _value(database, "SELECT started_at FROM requests ORDER BY id DESC LIMIT 1")
    if newest is not None and newest > now + _CLOCK_TOLERANCE_US:
        area.problem(
            "clock",
            f"the newest row is {format_duration(newest - now)} in the future",
            "the clock was set back: correct it, timedatectl shows its state",
        )


def _check_wal(area: Area, path: Path, *, running: bool) -> None:
    try:
        size = path.with_name(f"{path.name}-wal").stat().st_size
    except OSError:
        return
    text = f"{size / _MIB:,.1f} MiB"
    if size > _LARGE_WAL:
        remedy = "end other programs that hold the database open, then restart the gateway"
        area.warn("write-ahead log", f"{text}: something keeps it from being merged", remedy)
    elif not running and size:
        area.ok("write-ahead log", f"{text} of a run that was killed: the next start merges it")
    else:
        area.ok("write-ahead log", text)


def _check_disk(area: Area, state_dir: Path) -> None:
    path = state_dir.absolute()
    place = next(each for each in (path, *path.parents) if _is_dir(each))
    free = shutil.disk_usage(place).free
    text = f"{free / 2**30:,.1f} GiB free at {place}"
    remedy = "free some space, or keep logs for less time (logs: in the configuration)"
    if free < _NO_DISK:
        area.problem("disk", f"{text}: requests are refused once nothing can be recorded", remedy)
    elif free < _LITTLE_DISK:
        area.warn("disk", text, remedy)
    else:
        area.ok("disk", text)


def _is_dir(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:
        return False


def _value(database: sqlite3.Connection, query: str) -> Any:
    row = database.execute(query).fetchone()
    return row and row[0]
