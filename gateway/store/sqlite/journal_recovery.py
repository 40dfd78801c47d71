"""Brings into the database what a gateway that was killed left in its journal."""

from __future__ import annotations

import fcntl
import logging
from collections.abc import Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path

from sqlalchemy.engine.interfaces import DBAPICursor

from gateway.store.database import Database
from gateway.store.errors import StoreError, error_reason
from gateway.store.log.batch import MAX_BATCH
from gateway.store.log.entry_values import ADVICE
from gateway.store.migrations import JOURNAL_MARK
from gateway.store.records import LogEntry
from gateway.store.sqlite.file import sync_directory
from gateway.store.sqlite.journal_format import BLOCK, BLOCKS, InvalidJournal, decode
from gateway.store.sqlite.statements import Statements
from gateway.store.sqlite.writer import set_mark, write_entries

_log = logging.getLogger(__name__)


async def recover(database: Database, path: Path) -> None:
    """Writes what the database does not have, and removes the journal. That of a running gateway
    is left alone. Raises StoreError for a file that is not this database's, or damaged."""
    image = _read(path)
    if image is None:
        return
    boot_id, number = await database.write_rows(_mark)
    try:
        contents = decode(image)
        frames = contents.after(number if boot_id == contents.boot_id else 0)
    except InvalidJournal as error:
        raise StoreError(f"{path} {error}. {ADVICE}") from error
    if frames and boot_id != contents.boot_id:
        raise StoreError(f"{path} is the journal of another database. {ADVICE}")
    entries = list(chain.from_iterable(frames.values()))
    statements = Statements(boot_id)
    for start in range(0, len(entries), MAX_BATCH):
        await _write(database, statements, entries[start : start + MAX_BATCH])
    if entries:
        await database.write_rows(lambda cursor: set_mark(cursor, boot_id, max(frames)))
        _log.warning("%d entries of the request log were recovered from %s", len(entries), path)
    _remove(path)


async def _write(database: Database, statements: Statements, entries: Sequence[LogEntry]) -> None:
    """Writes each once, however often this is interrupted: they are looked up."""
    try:
        await database.write_rows(lambda cursor: write_entries(cursor, statements, entries, None))
    except Exception as error:
        if not database.is_row_error(error):
            raise
        if len(entries) == 1:
            _log.error("cannot store the row of %s: %s", entries[0].row.id, error_reason(error))
            return
        for entry in entries:
            await _write(database, statements, [entry])


def _read(path: Path) -> bytes | None:
    """Returns None if there is no journal, or a gateway writes it."""
    with suppress(FileNotFoundError, BlockingIOError), path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return file.read(BLOCKS * BLOCK)
    return None


def _remove(path: Path) -> None:
    path.unlink()
    sync_directory(path.parent)


def _mark(cursor: DBAPICursor) -> tuple[str, int]:
    """Returns the boot whose journal was written last, and the number of the last frame that the
    database has."""
    cursor.execute("SELECT value FROM settings WHERE name = ?", (JOURNAL_MARK,))
    boot_id, _, number = (cursor.fetchone() or [""])[0].partition(" ")
    return boot_id, int(number or 0)
