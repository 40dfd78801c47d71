"""Writes the recorder's entries to a file: a few statements for each batch."""

from __future__ import annotations

from collections.abc import Container, Sequence
from functools import partial

from sqlalchemy.engine.interfaces import DBAPICursor

from gateway.store.database import Database
from gateway.store.errors import InvalidRows, error_reason
from gateway.store.log.batch import build_batch, settlements_without_intent
from gateway.store.log.entry_writer import EntryWriter
from gateway.store.records import LogEntry
from gateway.store.sqlite.recovery import mark_interrupted
from gateway.store.sqlite.statements import Statements


class SqliteWriter(EntryWriter):
    """Writes through the database's own connection."""

    def __init__(self, database: Database, boot_id: str) -> None:
        self._database = database
        self._boot_id = boot_id
        self._statements = Statements(boot_id)

    async def settle_interrupted(self) -> int:
        left = self._database.left_by_earlier_boots(self._boot_id)
        settle = partial(mark_interrupted, statements=self._statements, left_by=left)
        return await self._database.write(settle)

    async def write(self, entries: Sequence[LogEntry], opened: Container[str] | None) -> bool:
        try:
            await self._database.write_rows(lambda cursor: self._write(cursor, entries, opened))
        except Exception as error:
            if self._database.is_row_error(error):
                raise InvalidRows(error_reason(error)) from error
            raise
        return True

    def _write(
        self, cursor: DBAPICursor, entries: Sequence[LogEntry], opened: Container[str] | None
    ) -> None:
        # A commit whose result was lost may have happened: after a failure every row is looked up.
        # Otherwise the rows that this run has opened are known: only the recorder settles them.
        if opened is None:
            opened, ids = (), [entry.row.id for entry in entries]
        else:
            ids = settlements_without_intent(entries, opened)
        statements = self._statements
        batch = build_batch(entries, statements.states.run(cursor, ids), opened)
        statements.insert_intent.run(cursor, batch.intents)
        statements.insert_complete.run(cursor, batch.complete_rows)
        statements.update_settled.run(cursor, batch.settled_rows)
        statements.insert_attempt.run(cursor, batch.attempts)
        if batch.searches:
            statements.insert_search.run(cursor, batch.searches)
        statements.add_hour.run(cursor, batch.hour_deltas)
        statements.add_to_token.run(cursor, batch.token_deltas)
