"""Deletes old rows of requests, in whole hours, while the gateway runs; the hourly sums stay. Also
clears end users where rows are kept longer, and shrinks the file."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, NamedTuple

from sqlalchemy import select, update

from gateway.store.database import Database, FreePages, execute, fetch, fetch_value
from gateway.store.log.links import delete_links
from gateway.store.log.pages import first_id
from gateway.store.records import HOUR_US
from gateway.store.schema import requests, settings
from gateway.store.settings import raise_setting

MIN_FREE: Final = 2**20
"""Bytes that stay free in any file."""

_SETTING: Final = "rows_kept_since"

ROWS_KEPT_SINCE: Final = select(settings.c.value).where(settings.c.name == _SETTING)
"""The Unix hour, as text, before which rows may be deleted; no row where none ever were."""

_END_USERS: Final = "end_users_kept_since"
_END_USERS_CLEARED: Final = select(settings.c.value).where(settings.c.name == _END_USERS)
_LATE_HOURS: Final = 24


async def delete_before(
    database: Database, cutoff_us: int, *, batch: int = 500, pause: float = 0.02
) -> int:
    """Delete what started and ended before the hour of `cutoff_us` (Unix µs), attempts included,
    then links that have none; returns the number of requests. A server drops whole UTC days.

    A transaction deletes `batch` of them; after it other writers have the database for at least
    `pause` seconds, and for as long as it took. Cancelled, it has deleted some of them, and the
    next call continues.
    """
    hour = cutoff_us // HOUR_US
    # Before anything is deleted: an hour whose rows count as complete always has them all.
    await database.write(partial(raise_setting, name=_SETTING, value=hour))
    deleted = await database.drop_days_before(hour * HOUR_US)
    deleted += await _repeat(partial(database.delete_requests, hour * HOUR_US, batch), pause)
    await _repeat(partial(delete_links, database, hour, batch), pause)
    return deleted


async def _repeat(delete: Callable[[], Awaitable[int]], pause: float) -> int:
    """Deletes until there is nothing left; returns how much there was."""
    now = asyncio.get_running_loop().time
    deleted = 0
    while True:
        began = now()
        if not (count := await delete()):
            return deleted
        deleted += count
        await asyncio.sleep(max(pause, now() - began))


async def clear_end_users(
    database: Database, cutoff_us: int, *, batch: int = 500, pause: float = 0.02
) -> int:
    """Clear the end user of what started before the hour of `cutoff_us` (Unix µs), `batch` rows in
    a transaction; returns their number. Only what an earlier call has not cleared is read again,
    and the last day, whose rows may have been written late."""
    hour, row = cutoff_us // HOUR_US, requests.c
    cleared = int(await fetch_value(database, _END_USERS_CLEARED) or 0)
    last, count = first_id(max(0, cleared - _LATE_HOURS) * HOUR_US), 0
    while True:
        old = row.id > last, row.id < first_id(hour * HOUR_US), row.end_user.is_not(None)
        found = await fetch(database, select(row.id).where(*old).order_by(row.id).limit(batch))
        if not found:
            break
        ids = [id_ for (id_,) in found]
        clear = update(requests).where(row.id.in_(ids)).values(end_user=None)
        await execute(database, clear)
        last, count = ids[-1], count + len(ids)
        await asyncio.sleep(pause)
    await database.write(partial(raise_setting, name=_END_USERS, value=hour))
    return count


class Shrunk(NamedTuple):
    """Sizes of the file in bytes, and the seconds of the longest step."""

    size_before: int
    size: int
    longest: float


async def shrink(database: Database, *, pause: float = 0.02) -> Shrunk | None:
    """Cut free pages from the file until a tenth of it is free, which later rows use; None if there
    are not more, or they cannot be cut off.

    Each step takes the writer for some milliseconds, and a fourth of the time at most.
    """
    before = state = await database.free_pages()
    if state is None or before is None or not state.can_shrink or not has_much_free(state):
        return None
    now = asyncio.get_running_loop().time
    longest = 0.0
    while state.free * 10 > state.pages:
        began, free = now(), state.free
        await database.shrink()
        took = now() - began
        longest = max(longest, took)
        await asyncio.sleep(max(pause, 3 * took))
        state = await database.free_pages() or state
        if state.free >= free:  # others use the pages meanwhile, or nothing can be cut
            break
    return Shrunk(before.pages * before.page_size, state.pages * state.page_size, longest)


def has_much_free(state: FreePages) -> bool:
    """Tells whether more than a tenth, and more than a megabyte, is free."""
    return state.free * 10 > state.pages and state.free * state.page_size > MIN_FREE
