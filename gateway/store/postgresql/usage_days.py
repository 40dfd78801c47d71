"""Usage over many days on PostgreSQL: the hourly sums of each day are added up once it is over.

Until the last day of `usage_days` all days are complete there. A trigger adds what is settled later
to both tables; for the present day's hours, nearly all that are written, it does nothing. A day
is added up with writers of hourly sums locked out, for as long as that takes (some 50,000 rows a
day: 0.1 s), so that each sum is either in what is added up, or comes from the trigger.
"""

from __future__ import annotations

from functools import partial
from typing import Final

import asyncpg
from sqlalchemy import FromClause, func, literal, select, union_all

from gateway.store.log.usage_span import SUM_FIELDS, hours_since
from gateway.store.postgresql.connection import Connector
from gateway.store.postgresql.partitions import brief_transaction, lock_session, retry_locks
from gateway.store.postgresql.schema import usage_days
from gateway.store.records import USAGE_COUNTS
from gateway.store.schema import usage_hours

_MARGIN: Final = 3600
"""Seconds from the end of a day: most of what began in it has ended then."""

_HOURS_OF_A_DAY: Final = literal(24, literal_execute=True)

_LOCK: Final = "LOCK TABLE usage_hours IN SHARE ROW EXCLUSIVE MODE"

_NEXT_DAY: Final = """
SELECT hour / 24 FROM usage_hours
WHERE hour >= (SELECT coalesce(max(day) + 1, 0) FROM usage_days) * 24
    AND hour / 24 < floor((extract(epoch FROM now()) - $1) / 86400)
ORDER BY hour LIMIT 1
"""
_COUNTS: Final = ", ".join(USAGE_COUNTS)
_SUMS: Final = ", ".join(f"sum({name})::bigint" for name in USAGE_COUNTS)
_ADD_UP: Final = (
    f"INSERT INTO usage_days (day, token_id, group_name, model, {_COUNTS})"  # noqa: S608 - only names of columns
    f" SELECT $1, token_id, group_name, model, {_SUMS} FROM usage_hours"
    " WHERE hour >= $1 * 24 AND hour < ($1 + 1) * 24 GROUP BY token_id, group_name, model"
)


async def add_up_days(database: Connector) -> int:
    """Add up every day that is over and not yet there, the oldest first, each in a transaction of
    its own; returns their number. Any number of replicas can do this at once. Raises Busy."""
    days = 0
    async with lock_session(database) as session:
        while await retry_locks(partial(_add_up_next, session)):
            days += 1
    return days


async def _add_up_next(session: asyncpg.Connection) -> bool:
    """Whether there was one. Its sums are read by a statement that begins with the lock."""
    async with brief_transaction(session):
        if await session.fetchval(_NEXT_DAY, _MARGIN) is None:
            return False
        await session.execute(_LOCK)
        day = await session.fetchval(_NEXT_DAY, _MARGIN)
        if day is not None:
            await session.execute(_ADD_UP, day)
        return True


def sums_of_days(since: int, until: int) -> FromClause:
    """The sums from `since` to before `until` (Unix hours), with the columns of `usage_hours`:
    those of whole days, which are a twentieth as many, and of the hours around them."""
    day = usage_days.c.day
    first, end = -(-since // 24), until // 24
    of_days = select(
        (day * _HOURS_OF_A_DAY).label("hour"), *(usage_days.c[name] for name in SUM_FIELDS)
    ).where(day >= first, day < end)
    # The hours of the days that are not there yet: one statement sees both as of one moment.
    complete = select(func.coalesce(func.max(day) + 1, 0)).scalar_subquery()
    rest = func.greatest(func.least(complete, end), first) * _HOURS_OF_A_DAY
    parts = [of_days, hours_since(rest).where(usage_hours.c.hour < until)]
    if since < first * 24:
        parts.append(hours_since(since).where(usage_hours.c.hour < min(first * 24, until)))
    return union_all(*parts).subquery()
