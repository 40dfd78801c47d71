"""The only writer of exchanges: takes rows at any moment and commits them in batches.

Where there is a journal, entries are made durable in it at once and are committed a little later,
most requests together with their end. Otherwise whatever is queued when a commit returns is the
next batch, so an idle ledger commits at once and a busy one shares its commits. After a batch of
several intents it pauses for a few milliseconds; settlements, which nothing waits for, wait for the
next intents, or on a database server for each other. `record_*` are synchronous, so that a
handler can call them while it is being cancelled. Rows stay queued for as long as the database is
locked, full or gone.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import compress, islice
from operator import not_
from typing import TYPE_CHECKING, Final

from gateway.config.limits import RequestLog
from gateway.store.database import Database
from gateway.store.errors import InvalidRows, RowsLost, error_reason
from gateway.store.log.batch import MAX_BATCH, sanitize_entry
from gateway.store.log.merged_rejections import WINDOW, Refusals
from gateway.store.records import AttemptRow, ExchangeState, LogEntry, RequestRow, SearchRow

if TYPE_CHECKING:  # only with a database server is it imported
    from gateway.store.postgresql.spool import Spool

_log = logging.getLogger(__name__)

_BATCH_DELAY = 0.02  # seconds that a settlement waits for others
_COMMIT_DELAY = 0.15  # seconds that an entry in the journal waits for others
_FLUSH_TIMEOUT = 1.0  # seconds that a read waits for the commit of what it should see
_ENOUGH_SETTLEMENTS = 32  # for a commit of theirs on a database server
_PAUSE_PER_INTENT = 0.002  # seconds between two commits, for each intent of the first but one
_MAX_PAUSE = 0.005
_RETRY_DELAYS = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0)  # seconds between tries of a batch that failed
_WARNING_INTERVAL = 1.0  # seconds
STUCK_AFTER: Final = 10.0
"""Seconds of one commit, after which systemd is no longer told that the gateway is alive."""


class Recorder:
    """Records exchanges: each gets one row, and each settled row is added to its token's totals
    and its hour's sums once.

    It is created inside the running loop and used by that loop only, between `start` and `close`.
    A database has one recorder.
    """

    def __init__(
        self, database: Database, *, boot_id: str | None = None, spool: Spool | None = None
    ) -> None:
        """`spool` is where entries wait while a database server cannot be reached."""
        self.boot_id = boot_id or secrets.token_hex(8)
        self._database = database
        self.on_commit: list[Callable[[Sequence[LogEntry]], None]] = []
        """Functions that are called after a commit with its entries, in order; they must not
        raise."""
        self._writer = database.entry_writer(self.boot_id, spool, self._on_written_late)
        self.commits_slowly = self._writer.commits_slowly
        self._loop = asyncio.get_running_loop()
        self._queue: deque[LogEntry] = deque()
        self._kept = 0  # entries in the journal, from the front of the queue on
        self._due = 0  # entries, from the front on, that are to be committed now
        self._removed = 0  # entries that were in the queue
        self._commit_timer: asyncio.TimerHandle | None = None
        self._tried = asyncio.Event()  # set after each commit, and each that failed
        self._waiting: dict[str, asyncio.Future[None]] = {}
        self._opened: set[str] = set()
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False
        self._closing = False
        self._stopping = asyncio.Event()  # the same, to wait for
        self._flush_due = False
        self._took_intents = False  # by the last batch, on a server
        self._flush_timer: asyncio.TimerHandle | None = None
        self._refusals = Refusals()
        self._refusals_timer: asyncio.TimerHandle | None = None
        self._pause_timer: asyncio.TimerHandle | None = None
        self._limit = MAX_BATCH  # entries of one transaction
        self._failures = 0
        self._is_unwritable = False  # by the last try
        self._commit_began: float | None = None
        self._warned_at = float("-inf")
        self._waiting_since = self._loop.time()
        self._last_error = "not in time"
        self._uncommitted = 0
        self._uncommitted_warned_at = float("-inf")

    def use_epoch(self, epoch: int) -> None:
        """Sets the epoch of this replica among several: what its requests cost is taken from its
        leases."""
        self._writer.epoch = epoch

    @property
    def backlog(self) -> int:
        """Entries that wait for a commit."""
        return len(self._queue)

    def is_behind(self, limits: RequestLog) -> bool:
        """Whether too many entries wait, or have waited for too long while none was written."""
        if self._failures and self._writer.is_full:
            return True
        if not self._queue:
            return False
        return len(self._queue) > limits.max_unwritten or self.write_delay > limits.max_write_delay

    @property
    def has_journal(self) -> bool:
        """Whether entries are kept in a journal before they are committed."""
        return self._writer.has_journal

    @property
    def spool(self) -> Spool | None:
        """Returns the spool with the entries that wait for a database server: their number, size
        and time."""
        return self._writer.spool

    @property
    def write_delay(self) -> float:
        """Returns the seconds for which entries have waited while none could be written."""
        return self._loop.time() - self._waiting_since if self._queue else 0.0

    @property
    def alive(self) -> bool:
        """Whether the writer task runs: between `start` and `close` it always should."""
        return self._task is not None and not self._task.done()

    @property
    def is_stuck(self) -> bool:
        """Whether a commit neither ends nor fails: the disk, or the thread, does not answer."""
        began = self._commit_began
        return began is not None and self._loop.time() - began > STUCK_AFTER

    async def open(self) -> None:
        """Write what an earlier boot left in the spool. Until then its leases must not end: it was
        spent within them. Raises StoreError."""
        await self._writer.open()

    async def start(self) -> None:
        """Write what an earlier boot left in the spool, settle what earlier boots left running as
        interrupted, then start the writer task. Raises StoreError."""
        await self.open()
        if count := await self._writer.settle_interrupted():
            _log.warning("%d exchanges were interrupted by the end of an earlier run", count)
        if self._writer.has_journal:
            self._database.flush = self.flush
        self._launch()

    async def flush(self) -> None:
        """Commit what is queued, unless the database cannot be written."""
        last = self._removed + len(self._queue)
        with suppress(TimeoutError):
            async with asyncio.timeout(_FLUSH_TIMEOUT):
                while self._removed < last and self.alive and not self._is_unwritable:
                    self._due = last - self._removed
                    self._wake.set()
                    self._tried.clear()
                    await self._tried.wait()

    def record_intent(self, row: RequestRow) -> asyncio.Future[None]:
        """Queue a running row. The future is resolved once the row is committed, or in the spool,
        and never fails: while neither can be written it stays pending. Cancelling it changes
        nothing.
        """
        future = self._waiting[row.id] = self._loop.create_future()
        self._push(LogEntry(row))
        if self._pause_timer is None:
            self._wake.set()
        return future

    def record_settlement(
        self,
        row: RequestRow,
        attempts: Sequence[AttemptRow] = (),
        searches: Sequence[SearchRow] = (),
    ) -> None:
        """Queue the row of an exchange that ended; a second one for it changes nothing. Where it
        ended before any upstream call there is no intent: the row is inserted as it is, or merged
        with others.

        Nothing waits for a settlement: it shares a commit with those that come soon."""
        if row.state is ExchangeState.REJECTED and not self._closing:
            if self._refusals_timer is None:
                self._refusals_timer = self._loop.call_later(WINDOW, self._end_refusals)
            if self._refusals.merge(row):
                return
        self._push(LogEntry(row, attempts, searches))
        self._schedule_flush()
        if self.commits_slowly:
            self._flush_enough()

    def _flush_enough(self) -> None:
        if len(self._queue) - len(self._waiting) >= _ENOUGH_SETTLEMENTS:
            self._flush_due = True
            self._wake.set()

    def _end_refusals(self) -> None:
        if self._refusals_timer is not None:
            self._refusals_timer.cancel()
            self._refusals_timer = None
        for row in self._refusals.end_window():
            self._push(LogEntry(row))
            self._schedule_flush()

    def _schedule_flush(self) -> None:
        if self._flush_timer is None:
            self._flush_timer = self._loop.call_later(_BATCH_DELAY, self._on_flush_timer)

    def note_uncommitted(self, exchange_id: str) -> None:
        """The reply is sent before its intent is committed. Where the ledger cannot be written
        there may be hundreds in a second, so one warning counts them."""
        self._uncommitted += 1
        now = self._loop.time()
        if now - self._uncommitted_warned_at >= _WARNING_INTERVAL:
            text = "%d replies were sent before their intents were committed, the last of them %s"
            _log.warning(text, self._uncommitted, exchange_id)
            self._uncommitted, self._uncommitted_warned_at = 0, now

    async def close(self, deadline: float = 10.0) -> None:
        """Commit everything queued and stop; a second call does nothing. Raises RowsLost if
        something is left after `deadline` seconds."""
        if self._is_closed:
            return
        self._is_closed = True
        ends_at = self._loop.time() + deadline
        if self._task is not None:
            await self._finish(self._task, deadline)
        self._database.flush = None
        await self._writer.close(max(0.0, ends_at - self._loop.time()))
        if self._kept:
            text = "%d entries of the request log wait in the journal: the next start writes them"
            _log.warning(text, self._kept)
        if lost := len({entry.row.id for entry in islice(self._queue, self._kept, None)}):
            raise RowsLost(
                f"the database could not be written ({self._last_error}): the request log lacks "
                f"{lost} request{'' if lost == 1 else 's'} or their ends"
            )

    async def _finish(self, task: asyncio.Task[None], seconds: float) -> None:
        self._end_refusals()
        self._closing = True
        self._stopping.set()
        if task.done():
            self._launch()
            task = self._task or task
        self._wake.set()
        await asyncio.wait({task}, timeout=seconds)
        if not task.done():
            task.cancel()
            await asyncio.wait({task})

    def _push(self, entry: LogEntry) -> None:
        if not self._queue:
            self._waiting_since = self._loop.time()
        self._queue.append(entry)
        if self._task is None or not self._task.done():
            return
        if self._closing:
            _log.error("the request log is closed, so the row of %s is lost", entry.row.id)
        else:
            self._launch()

    def _launch(self) -> None:
        # As after a failure: an earlier task may have ended in the middle of a commit.
        self._failures = 1
        self._task = self._loop.create_task(self._run(), name="recorder")  # watched by _ended
        self._task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not self._closing:
            error = None if task.cancelled() else task.exception()
            _log.critical("the request log has no writer; the next row starts it", exc_info=error)

    async def _run(self) -> None:
        while self._queue or not self._closing:
            if self._is_keep_due():
                await self._keep()
            if self._is_due():
                count = self._size_of_kind() if self.commits_slowly else self._limit
                await self._commit_batch(list(islice(self._queue, count)))
            elif not self._is_keep_due():
                self._wake.clear()
                await self._wake.wait()

    @property
    def _uses_journal(self) -> bool:
        return self._writer.has_journal and not self._failures and not self._closing

    def _is_keep_due(self) -> bool:
        if len(self._queue) == self._kept or not self._uses_journal:
            return False
        return self._flush_due or bool(self._waiting)

    def _is_due(self) -> bool:
        if self._due or self._closing or len(self._queue) >= self._limit:
            return bool(self._queue)
        if self._uses_journal:
            return False
        if self._flush_due:
            return bool(self._queue)
        return bool(self._waiting) and self._pause_timer is None

    async def _keep(self) -> None:
        """Put what is not there yet into the journal; replies can go on then."""
        entries = list(islice(self._queue, self._kept, self._kept + MAX_BATCH))
        if len(self._queue) == self._kept + len(entries):
            self._end_flush_timer()
        self._commit_began = self._loop.time()
        try:
            is_kept = await self._writer.keep(entries)
        finally:
            self._commit_began = None
        if not is_kept:
            self._flush_due = True
            return
        self._kept += len(entries)
        self._answer(entries)
        if self._commit_timer is None:
            self._commit_timer = self._loop.call_later(_COMMIT_DELAY, self._on_commit_timer)

    def _on_commit_timer(self) -> None:
        self._commit_timer = None
        self._due = len(self._queue)
        self._wake.set()

    def _size_of_kind(self) -> int:
        """Returns the size of the next batch, which is put first. Intents, which replies wait for,
        go without settlements, whose sums take longer; these go in pauses, or at last after an
        intent."""
        queue, waiting = self._queue, self._waiting
        if self._closing or self._failures or len(queue) > self._limit:
            return self._limit
        is_turn = self._flush_due and (self._took_intents or self._pause_timer is not None)
        self._took_intents = bool(waiting) and not is_turn
        chosen = [
            entry.is_intent if self._took_intents else entry.row.id not in waiting
            for entry in queue
        ]
        if not (count := sum(chosen)):  # the intents of all settlements wait
            return self._limit
        if not self._took_intents and count + len(waiting) == len(queue):
            self._flush_due = False
        self._queue = deque([*compress(queue, chosen), *compress(queue, map(not_, chosen))])
        return count

    def _on_flush_timer(self) -> None:
        self._flush_timer = None
        self._flush_due = True
        self._wake.set()

    def _end_flush_timer(self) -> None:
        self._flush_due = False
        if self._flush_timer is not None:
            self._flush_timer.cancel()
            self._flush_timer = None

    async def _commit_batch(self, entries: list[LogEntry]) -> None:
        if len(self._queue) == len(entries):
            self._end_flush_timer()
        self._commit_began = self._loop.time()
        opened = None if self._failures else self._opened
        try:
            left = max(0, self._kept - len(entries))
            is_committed = await self._writer.write(entries, opened, left)
        except Exception as error:
            self._commit_began = None
            self._failures += 1
            self._flush_due = True
            self._is_unwritable = not isinstance(error, InvalidRows)
            self._tried.set()
            await self._handle_failure(entries, error)
            return
        self._commit_began = None
        self._waiting_since = self._loop.time()
        if not is_committed:
            self._acknowledge(entries, committed=False)
            return
        self._failures, self._is_unwritable = 0, False
        self._limit = min(self._limit * 2, MAX_BATCH)
        self._pause_after(self._acknowledge(entries))
        self._tried.set()
        self._tell(entries)

    def _tell(self, entries: Sequence[LogEntry]) -> None:
        for committed in self.on_commit:
            committed(entries)

    def _on_written_late(self, entries: Sequence[LogEntry]) -> None:
        """Handles entries that were in the spool."""
        for entry in entries:
            if not entry.is_intent:
                self._opened.discard(entry.row.id)
            elif entry.row.boot_id == self.boot_id:
                self._opened.add(entry.row.id)
        self._tell(entries)

    def _pause_after(self, intents: int) -> None:
        """Lets the next intents wait a little after several ones, as a commit takes as much
        processor time as ten rows. A single client sends one at a time, and never waits."""
        seconds = min((intents - 1) * _PAUSE_PER_INTENT, _MAX_PAUSE)
        if seconds > 0 and self._pause_timer is None:
            self._pause_timer = self._loop.call_later(seconds, self._on_pause_timer)

    def _on_pause_timer(self) -> None:
        self._pause_timer = None
        self._wake.set()

    def _acknowledge(self, entries: Sequence[LogEntry], *, committed: bool = True) -> int:
        """Drop what is committed, or in the spool; returns how many replies waited for it."""
        self._remove(len(entries))
        for entry in entries:
            if not entry.is_intent:
                self._opened.discard(entry.row.id)
            elif committed:
                self._opened.add(entry.row.id)
        return self._answer(entries)

    def _remove(self, count: int) -> None:
        for _ in range(count):
            self._queue.popleft()
        self._removed += count
        self._kept = max(0, self._kept - count)
        self._due = max(0, self._due - count)

    def _answer(self, entries: Iterable[LogEntry]) -> int:
        """Let the replies go on that waited for the entries; returns their number."""
        intents = 0
        for entry in entries:
            if not entry.is_intent:
                continue
            future = self._waiting.pop(entry.row.id, None)
            if future is not None:
                intents += 1
                if not future.done():
                    future.set_result(None)
        return intents

    async def _handle_failure(self, entries: list[LogEntry], error: Exception) -> None:
        """Wait where the database is the cause; else sanitise the rows; else find the row that is
        the cause and drop it."""
        if not isinstance(error, InvalidRows):
            waited = float("inf") if self._closing else self.write_delay
            if self._writer.begin_outage(error, self._failures, waited):
                return
            self._warn(error)
            await self._sleep(_RETRY_DELAYS[min(self._failures, len(_RETRY_DELAYS)) - 1])
            return
        sanitized = [sanitize_entry(entry) for entry in entries]
        if sanitized != entries:
            for position, entry in enumerate(sanitized):
                self._queue[position] = entry
        elif len(entries) > 1:
            self._limit = 1
        else:
            lost = self._queue[0]
            self._remove(1)
            id = lost.row.id
            self._opened.discard(id)
            self._waiting.pop(id, None)
            kind = "intent" if lost.is_intent else "settlement"
            _log.error("cannot store the %s of %s: %s", kind, id, error_reason(error))

    async def _sleep(self, seconds: float) -> None:
        """Ends early when the recorder is closed meanwhile."""
        if self._closing:
            await asyncio.sleep(seconds)
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()

    def _warn(self, error: Exception) -> None:
        now, self._last_error = self._loop.time(), error_reason(error)
        if now - self._warned_at >= _WARNING_INTERVAL:
            self._warned_at = now
            _log.warning(
                "the request log cannot be written, %d rows wait: %s",
                self.backlog,
                self._last_error,
            )
