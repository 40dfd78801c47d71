"""Old rows of requests go, in whole hours, while the gateway works on; the sums of their hours
stay. This room must not know how long anything is kept.
"""

from __future__ import annotations

import asyncio
from typing import Final

from sqlalchemy import Connection, delete, insert, select, update

from gateway.store.database import Database
from gateway.store.records import HOUR_US, ExchangeState
from gateway.store.schema import requests, settings

_NAME: Final = "rows_kept_since"

ROWS_KEPT_SINCE: Final = select(settings.c.value).where(settings.c.name == _NAME)
"""The whole Unix hour, as text, before which rows may be gone; nothing where none ever went."""


async def delete_before(
    database: Database, cutoff_us: int, *, batch: int = 500, pause: float = 0.02
) -> int:
    """Delete what started and ended before the whole hour of `cutoff_us` (Unix µs), attempts
    included, and answer how many requests that were.

    A transaction deletes `batch` of them; after it whoever else writes has the database for at
    least `pause` seconds, and for as long as it took. Cancelled, it has deleted some of them, and
    the next call goes on.
    """
    hour = cutoff_us // HOUR_US
    await database.write(lambda connection: _raise(connection, hour))
    # An id begins with the microsecond of its start: the table is sorted by time.
    oldest = (
        select(requests.c.id)
        .where(
            requests.c.id < f"req_{hour * HOUR_US:014x}",
            requests.c.started_at < hour * HOUR_US,
            requests.c.state != ExchangeState.RUNNING,
        )
        .order_by(requests.c.id)
        .limit(batch)
    )
    some = delete(requests).where(requests.c.id.in_(oldest.scalar_subquery()))
    deleted = 0
    now = asyncio.get_running_loop().time
    while True:
        began = now()
        count = await database.write(lambda connection: connection.execute(some).rowcount)
        if not count:
            return deleted
        deleted += count
        await asyncio.sleep(max(pause, now() - began))


def _raise(connection: Connection, hour: int) -> None:
    """Before anything is deleted: an hour whose rows are said to be whole always has them all."""
    known = connection.scalar(ROWS_KEPT_SINCE)
    if known is None:
        connection.execute(insert(settings).values(name=_NAME, value=str(hour)))
    elif int(known) < hour:
        connection.execute(update(settings).where(settings.c.name == _NAME).values(value=str(hour)))
