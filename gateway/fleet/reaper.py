"""Ends replicas that are lost: after their expiry their requests are settled, and after that of
their leases they are removed, with the leases.

Both are judged by this process's steady clock: it has watched the same last heartbeat for all that
time, without a gap. So an outage of the server ends nobody, and neither does a clock that is set.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import Final, NamedTuple

import orjson
from sqlalchemy.exc import SQLAlchemyError

from gateway.fleet.connection import ERRORS, Connection
from gateway.store.database import Database
from gateway.store.errors import error_reason
from gateway.store.postgresql.replicas import (
    EXPIRED,
    LOST_AFTER,
    OwnReplica,
    expire,
    remove,
    steady_seconds,
)

_LATE: Final = 2_000_000
"""Microseconds after which a heartbeat is late: the others are not watched."""
_MAX_WATCHED: Final = 1000
_TIMEOUT: Final = 30.0
"""Seconds of one removal."""

_SILENT: Final = """
SELECT name, epoch, heartbeat_at, expiry_us, state, details FROM replicas
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
    lease_expiry: float
    is_expired: bool
    since: float

    def is_due(self, now: float) -> bool:
        return now - self.since >= (self.lease_expiry if self.is_expired else self.expiry)


class Reaper:
    """`look` is called after every heartbeat of this replica."""

    def __init__(self, database: Database, own: OwnReplica) -> None:
        self._database = database
        self._own = own
        self._watched: dict[int, _Watched] = {}
        self._looked_at = 0.0
        self._ending: asyncio.Future[None] | None = None

    async def look(self, connection: Connection) -> None:
        """Notes who is silent, and begins to end who was for long enough. Raises `ERRORS`."""
        now = steady_seconds()
        if now - self._looked_at > LOST_AFTER:
            self._watched = {}  # this replica itself was without contact
        self._looked_at = now
        rows = await connection.fetch(_SILENT, self._own.epoch, _LATE, _MAX_WATCHED)
        before, self._watched = self._watched, {}
        for name, epoch, heartbeat_at, expiry_us, state, details in rows:
            known = before.get(epoch)
            is_same = known is not None and known.heartbeat_at == heartbeat_at
            since = known.since if known is not None and is_same else now
            lease_expiry = orjson.loads(details).get("lease_expiry", 0.0)
            self._watched[epoch] = _Watched(
                name, epoch, heartbeat_at, expiry_us / 1e6, lease_expiry, state == EXPIRED, since
            )
        due = [each for each in self._watched.values() if each.is_due(now)]
        if due and (self._ending is None or self._ending.done()):
            # Not awaited: a heartbeat must not wait for it.
            self._ending = asyncio.ensure_future(self._end(due))

    async def close(self) -> None:
        if self._ending is not None:
            self._ending.cancel()
            await asyncio.wait({self._ending})

    async def _end(self, lost: list[_Watched]) -> None:
        for each in lost:
            work = partial(
                remove if each.is_expired else expire,
                epoch=each.epoch,
                unheard_since=each.heartbeat_at,
            )
            try:
                async with asyncio.timeout(_TIMEOUT):
                    count = await self._database.write(work)
            except (SQLAlchemyError, *ERRORS) as error:
                # Such as a deadlock with another replica's settlement: the next look tries again.
                log.warning("replica %s could not be ended: %s", each.name, error_reason(error))
                return
            if count is not None:
                _announce(each, count)


def _announce(lost: _Watched, count: int) -> None:
    if lost.is_expired:
        text = "replica %s was not heard of for %.0f s: it is removed, and its leases are free"
        log.warning(text, lost.name, lost.lease_expiry)
        return
    text = (
        "replica %s was not heard of for %.0f s: %d of its requests are settled as interrupted;"
        " what it has leased of budgets is kept until it is back, for up to %.0f s"
    )
    log.warning(text, lost.name, lost.expiry, count, lost.lease_expiry)
