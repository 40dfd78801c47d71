"""Applies changes of keys, groups, accounts and admins that other replicas have committed. It gets
PostgreSQL's notifications, and polls the version of changes in case one was lost.

A replica that cannot confirm that its version is the newest serves nothing. While it cannot reach
the database it asks Valkey, where all replicas publish the newest version that they know.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from math import inf
from typing import Final

from sqlalchemy.exc import SQLAlchemyError

from gateway.config.cluster import DatabaseServer, SharedServer
from gateway.errors import ReplicaOutOfContact
from gateway.fleet.connection import ERRORS, Connection, connect
from gateway.fleet.server_clock import ServerClock
from gateway.fleet.valkey.connection import Connection as SharedConnection
from gateway.fleet.valkey.connection import load_script
from gateway.fleet.valkey.errors import SharedError
from gateway.store.database import Reader
from gateway.store.errors import error_reason
from gateway.store.postgresql.database import SingleReader
from gateway.store.postgresql.replicas import OwnReplica, steady_seconds

POLL: Final = 0.25
"""Seconds between two polls, unless one is requested earlier."""
GAP: Final = 0.1
"""Seconds between two polls, at least."""
STALE_AFTER: Final = 1.0
"""Seconds for which a confirmation holds, from when it was asked for; then nothing is served."""
CONFIRM_WAIT: Final = 1.0
"""Seconds that a request waits for a confirmation before it is rejected."""
REFRESH_WAIT: Final = 0.3
"""Seconds that a request with an unknown key waits for a poll."""
KEEP: Final = 3600
"""Seconds for which changes are kept; a replica with an older version reads everything again."""

_RECONNECT: Final = 0.25
_MAX_CHANGES: Final = 5000
"""Changes that are applied one by one; if there are more, everything is read again."""
_FORGET_INTERVAL: Final = 60.0

_VERSION: Final = "SELECT version FROM change_version"
_CHANGES: Final = """
SELECT kind, id, (SELECT min(version) FROM changes) AS oldest FROM changes
WHERE version > $1 AND version <= $2 ORDER BY version LIMIT $3
"""
_FORGET: Final = """
DELETE FROM changes
WHERE changed_at < (extract(epoch FROM clock_timestamp()) * 1000000)::bigint - $1
"""

_PUBLISH: Final = load_script("publish_version")

Apply = Callable[[Reader, Sequence[str] | None], Awaitable[None]]
"""Loads the current rows with these ids (None: all rows) into memory. It can be called again for
the same ids. This replica makes no changes of its own while it runs."""

log = logging.getLogger(__name__)


class SharedVersion:
    """The newest version that any replica knows, in Valkey, on a connection of its own, so that
    nothing delays it."""

    def __init__(self, server: SharedServer, name: str) -> None:
        self._connection = SharedConnection(server, f"{name} keys")
        self._is_open = False

    async def exchange(self, known: int, *, can_publish: bool) -> int | None:
        """Publish `known`, if it is newer and `can_publish`, and return the newest; None if none
        is published. Raises OSError."""
        try:
            if not self._is_open:
                await self._connection.open()
                self._is_open = True
            key = f"{self._connection.root}key_version"
            newest = await self._connection.run(_PUBLISH, [key], [known, int(can_publish)])
        except SharedError as error:
            raise OSError(str(error)) from None
        return None if newest < 0 else int(newest)

    async def close(self) -> None:
        await self._connection.close()


class Changes:
    """`known` is the version of what is in memory. No wait for the database is longer than its
    `timeout`."""

    def __init__(
        self,
        server: DatabaseServer,
        changing: asyncio.Lock,
        own: OwnReplica,
        clock: ServerClock,
        shared: SharedVersion | None = None,
    ) -> None:
        """`changing` is that of the database. `shared`: None if nothing is shared, so that no
        other replica can start before this one's expiry."""
        self.known = 0
        self.appliers: Mapping[str, Apply] = {}
        """Appliers by kind of change. Changes of other kinds, as of a newer release, are
        ignored."""
        self.failure: str | None = None
        """Why the last poll of the database failed; None: it succeeded."""
        self.lag = 0.0
        """Seconds from the answer to the last change until it was applied."""
        self._server = server
        self._changing = changing
        self._own = own
        self._clock = clock
        self._shared = shared
        self._reader = SingleReader(server)
        self._connection: Connection | None = None
        self._confirmed_at = -inf
        self._database_confirmed_at = -inf
        self._shared_at = -inf
        self._is_lost = False
        self._wake = asyncio.Event()
        self._upcoming: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._confirmation: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._tasks: list[asyncio.Future[None]] = []
        self._missing_since: float | None = None
        self._forget_due = 0.0

    @property
    def contact_age(self) -> float:
        """Returns the seconds since the database confirmed the version."""
        return steady_seconds() - self._database_confirmed_at

    @property
    def shared_age(self) -> float:
        """Returns the seconds since Valkey answered."""
        return steady_seconds() - self._shared_at

    @property
    def clock_offset(self) -> float:
        """Returns the seconds by which the machine's clock is ahead of the database server's."""
        return self._clock.machine_offset

    @property
    def is_confirmed(self) -> bool:
        """Whether what is in memory was the newest less than `STALE_AFTER` ago, or nobody else can
        have changed it."""
        if self._shared is None and self._own.name_seconds > 0:
            return True
        return steady_seconds() - self._confirmed_at <= STALE_AFTER and self._own.epoch > 0

    async def open(self) -> None:
        """Note the current version. Call it before anything is loaded: later changes are applied.
        Raises one of `ERRORS`."""
        connection = await self._connect()
        self.known = await connection.fetchval(_VERSION)

    def start(self, appliers: Mapping[str, Apply]) -> None:
        """Begin to poll. Call it once everything is loaded."""
        self.appliers = appliers
        self._tasks.append(asyncio.ensure_future(self._ask_database()))
        if self._shared is not None:
            self._tasks.append(asyncio.ensure_future(self._ask_shared(self._shared)))

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        self._disconnect()
        if self._shared is not None:
            await self._shared.close()
        await self._reader.close()

    async def confirm(self) -> None:
        """Wait until the version is confirmed. Raises ReplicaOutOfContact: after `CONFIRM_WAIT`, or
        at once if an earlier request has already waited in vain."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + CONFIRM_WAIT
        while not self._is_lost:
            self._wake.set()
            await asyncio.wait({self._confirmation}, timeout=deadline - loop.time())
            if self.is_confirmed:
                return
            if loop.time() >= deadline and not self._is_lost:
                self._is_lost = True
                reason = self.failure or "no answer in time"
                log.error("no request is served until changes of keys are known again: %s", reason)
        raise ReplicaOutOfContact

    async def refresh(self) -> None:
        """Wait until changes from before this call are applied, for at most `REFRESH_WAIT`.
        Concurrent calls share one poll."""
        upcoming = self._upcoming
        self._wake.set()
        await asyncio.wait({upcoming}, timeout=REFRESH_WAIT)

    async def _ask_database(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            started, current = loop.time(), self._upcoming
            self._upcoming = loop.create_future()
            self._wake.clear()
            sent_at = steady_seconds()
            try:
                await self._ask()
                await self._forget()
            except Exception as error:  # the loop must go on: without it nothing is served
                self._note_failure(error)
                await asyncio.sleep(_RECONNECT)
            else:
                self._database_confirmed_at = sent_at
                self._confirm(sent_at)
                self._note_success()
            current.set_result(None)
            await asyncio.sleep(started + GAP - loop.time())
            with suppress(TimeoutError):
                async with asyncio.timeout(POLL - GAP):
                    await self._wake.wait()

    async def _ask(self) -> None:
        """Polls once: reads the version, and applies the changes since the known one."""
        async with asyncio.timeout(self._server.timeout):
            connection = self._connection
            if connection is None or connection.is_closed():
                connection = await self._connect()
            version = await connection.fetchval(_VERSION)
        if version == self.known:
            return
        began = steady_seconds()
        async with asyncio.timeout(self._server.timeout):
            rows = await connection.fetch(_CHANGES, self.known, version, _MAX_CHANGES)
        ids: dict[str, list[str]] = {}
        for kind, id, _ in rows:
            ids.setdefault(kind, []).append(id)
        # Of a version that is gone (or of another database) there is nothing to apply one by one.
        is_complete = bool(rows) and rows[0]["oldest"] <= self.known + 1
        if version < self.known or not is_complete or len(rows) == _MAX_CHANGES:
            ids = {}
            log.warning("all keys are read anew: version %d is known, %d new", self.known, version)
        await self._apply(ids)
        self.known = version
        self.lag = steady_seconds() - began

    async def _apply(self, ids: dict[str, list[str]]) -> None:
        """Apply changes; `ids` by kind. Empty: load everything."""
        async with asyncio.timeout(self._server.timeout):
            await self._changing.acquire()
        try:
            for kind, apply in self.appliers.items():
                if not ids or kind in ids:
                    await apply(self._reader, list(dict.fromkeys(ids[kind])) if ids else None)
        finally:
            self._changing.release()

    async def _ask_shared(self, shared: SharedVersion) -> None:
        while True:
            await asyncio.sleep(POLL)
            sent_at = steady_seconds()
            is_current = sent_at - self._database_confirmed_at <= STALE_AFTER
            try:
                newest = await shared.exchange(self.known, can_publish=is_current)
            except OSError:
                continue
            self._shared_at = sent_at
            if newest is None:
                # As after a restart of Valkey. Those who can ask the database publish what they
                # know soon; where nobody can, nothing is changed either.
                self._missing_since = self._missing_since or sent_at
                if sent_at - self._missing_since <= 2 * STALE_AFTER:
                    continue
            else:
                self._missing_since = None
            if newest is None or newest <= self.known:
                self._confirm(sent_at)
            elif not is_current:
                self._confirmed_at = -inf
            else:
                self._wake.set()

    async def _forget(self) -> None:
        """Delete old changes, as the leader. Between two polls, as they use the same connection."""
        now, connection = steady_seconds(), self._connection
        if self._own.is_leader and connection is not None and now >= self._forget_due:
            self._forget_due = now + _FORGET_INTERVAL
            async with asyncio.timeout(self._server.timeout):
                await connection.execute(_FORGET, KEEP * 1_000_000)

    def _confirm(self, sent_at: float) -> None:
        self._confirmed_at = max(self._confirmed_at, sent_at)
        if self.is_confirmed:
            self._confirmation.set_result(None)
            self._confirmation = asyncio.get_running_loop().create_future()
            if self._is_lost:
                self._is_lost = False
                log.info("changes of keys are known again, and requests are served")

    def _note_success(self) -> None:
        if self.failure is not None:
            log.info("changes of keys are read again")
            self.failure = None

    def _note_failure(self, error: Exception) -> None:
        self._disconnect()
        reason = error_reason(error)
        if reason != self.failure:
            self.failure = reason
            known = isinstance(error, (SQLAlchemyError, *ERRORS))
            log.warning(
                "changes of keys cannot be read: %s", reason, exc_info=None if known else error
            )

    async def _connect(self) -> Connection:
        connection = await connect(self._server, f"{self._own.name} changes")
        await connection.add_listener("gateway_changes", lambda *_: self._wake.set())
        self._connection = connection
        return connection

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.terminate()
