"""Removes replicas that are gone: their budget leases end, and their requests are settled.

Whether one is gone is judged by this process's steady clock: it has watched the same last heartbeat
for the whole expiry, without a gap. So an outage of the server removes nobody, and neither does a
clock that is set.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import Final, NamedTuple

from sqlalchemy.exc import SQLAlchemyError

from gateway.cluster.connection import ERRORS, Connection
from gateway.store.database import Database
from gateway.store.errors import error_reason
from gateway.store.replicas import LOST_AFTER, OwnReplica, remove, steady_seconds
from gateway.store.statements import Statements

_LATE: Final = 2_000_000
"""Microseconds after which a heartbeat is late: the others are not watched."""
_MAX_WATCHED: Final = 1000
_TIMEOUT: Final = 30.0
"""Seconds of one removal."""

_SILENT: Final = """
SELECT name, epoch, heartbeat_at, expiry_us FROM replicas
WHERE epoch <> $1
    AND heartbeat_at < (extract(epoch FROM clock_timestamp()) * 1000000)::bigint - $2
ORDER BY heartbeat_at LIMIT $3
"""

log = logging.getLogger(__name__)


class _Watched(NamedTuple):
    name: str
    epoch: int
    heartbeat_at: int
    expiry: float
    since: float


class Reaper:
    """`look` is called after every heartbeat of this replica."""

    def __init__(self, database: Database, own: OwnReplica) -> None:
        self._database = database
        self._own = own
        self._statements = Statements(database.dialect, own.boot_id)
        self._watched: dict[int, _Watched] = {}
        self._looked_at = 0.0
        self._removal: asyncio.Future[None] | None = None

    async def look(self, connection: Connection) -> None:
        """Notes who is silent, and begins to remove who was for its expiry. Raises `ERRORS`."""
        now = steady_seconds()
        if now - self._looked_at > LOST_AFTER:
            self._watched = {}  # this replica itself was without contact
        self._looked_at = now
        rows = await connection.fetch(_SILENT, self._own.epoch, _LATE, _MAX_WATCHED)
        before, self._watched = self._watched, {}
        for name, epoch, heartbeat_at, expiry_us in rows:
            known = before.get(epoch)
            is_same = known is not None and known.heartbeat_at == heartbeat_at
            since = known.since if known is not None and is_same else now
            self._watched[epoch] = _Watched(name, epoch, heartbeat_at, expiry_us / 1e6, since)
        gone = [each for each in self._watched.values() if now - each.since >= each.expiry]
        if gone and (self._removal is None or self._removal.done()):
            # Not awaited: a heartbeat must not wait for it.
            self._removal = asyncio.ensure_future(self._remove(gone))

    async def close(self) -> None:
        if self._removal is not None:
            self._removal.cancel()
            await asyncio.wait({self._removal})

    async def _remove(self, gone: list[_Watched]) -> None:
        for each in gone:
            work = partial(
                remove,
                epoch=each.epoch,
                statements=self._statements,
                unheard_since=each.heartbeat_at,
            )
            try:
                async with asyncio.timeout(_TIMEOUT):
                    count = await self._database.write(work)
            except (SQLAlchemyError, *ERRORS) as error:
                # Such as a deadlock with another replica's settlement: the next look tries again.
                log.warning("replica %s could not be removed: %s", each.name, error_reason(error))
                return
            if count is not None:
                text = "replica %s was not heard of for %.0f s and is removed; %d of its requests"
                log.warning(f"{text} are settled as interrupted", each.name, each.expiry, count)
