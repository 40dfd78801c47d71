"""The request log's partitions by day, and the sums of past days."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final, NamedTuple, TypeVar

import asyncpg
from sqlalchemy import FromClause, func, select, union_all

from gateway.store.errors import Busy
from gateway.store.log.expressions import HOURS_OF_A_DAY
from gateway.store.log.pages import first_id
from gateway.store.log.usage import SUM_FIELDS, hours_since
from gateway.store.postgresql.connection import Connector
from gateway.store.postgresql.schema import AdvisoryLock, usage_days
from gateway.store.records import DAY_US, USAGE_COUNTS
from gateway.store.schema import attempts, requests, searches, usage_hours

T = TypeVar("T")

DAYS_AHEAD: Final = 2

MAX_MOVED: Final = 200_000
"""Rows that a new partition takes from the default one. With more of them it is not created, and
the rows stay there: writers would wait for too long."""

_TABLES: Final = {
    requests.name: requests.c.id.name,
    attempts.name: attempts.c.request_id.name,
    searches.name: searches.c.request_id.name,
}
"""The column that names the exchange, by table; in the order in which the recorder writes them."""

_LOCK_TIMEOUT: Final = 100  # milliseconds
_TRIES: Final = 20
_PAUSE: Final = 0.5  # seconds between two tries
_STATEMENT_TIMEOUT: Final = 10_000  # milliseconds, of what holds locks
_COMMAND_TIMEOUT: Final = 600.0  # seconds

_DELETE_DEFAULT: Final = """
WITH expired AS (
    SELECT id FROM requests_default WHERE id < $1 AND started_at < $2 AND state <> 'running'
    ORDER BY id LIMIT $3
), gone AS (
    DELETE FROM requests_default WHERE id IN (SELECT id FROM expired) RETURNING id
), their_attempts AS (
    DELETE FROM attempts_default WHERE request_id IN (SELECT id FROM gone)
), their_searches AS (
    DELETE FROM searches_default WHERE request_id IN (SELECT id FROM gone)
)
SELECT count(*) FROM gone
"""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

_log = logging.getLogger(__name__)


class Day(NamedTuple):
    """A UTC day, counted from the Unix epoch."""

    number: int

    @classmethod
    def of(cls, time_us: int) -> Day:
        return cls(time_us // DAY_US)

    @classmethod
    def named(cls, text: str) -> Day:
        """Reads a day from its name, like 20261231."""
        return cls((datetime.strptime(text, "%Y%m%d").replace(tzinfo=UTC) - _EPOCH).days)

    @property
    def name(self) -> str:
        return f"{_EPOCH + timedelta(days=self.number):%Y%m%d}"

    @property
    def bounds(self) -> tuple[str, str]:
        """The ids of its exchanges are at least the first and less than the second."""
        start = self.number * DAY_US
        return first_id(start), first_id(start + DAY_US)


async def create_days(database: Connector, now_us: int, ahead: int = DAYS_AHEAD) -> list[Day]:
    """Create the partitions of today and of the days `ahead` that do not exist; returns those that
    were created here. Any number of replicas can do this at once. Raises Busy or an error of the
    driver."""
    today = Day.of(now_us).number
    return await create_listed(database, map(Day, range(today, today + ahead + 1)))


async def create_listed(database: Connector, days: Iterable[Day]) -> list[Day]:
    """Returns those that did not exist. Raises Busy."""
    async with lock_session(database) as session:
        existing = set(await list_days(session))
        return [
            day
            for day in days
            if day not in existing and await retry_locks(partial(_create_day, session, day))
        ]


async def drop_days_before(database: Connector, first_kept: Day) -> int:
    """Drop all earlier days, the oldest first; returns how many requests they had. A day that is in
    use, or has a running request, stays until the next call.

    A day is detached from all tables in one short transaction, and dropped afterwards, when no
    statement uses it any more.
    """
    dropped = 0
    async with lock_session(database) as session:
        for day in await list_days(session):
            if day >= first_kept:
                break
            try:
                await retry_locks(partial(_detach_day, session, day))
            except Busy:
                _log.warning("%s of the request log is in use and is deleted later", day.name)
                break
        for table in await _detached_tables(session):
            if table.startswith(f"{requests.name}_"):
                dropped += await session.fetchval(f"SELECT count(*) FROM {table}")
            await session.execute(f"DROP TABLE IF EXISTS {table}")
    return dropped


async def delete_default_rows(database: Connector, before_us: int, batch: int) -> int:
    """Delete up to `batch` requests of the default partition that started before and have ended,
    attempts and searches included; returns their number."""
    async with lock_session(database) as session:
        count: int = await session.fetchval(_DELETE_DEFAULT, first_id(before_us), before_us, batch)
        return count


@asynccontextmanager
async def lock_session(database: Connector) -> AsyncIterator[asyncpg.Connection]:
    """A dedicated connection: a statement that waits for locks must not delay the recorder's."""
    session = await database.connect(command_timeout=_COMMAND_TIMEOUT)
    try:
        yield session
    finally:
        await session.close()


async def retry_locks(work: Callable[[], Awaitable[T]]) -> T:
    for _ in range(_TRIES):
        try:
            return await work()
        except (asyncpg.LockNotAvailableError, asyncpg.DeadlockDetectedError):
            await asyncio.sleep(_PAUSE)
    raise Busy("a day of the request log is in use: the next round tries again")


@asynccontextmanager
async def brief_transaction(session: asyncpg.Connection) -> AsyncIterator[None]:
    """A transaction under the advisory lock, with short timeouts for locks and statements."""
    async with session.transaction():
        await session.execute(f"SET LOCAL lock_timeout = {_LOCK_TIMEOUT}")
        await session.execute(f"SET LOCAL statement_timeout = {_STATEMENT_TIMEOUT}")
        await session.execute(f"SELECT pg_advisory_xact_lock({AdvisoryLock.PARTITIONS:d})")
        yield


async def list_days(session: asyncpg.Connection) -> list[Day]:
    names = await session.fetch(
        "SELECT relname FROM pg_class JOIN pg_inherits ON inhrelid = oid"
        f" WHERE inhparent = '{requests.name}'::regclass AND relname ~ '_[0-9]{{8}}$'"
    )
    return sorted(Day.named(name.rpartition("_")[2]) for (name,) in names)


async def _detached_tables(session: asyncpg.Connection) -> list[str]:
    """Tables to drop, including those that an interrupted earlier call has left."""
    rows = await session.fetch(
        "SELECT relname FROM pg_class WHERE relkind = 'r' AND NOT relispartition AND relnamespace ="
        f" (SELECT relnamespace FROM pg_class WHERE oid = '{requests.name}'::regclass)"
        f" AND relname ~ '^({'|'.join(_TABLES)})_[0-9]{{8}}$'"
    )
    return sorted(name for (name,) in rows)


async def _create_day(session: asyncpg.Connection, day: Day) -> bool:
    """Whether it was created here. The tables are locked against writers, because a row that is
    being written to the default partition when its day is attached would be rejected."""
    first, end = day.bounds
    async with brief_transaction(session):
        if await session.fetchval("SELECT to_regclass($1)", f"{requests.name}_{day.name}"):
            return False
        for table, column in _TABLES.items():
            of_day = f"{column} >= '{first}' AND {column} < '{end}'"
            waiting = f"SELECT 1 FROM {table}_default WHERE {of_day} LIMIT {MAX_MOVED + 1}"
            if await session.fetchval(f"SELECT count(*) FROM ({waiting}) AS waiting") > MAX_MOVED:
                return False
        for table, column in _TABLES.items():
            partition, default = f"{table}_{day.name}", f"{table}_default"
            of_day = f"{column} >= '{first}' AND {column} < '{end}'"
            await session.execute(f"LOCK TABLE ONLY {table} IN SHARE ROW EXCLUSIVE MODE")
            await session.execute(f"CREATE TABLE {partition} (LIKE {table} INCLUDING DEFAULTS)")
            moved = f"DELETE FROM {default} WHERE {of_day} RETURNING *"
            await session.execute(
                f"WITH moved AS ({moved}) INSERT INTO {partition} SELECT * FROM moved"
            )
            await session.execute(
                f"ALTER TABLE {table} ATTACH PARTITION {partition}"
                f" FOR VALUES FROM ('{first}') TO ('{end}')"
            )
    return True


async def _detach_day(session: asyncpg.Connection, day: Day) -> bool:
    """Whether it was detached here. A day with a running request is not, as it will be settled."""
    async with brief_transaction(session):
        for table in _TABLES:
            await session.execute(f"LOCK TABLE ONLY {table} IN ACCESS EXCLUSIVE MODE")
        if day not in await list_days(session):
            return False  # another replica has detached it
        running = f"SELECT 1 FROM {requests.name}_{day.name} WHERE state = 'running' LIMIT 1"
        if await session.fetchval(running):
            return False
        for table in _TABLES:
            await session.execute(f"ALTER TABLE {table} DETACH PARTITION {table}_{day.name}")
    return True


_MARGIN: Final = 3600
"""Seconds from the end of a day: most of what began in it has ended then."""


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
    f"INSERT INTO usage_days (day, token_id, group_name, model, {_COUNTS})"
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
        (day * HOURS_OF_A_DAY).label("hour"), *(usage_days.c[name] for name in SUM_FIELDS)
    ).where(day >= first, day < end)
    # The hours of the days that are not there yet: one statement sees both as of one moment.
    complete = select(func.coalesce(func.max(day) + 1, 0)).scalar_subquery()
    rest = func.greatest(func.least(complete, end), first) * HOURS_OF_A_DAY
    parts = [of_days, hours_since(rest).where(usage_hours.c.hour < until)]
    if since < first * 24:
        parts.append(hours_since(since).where(usage_hours.c.hour < min(first * 24, until)))
    return union_all(*parts).subquery()
