"""Deletes old rows of requests, in whole hours, while the gateway runs; the hourly sums stay."""

from __future__ import annotations

import asyncio
from typing import Final

from sqlalchemy import Connection, delete, insert, select, update

from gateway.store.database import Database
from gateway.store.logs import first_id
from gateway.store.records import HOUR_US, ExchangeState
from gateway.store.schema import requests, settings

_SETTING: Final = "rows_kept_since"

ROWS_KEPT_SINCE: Final = select(settings.c.value).where(settings.c.name == _SETTING)
"""The Unix hour, as text, before which rows may be deleted; no row where none ever were."""


async def delete_before(
    database: Database, cutoff_us: int, *, batch: int = 500, pause: float = 0.02
) -> int:
    """Delete what started and ended before the hour of `cutoff_us` (Unix µs), attempts included;
    returns the number of requests.

    A transaction deletes `batch` of them; after it other writers have the database for at least
    `pause` seconds, and for as long as it took. Cancelled, it has deleted some of them, and the
    next call continues.
    """
    hour = cutoff_us // HOUR_US
    await database.write(lambda connection: _raise_hour(connection, hour))
    expired = (
        select(requests.c.id)
        .where(
            requests.c.id < first_id(hour * HOUR_US),
            requests.c.started_at < hour * HOUR_US,
            requests.c.state != ExchangeState.RUNNING,
        )
        .order_by(requests.c.id)
        .limit(batch)
    )
    statement = delete(requests).where(requests.c.id.in_(expired.scalar_subquery()))
    deleted = 0
    now = asyncio.get_running_loop().time
    while True:
        began = now()
        count = await database.write(lambda connection: connection.execute(statement).rowcount)
        if not count:
            return deleted
        deleted += count
        await asyncio.sleep(max(pause, now() - began))


def _raise_hour(connection: Connection, hour: int) -> None:
    """Before anything is deleted: an hour whose rows count as complete always has them all."""
    stored = connection.scalar(ROWS_KEPT_SINCE)
    if stored is None:
        connection.execute(insert(settings).values(name=_SETTING, value=str(hour)))
    elif int(stored) < hour:
        changed = update(settings).where(settings.c.name == _SETTING).values(value=str(hour))
        connection.execute(changed)
