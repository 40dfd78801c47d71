"""Writes the recorder's entries to a file: a few statements for each batch."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Container, Sequence
from concurrent.futures import Executor
from functools import partial
from pathlib import Path
from typing import Final

from sqlalchemy.engine.interfaces import DBAPICursor

from gateway.config.file_errors import file_error_reason
from gateway.store.database import Database
from gateway.store.errors import InvalidRows, error_reason
from gateway.store.log.batch import build_batch, settlements_without_intent
from gateway.store.log.entry_writer import EntryWriter
from gateway.store.migrations import JOURNAL_MARK
from gateway.store.records import LogEntry
from gateway.store.sqlite.journal import Journal
from gateway.store.sqlite.links import add_link
from gateway.store.sqlite.recovery import mark_interrupted
from gateway.store.sqlite.statements import Statements

_PAUSE: Final = 60.0  # seconds without the journal after it could not be written
_SET_MARK: Final = "INSERT OR REPLACE INTO settings (name, value) VALUES (?, ?)"

_log = logging.getLogger(__name__)


class SqliteWriter(EntryWriter):
    """Writes through the database's own connection, and to a journal."""

    def __init__(
        self, database: Database, boot_id: str, journal_path: Path, thread: Executor
    ) -> None:
        """`thread` is that of the connection."""
        self._database = database
        self._boot_id = boot_id
        self._journal_path = journal_path
        self._run = partial(asyncio.get_running_loop().run_in_executor, thread)
        self._statements = Statements(boot_id)
        self._journal: Journal | None = None
        self._resumes_at = 0.0  # after it could not be written

    async def open(self) -> None:
        if self._journal is not None:
            return
        path = self._journal_path
        try:
            self._journal = await self._run(Journal, path, self._boot_id)
        except OSError as error:
            reason = file_error_reason(error, path)
            _log.warning("without the journal %s requests wait for commits: %s", path, reason)
        else:
            await self._database.write_rows(lambda cursor: set_mark(cursor, self._boot_id, 0))
            self.has_journal = True

    async def settle_interrupted(self) -> int:
        left = self._database.left_by_earlier_boots(self._boot_id)
        settle = partial(mark_interrupted, statements=self._statements, left_by=left)
        return await self._database.write(settle)

    async def keep(self, entries: Sequence[LogEntry]) -> bool:
        if self._journal is None:
            return False
        pause = 0.0
        try:
            if await self._run(self._journal.append, entries):
                return True
        except (OSError, TypeError) as error:
            pause = _PAUSE
            _log.warning("the journal cannot be written, requests wait for commits: %s", error)
        self.has_journal, self._resumes_at = False, time.monotonic() + pause
        return False

    async def write(
        self, entries: Sequence[LogEntry], opened: Container[str] | None, left: int = 0
    ) -> bool:
        journal = self._journal
        number = 0 if journal is None else journal.covered(left)

        def write(cursor: DBAPICursor) -> None:
            write_entries(cursor, self._statements, entries, opened)
            if number:
                set_mark(cursor, self._boot_id, number)

        try:
            await self._database.write_rows(write)
        except Exception as error:
            if self._database.is_row_error(error):
                raise InvalidRows(error_reason(error)) from error
            raise
        if journal is not None:
            journal.release(number)
            if not left and not self.has_journal:
                self.has_journal = time.monotonic() >= self._resumes_at
        return True

    async def close(self, seconds: float) -> None:
        journal, self._journal, self.has_journal = self._journal, None, False
        if journal is not None:
            await self._run(journal.close)


def set_mark(cursor: DBAPICursor, boot_id: str, number: int) -> None:
    """Notes that the database has the boot's journal up to this frame."""
    cursor.execute(_SET_MARK, (JOURNAL_MARK, f"{boot_id} {number}"))


def write_entries(
    cursor: DBAPICursor,
    statements: Statements,
    entries: Sequence[LogEntry],
    opened: Container[str] | None,
) -> None:
    """Write at most `MAX_BATCH` entries; `opened` as for `EntryWriter.write`."""
    # A commit whose result was lost may have happened: after a failure every row is looked up.
    # Otherwise the rows that this run has opened are known: only the recorder settles them.
    if opened is None:
        opened, ids = (), [entry.row.id for entry in entries]
    else:
        ids = settlements_without_intent(entries, opened)
    batch = build_batch(entries, statements.states.run(cursor, ids), opened)
    statements.insert_intent.run(cursor, batch.intents)
    statements.insert_complete.run(cursor, batch.complete_rows)
    statements.update_settled.run(cursor, batch.settled_rows)
    statements.insert_attempt.run(cursor, batch.attempts)
    if batch.searches:
        statements.insert_search.run(cursor, batch.searches)
    statements.add_hour.run(cursor, batch.hour_deltas)
    statements.add_to_token.run(cursor, batch.token_deltas)
    statements.add_traffic.run(cursor, batch.traffic_deltas)
    add_link(cursor, statements.boot_id, batch.ended_rows, batch.attempts, batch.searches)
