"""What becomes of the recorder's entries while the database server cannot be reached: they wait in
the spool, and are written in their order once it answers again.

From `begin` until the spool is empty every entry goes through it. Entries that may be committed
already are looked up by the writer, so that each counts once.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from gateway.store.errors import InvalidRows, error_reason
from gateway.store.postgresql.connection import server_failure
from gateway.store.postgresql.spool import Spool
from gateway.store.records import LogEntry

_log = logging.getLogger(__name__)

MAX_ENTRIES: Final = 500
"""Maximum number of entries in one transaction."""

_DELAYS: Final = (0.1, 0.2, 0.5, 1.0)  # seconds between tries of a server that does not answer
_APPENDED: Final = 0.01  # seconds until what is being appended is there
_PROGRESS: Final = 5.0  # seconds between two lines of the log


Write = Callable[[Sequence[LogEntry]], Awaitable[None]]
"""Commits entries; they are looked up first, as they may be committed already."""


class Outage:
    """`is_open`: an outage is in progress, so entries go to the spool instead of the server."""

    def __init__(
        self,
        spool: Spool,
        write: Write,
        boot_id: str,
        committed: Callable[[Sequence[LogEntry]], None],
    ) -> None:
        self.spool = spool
        self.is_open = False
        self._write = write
        self._boot_id = boot_id
        self._committed = committed
        self._appending = False
        self._has_room = True
        self._limit = MAX_ENTRIES
        self._task: asyncio.Task[None] | None = None
        self._closing = False
        self._said_at = time.monotonic()

    @property
    def is_full(self) -> bool:
        return self.spool.is_full or not self._has_room

    async def open(self) -> None:
        """Write the entries that an earlier run has left in the spool. Raises StoreError."""
        await self.spool.open()
        if not self.spool.count:
            return
        _log.info("%d entries of %s are written first", self.spool.count, self.spool.path)
        try:
            while self.spool.count:
                await self._write_some()
                self._say("%d entries of %s are left", self.spool.count, self.spool.path)
        except Exception as error:
            await self.spool.close()
            text = f"what waits in {self.spool.path} cannot be written: {error_reason(error)}"
            raise server_failure(text, error) from error

    def begin(self, reason: str) -> None:
        """An outage begins: the server does not answer, for this reason."""
        if not self.is_open:
            self.is_open = True
            text = "the database cannot be written (%s): requests are kept in %s"
            _log.warning(text, reason, self.spool.path)

    async def append(self, entries: Sequence[LogEntry]) -> None:
        """Raises sqlite3.Error or OSError if there is no room."""
        self._appending = True
        try:
            await self.spool.append(entries, self._boot_id)
        except Exception:
            self._has_room = False
            self.is_open = self.spool.count > 0  # else the server is tried by the caller
            raise
        finally:
            self._appending = False
        self._has_room = True
        if self._task is None or self._task.done():
            loop = asyncio.get_running_loop()
            self._task = loop.create_task(self._drain(), name="spool")  # its errors are caught

    async def close(self, seconds: float) -> None:
        """Write the spool for at most `seconds`; what is left is written at the next start."""
        self._closing = True
        if self._task is not None and not self._task.done():
            await asyncio.wait({self._task}, timeout=seconds)
            self._task.cancel()
            await asyncio.wait({self._task})
        if self.spool.count:
            text = "%d entries of the request log wait in %s: the next start writes them"
            _log.warning(text, self.spool.count, self.spool.path)
        await self.spool.close()

    async def _drain(self) -> None:
        failures = 0
        while self.spool.count or self._appending:
            try:
                await self._write_some()
            except Exception as error:  # whatever it is, the entries are kept
                if self._closing:
                    return
                failures += 1
                text = "%d entries wait in %s, as the database cannot be written: %s"
                self._say(text, self.spool.count, self.spool.path, error_reason(error))
                await asyncio.sleep(_DELAYS[min(failures, len(_DELAYS)) - 1])
            else:
                failures = 0
        self.is_open, self._has_room = False, True
        _log.info("the database is written again, nothing waits in %s", self.spool.path)

    async def _write_some(self) -> None:
        """Write the oldest entries of the spool and remove them from it."""
        spooled = await self.spool.first(self._limit)
        if not spooled.entries:
            await asyncio.sleep(_APPENDED)
            return
        try:
            await self._write(spooled.entries)
        except TimeoutError:
            self._limit = max(1, self._limit // 4)
            raise
        except InvalidRows as error:
            if len(spooled.entries) > 1:
                self._limit = 1
                return
            _log.error("cannot store the row of %s: %s", spooled.entries[0].row.id, error)
        self._limit = min(self._limit * 2, MAX_ENTRIES)
        await self.spool.remove(spooled.last)
        self._committed(spooled.entries)

    def _say(self, text: str, *values: object) -> None:
        if time.monotonic() - self._said_at >= _PROGRESS:
            self._said_at = time.monotonic()
            _log.warning(text, *values)
