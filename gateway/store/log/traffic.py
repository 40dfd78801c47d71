"""Keeps the sums of traffic: counts those of rows that were written without them, and folds slots
of five minutes into hours after some days, and these into days.

A sum is of the slot, hour or day that begins at its `start`. What is added late to a slot that was
folded is a row of its own until the next round, so sums over whole hours and days are always exact.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any, Final

from sqlalchemy import Connection, FromClause, Select, case, delete, literal, select

from gateway.store.database import Database, fetch, fetch_value
from gateway.store.log.expressions import IS_RUNNING, add_to_row, insert_into, sum_of
from gateway.store.log.pages import first_id
from gateway.store.log.retention import ROWS_KEPT_SINCE
from gateway.store.log.traffic_rows import COUNTED, SLOT_KEY
from gateway.store.measures import MEASURES, TRAFFIC_KEY
from gateway.store.records import DAY_US, HOUR_US, STEP_US, USAGE_COUNTS, started_us
from gateway.store.schema import requests, settings, traffic, usage_hours
from gateway.store.settings import put_setting, raise_setting

KEPT_US: Final = {HOUR_US: 2 * DAY_US, DAY_US: 8 * DAY_US}
"""For how long what is narrower is kept, by the width into which it is folded."""

_SCHEMA: Final = 26
"""The first with these sums."""

_COUNTED: Final = "traffic_counted_since"
COUNTED_SINCE: Final = select(settings.c.value).where(settings.c.name == _COUNTED)
"""The time (Unix µs, as text) since which sums are complete, while earlier rows are being counted;
empty before that has begun, no row once all are counted."""

_COMPLETE: Final = "traffic_complete_since"
"""The time (Unix µs, as text) since which sums of traffic have what sums of hours have; no row
while earlier rows are being counted."""

_FOLDED: Final = {HOUR_US: "traffic_hours_before", DAY_US: "traffic_days_before"}
FOLDED_BEFORE: Final = select(settings.c.name, settings.c.value).where(
    settings.c.name.in_(_FOLDED.values())
)


async def keep_traffic(database: Database, now_us: int, *, pause: float = 0.02) -> None:
    """Count what is not counted yet, then fold what is old enough, each in short transactions."""
    if await database.has_writers_before(_SCHEMA):
        await database.write(_begin_counting)
        return
    while await database.write(partial(_count_next, database, now_us)):
        await asyncio.sleep(pause)
    for width in (HOUR_US, DAY_US):
        before = (now_us - KEPT_US[width]) // width * width
        await database.write(partial(raise_setting, name=_FOLDED[width], value=before))
        is_narrow = traffic.c.start % width != 0
        wide = traffic.c.start // literal(width, literal_execute=True)
        narrow = select(wide).where(is_narrow, traffic.c.start < before).distinct().order_by(wide)
        for (number,) in await fetch(database, narrow):
            await database.write(partial(_fold, database, number * width, width))
            await asyncio.sleep(pause)


async def is_complete(database: Database, since: int) -> bool:
    """Whether all requests from `since` on (Unix hour) are in the sums."""
    mark = await fetch_value(database, COUNTED_SINCE)
    return mark is None or (mark != "" and int(mark) <= since * HOUR_US)


async def has_all_usage(database: Database, since: int, until: int) -> bool:
    """Whether all usage from `since` to before `until` (Unix hours) that sums of hours have is here
    too: they are older, so that they have what had been deleted from the rows before."""
    complete = select(settings.c.value).where(settings.c.name == _COMPLETE)
    start = await fetch_value(database, complete)
    if start is None or await database.has_writers_before(_SCHEMA):
        return False
    end = min(until, int(start) // HOUR_US)
    if since >= end:
        return True
    earlier = usage_hours.c.hour >= since, usage_hours.c.hour < end
    return await fetch_value(database, select(usage_hours.c.hour).where(*earlier).limit(1)) is None


def traffic_between(since: int, until: int) -> FromClause:
    """Selects sums from `since` to before `until` (Unix hours), with the counts of usage."""
    sums = traffic.c
    hour = sums.start // literal(HOUR_US, literal_execute=True)
    counts = (sums[name] for name in USAGE_COUNTS)
    return (
        select(hour.label("hour"), sums.model, sums.channel, *counts)
        .where(sums.start >= since * HOUR_US, sums.start < until * HOUR_US)
        .subquery()
    )


def width_of(time_us: int, folded: dict[str, int]) -> int:
    """The width of sums at that time, in microseconds; `folded` are the rows of FOLDED_BEFORE."""
    for width in (DAY_US, HOUR_US):
        if time_us < folded.get(_FOLDED[width], 0):
            return width
    return STEP_US


def folded_start(start: Any, folded: dict[str, int]) -> Any:
    """The same for a column: the start of the sum that the slot is in, or will be."""
    wide = [
        (start < before, start // number * number)
        for width in (DAY_US, HOUR_US)
        if (before := folded.get(_FOLDED[width]))
        for number in (literal(width, literal_execute=True),)
    ]
    return case(*wide, else_=start) if wide else start


def _begin_counting(connection: Connection) -> None:
    put_setting(connection, _COUNTED, "")
    connection.execute(delete(settings).where(settings.c.name == _COMPLETE))


def _count_next(database: Database, now_us: int, connection: Connection) -> bool:
    """Counts the last slot that has rows and is not counted; returns whether there was one. Its
    sums are replaced: the lock lets no row be settled meanwhile that would be missed."""
    mark = connection.scalar(COUNTED_SINCE)
    if mark is None:
        return False
    database.lock_table(connection, traffic)
    row = requests.c
    until = int(mark) if mark else now_us // STEP_US * STEP_US + STEP_US
    ended = row.id < first_id(until), ~IS_RUNNING
    last = connection.scalar(select(row.id).where(*ended).order_by(row.id.desc()).limit(1))
    kept_since = int(connection.scalar(ROWS_KEPT_SINCE) or 0) * HOUR_US
    folded = {name: int(value) for name, value in connection.execute(FOLDED_BEFORE)}
    width = width_of(started_us(last or ""), folded)
    start = started_us(last or "") // width * width
    if last is None or start < kept_since:
        connection.execute(delete(settings).where(settings.c.name == _COUNTED))
        # Whole days, as of the first one a part of the rows may be left.
        put_setting(connection, _COMPLETE, str(-(-kept_since // DAY_US) * DAY_US))
        return False
    connection.execute(delete(traffic).where(traffic.c.start >= start, traffic.c.start < until))
    key = dict(SLOT_KEY) | {"start": folded_start(SLOT_KEY["start"], folded)}
    counted = select(*key.values(), *COUNTED).where(*ended, row.id >= first_id(start))
    _add_selected(connection, counted.group_by(*key.values()))
    put_setting(connection, _COUNTED, str(start))
    return True


def _fold(database: Database, start: int, width: int, connection: Connection) -> None:
    """Adds what is narrower in an hour or day to the sums of the whole."""
    database.lock_table(connection, traffic)
    narrow = traffic.c.start > start, traffic.c.start < start + width
    key = traffic.c.model, traffic.c.channel
    sums = (sum_of(traffic.c[name]) for name in MEASURES)
    whole = literal(start, literal_execute=True)
    _add_selected(connection, select(whole, *key, *sums).where(*narrow).group_by(*key))
    connection.execute(delete(traffic).where(*narrow))


def _add_selected(connection: Connection, query: Select[Any]) -> None:
    """Adds rows with the table's columns to those of the same keys."""
    names = [*TRAFFIC_KEY, *MEASURES]
    connection.execute(add_to_row(insert_into(connection, traffic).from_select(names, query)))
