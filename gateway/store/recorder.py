"""The one writer of exchanges: handed rows at any moment, it commits them in batches.

Whatever is queued when the last commit returns is the next batch, so an idle ledger answers at
once and a busy one shares its commits. After a batch of several intents it pauses for a few
milliseconds; settlements, for which nobody waits, wait for the next intents. `intend`, `settle` and
`refuse` are synchronous, so that a handler may call them while it is being cancelled. Rows wait,
however long, where the database is locked, full or gone. This room must not know what an exchange
is about.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice

from sqlalchemy.engine.interfaces import DBAPICursor
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, ProgrammingError

from gateway.store.batch import build_batch, sanitize_entry, settlements_without_intent
from gateway.store.database import Database
from gateway.store.records import Entry, Intent, Settlement
from gateway.store.recovery import mark_interrupted
from gateway.store.statements import MAX_LOOKUP, Statements

_log = logging.getLogger(__name__)

_LINGER = 0.02  # seconds that a settlement waits for company
_REST_PER_INTENT = 0.002  # seconds between two commits, for each intent of the first but one
_LONGEST_REST = 0.005
_BATCH = MAX_LOOKUP  # entries of one transaction
_PAUSES = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0)  # seconds between tries of a batch that failed
_WARNING_INTERVAL = 1.0  # seconds


class Recorder:
    """Records exchanges: each gets one row, each settled row moves its token's totals and its
    hour's sums once.

    Made inside the running loop, used by that loop only, between `start` and `close`. There is
    one recorder to a database.
    """

    def __init__(self, database: Database, *, boot_id: str | None = None) -> None:
        self.boot_id = boot_id or secrets.token_hex(8)
        self.on_commit: Callable[[Sequence[Entry]], None] | None = None
        """Called after each commit with what was committed, in its order; it must not raise."""
        self._database = database
        self._statements = Statements(database.dialect, self.boot_id)
        self._loop = asyncio.get_running_loop()
        self._queue: deque[Entry] = deque()
        self._waiting: dict[str, asyncio.Future[None]] = {}
        self._opened: dict[str, Intent] = {}
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._closing = False
        self._leaving = asyncio.Event()
        self._ripe = False
        self._ripening: asyncio.TimerHandle | None = None
        self._resting: asyncio.TimerHandle | None = None
        self._limit = _BATCH
        self._failures = 0
        self._warned_at = float("-inf")
        self._overtaken = 0
        self._overtaken_told_at = float("-inf")

    @property
    def backlog(self) -> int:
        """Entries that wait for a commit; a refused exchange counts as two."""
        return len(self._queue)

    @property
    def alive(self) -> bool:
        """Whether the writer task runs: between `start` and `close` it always should."""
        return self._task is not None and not self._task.done()

    async def start(self) -> None:
        """Settle what an earlier boot left open as interrupted, then take up the work."""
        settle = partial(mark_interrupted, statements=self._statements, boot_id=self.boot_id)
        if count := await self._database.write(settle):
            _log.warning("%d exchanges were interrupted by the end of an earlier run", count)
        self._launch()

    def record_intent(self, intent: Intent) -> asyncio.Future[None]:
        """Queue an open row. The future is resolved once the row is committed, and never fails:
        while the database cannot be written it stays pending. Cancelling it changes nothing.
        """
        future = self._waiting[intent.id] = self._loop.create_future()
        self._push(intent)
        if self._resting is None:
            self._wake.set()
        return future

    def record_settlement(self, settlement: Settlement) -> None:
        """Queue the end of an exchange that was intended; a second one for it changes nothing."""
        self._push(settlement)
        self._hurry_later()

    def record_rejection(self, intent: Intent, settlement: Settlement) -> None:
        """Queue the row of an exchange that ended before it began, whole and counted at once."""
        self._push(intent)
        self._push(settlement)
        self._hurry_later()

    def note_uncommitted(self, exchange_id: str) -> None:
        """The exchange goes on before its intent is on record: where the ledger cannot be written
        there may be hundreds in a second, so one line tells of all of them."""
        self._overtaken += 1
        now = self._loop.time()
        if now - self._overtaken_told_at >= _WARNING_INTERVAL:
            text = "%d replies went on before their intents were on record, the last of them %s"
            _log.warning(text, self._overtaken, exchange_id)
            self._overtaken, self._overtaken_told_at = 0, now

    async def close(self, deadline: float = 10.0) -> None:
        """Commit everything queued and stop; after `deadline` seconds what is left is lost."""
        if self._task is None:
            return
        self._closing = True
        self._leaving.set()
        if self._task.done():
            self._launch()
        self._wake.set()
        await asyncio.wait({self._task}, timeout=deadline)
        if not self._task.done():
            self._task.cancel()
            await asyncio.wait({self._task})
        if self._queue:
            _log.error("the ledger closed with %d entries that it could not write", self.backlog)

    def _push(self, entry: Entry) -> None:
        self._queue.append(entry)
        if self._task is not None and self._task.done():
            self._relaunch(entry)

    def _relaunch(self, entry: Entry) -> None:
        if self._closing:
            _log.error("the ledger is closed, so what happened to %s is lost", entry.id)
        else:
            self._launch()

    def _launch(self) -> None:
        # As after a failure: an earlier task may have ended in the middle of a commit.
        self._failures = 1
        self._task = self._loop.create_task(self._run(), name="recorder")  # watched by _ended
        self._task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not self._closing:
            fault = None if task.cancelled() else task.exception()
            _log.critical("the ledger's writer ended; the next row restarts it", exc_info=fault)

    async def _run(self) -> None:
        while self._queue or not self._closing:
            if self._due():
                await self._advance(list(islice(self._queue, self._limit)))
            else:
                self._wake.clear()
                await self._wake.wait()

    def _due(self) -> bool:
        if self._ripe or self._closing or len(self._queue) >= self._limit:
            return bool(self._queue)
        return bool(self._waiting) and self._resting is None

    def _hurry_later(self) -> None:
        """Nobody waits for a settlement: it shares the next intent's commit if one comes soon."""
        if self._ripening is None:
            self._ripening = self._loop.call_later(_LINGER, self._ripen)

    def _ripen(self) -> None:
        self._ripening = None
        self._ripe = True
        self._wake.set()

    async def _advance(self, entries: list[Entry]) -> None:
        if len(self._queue) == len(entries):
            self._ripe = False
            if self._ripening is not None:
                self._ripening.cancel()
                self._ripening = None
        try:
            await self._database.write_rows(lambda cursor: self._write(cursor, entries))
        except Exception as fault:
            self._failures += 1
            self._ripe = True
            await self._recover(entries, fault)
        else:
            self._failures = 0
            self._limit = min(self._limit * 2, _BATCH)
            self._rest(self._acknowledge(entries))
            if self.on_commit is not None:
                self.on_commit(entries)

    def _write(self, cursor: DBAPICursor, entries: list[Entry]) -> None:
        # A commit whose answer was lost may have happened: after a failure every row is looked at.
        # Else what this run has opened is known: nobody but the recorder settles it.
        statements = self._statements
        opened: Mapping[str, Intent] = {} if self._failures else self._opened
        asked = (
            [entry.id for entry in entries]
            if self._failures
            else settlements_without_intent(entries, opened)
        )
        batch = build_batch(entries, statements.row_states.run(cursor, asked), opened)
        statements.insert_intent.run(cursor, batch.intents)
        statements.insert_complete.run(cursor, batch.complete_rows)
        statements.update_settled.run(cursor, batch.settlements)
        statements.insert_attempt.run(cursor, batch.attempts)
        statements.add_hour.run(cursor, batch.hour_deltas)
        statements.add_to_token.run(cursor, batch.token_deltas)

    def _rest(self, intents: int) -> None:
        """After several intents the next ones wait a little, for a commit costs as much processor
        time as ten rows. One client alone sends one at a time, and never waits."""
        seconds = min((intents - 1) * _REST_PER_INTENT, _LONGEST_REST)
        if seconds > 0 and self._resting is None:
            self._resting = self._loop.call_later(seconds, self._rested)

    def _rested(self) -> None:
        self._resting = None
        self._wake.set()

    def _acknowledge(self, entries: Iterable[Entry]) -> int:
        """Let go of what is committed, and answer how many intents that were."""
        intents = 0
        for entry in entries:
            self._queue.popleft()
            if not isinstance(entry, Intent):
                self._opened.pop(entry.id, None)
                continue
            intents += 1
            self._opened[entry.id] = entry
            future = self._waiting.pop(entry.id, None)
            if future is not None and not future.done():
                future.set_result(None)
        return intents

    async def _recover(self, entries: list[Entry], fault: Exception) -> None:
        """Wait where no row is at fault; else repair them; else find the one that it is and give
        that one up."""
        if not _is_of_a_row(fault):
            self._warn(fault)
            await self._pause(_PAUSES[min(self._failures, len(_PAUSES)) - 1])
            return
        repaired = [sanitize_entry(entry) for entry in entries]
        if repaired != entries:
            for position, entry in enumerate(repaired):
                self._queue[position] = entry
        elif len(entries) > 1:
            self._limit = 1
        else:
            lost = self._queue.popleft()
            self._opened.pop(lost.id, None)
            self._waiting.pop(lost.id, None)
            what = type(lost).__name__.lower()
            _log.error("the ledger cannot hold the %s of %s: %s", what, lost.id, _reason(fault))

    async def _pause(self, seconds: float) -> None:
        """Whoever closes the ledger meanwhile does not wait for the end of it."""
        if self._closing:
            await asyncio.sleep(seconds)
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._leaving.wait()

    def _warn(self, fault: Exception) -> None:
        now = self._loop.time()
        if now - self._warned_at >= _WARNING_INTERVAL:
            self._warned_at = now
            _log.warning("the ledger cannot be written, %d wait: %s", self.backlog, _reason(fault))


def _is_of_a_row(fault: Exception) -> bool:
    """Whether a row is at fault, not the database: trying it again would fail for ever."""
    if isinstance(fault, DBAPIError) and fault.connection_invalidated:
        return False
    return isinstance(
        fault, DataError | IntegrityError | ProgrammingError | UnicodeError | OverflowError
    )


def _reason(fault: Exception) -> str:
    # Without the statement that SQLAlchemy adds: the log is read by people.
    return str(fault.orig) if isinstance(fault, DBAPIError) else repr(fault)
