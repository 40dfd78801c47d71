"""Checks that the ledger's rows, hourly sums and totals agree. It repairs nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import (
    ColumnElement,
    Row,
    Select,
    Table,
    case,
    func,
    literal_column,
    or_,
    select,
    union_all,
)
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.store.database import Database
from gateway.store.log.recovery import left_by_earlier_boots
from gateway.store.log.retention import ROWS_KEPT_SINCE
from gateway.store.log.statements import HOUR_KEY, IS_RUNNING, sum_of
from gateway.store.records import HOUR_US, TOKEN_TOTALS, USAGE_COUNTS, ExchangeState
from gateway.store.schema import attempts, requests, searches, tokens, usage_hours

_LOG_TABLES: Final = ", ".join(table.name for table in (requests, attempts, searches))

TIMEOUT: Final = 3600.0
"""Seconds: it reads every row."""

MAX_DISCREPANCIES: Final = 1000
"""Rows of a table that are reported; one with more of them is not checked further."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Discrepancy:
    """A value of the ledger, `stands`, that should be `counted`.

    `column` is `table.column`. A token's total has its token, an hourly sum (Unix hour) its
    complete key, others have neither.
    """

    column: str
    stands: int
    counted: int
    token_id: str | None = None
    hour: int | None = None
    group_name: str | None = None
    model: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """How many tokens, rows of requests and hourly sums were checked.

    Rows that started before the Unix hour `rows_kept_since` may have been deleted and are not
    compared. `open` are those still running. `damage` is what the database reports of itself;
    where there is any, nothing else was checked.
    """

    keys: int = 0
    rows: int = 0
    hours: int = 0
    open: int = 0
    rows_kept_since: int = 0
    damage: tuple[str, ...] = ()
    discrepancies: tuple[Discrepancy, ...] = ()

    @property
    def ok(self) -> bool:
        return not self.damage and not self.discrepancies


async def check(database: Database, *, boot_id: str | None = None) -> Report:
    """Count everything again, as of one moment, while others write.

    `boot_id` is that of the running recorder: there should be no running rows of others. With None
    no recorder runs, and running rows wait for the next one to settle them.
    """
    async with _snapshot(database) as connection:
        if damage := await _damage(connection):
            return Report(damage=damage)
        since = int(await connection.scalar(ROWS_KEPT_SINCE) or 0)
        discrepancies = [
            *await _compare(connection, tokens, _totals(), _totals_of_hours()),
            *await _compare(connection, usage_hours, _hours(since), _hours_of_rows(since)),
            *await _stale_rows(connection, boot_id),
            *await _server_tables(connection),
        ]
        return Report(
            keys=await _count(connection, select(func.count()).select_from(tokens)),
            rows=await _count(connection, select(func.count()).select_from(requests)),
            hours=await _count(connection, select(func.count()).select_from(usage_hours)),
            open=await _count(connection, select(func.count()).where(IS_RUNNING)),
            rows_kept_since=since,
            discrepancies=tuple(discrepancies),
        )


@asynccontextmanager
async def _snapshot(database: Database) -> AsyncIterator[AsyncConnection]:
    """All reads see what was committed before the first of them."""
    if database.dialect.name == "sqlite":
        async with database.reader.connect() as connection:
            await connection.exec_driver_sql("BEGIN")
            try:
                yield connection
            finally:
                await connection.rollback()
        return
    async with database.read_within(TIMEOUT) as connection:
        await connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        # Before the first read: no day of the log is dropped that the snapshot still has.
        await connection.exec_driver_sql(f"LOCK TABLE {_LOG_TABLES} IN ACCESS SHARE MODE")
        yield connection


async def _damage(connection: AsyncConnection) -> tuple[str, ...]:
    if connection.dialect.name != "sqlite":
        return ()
    findings = (await connection.exec_driver_sql("PRAGMA integrity_check")).scalars().all()
    return tuple(finding for finding in findings if finding != "ok")


async def _stale_rows(connection: AsyncConnection, boot_id: str | None) -> list[Discrepancy]:
    """Attempts without a request, and running rows of other boots."""
    orphans = select(func.count()).select_from(attempts.outerjoin(requests))
    lost_searches = select(func.count()).select_from(searches.outerjoin(requests))
    queries = {
        "attempts.request_id": orphans.where(requests.c.id.is_(None)),
        "searches.request_id": lost_searches.where(requests.c.id.is_(None)),
    }
    if boot_id is not None:
        left_by = left_by_earlier_boots(connection.dialect.name, boot_id)
        of_others = select(func.count()).where(IS_RUNNING, left_by)
        queries["requests.boot_id"] = of_others
    return [
        Discrepancy(column=column, stands=count, counted=0)
        for column, query in queries.items()
        if (count := await _count(connection, query))
    ]


async def _server_tables(connection: AsyncConnection) -> list[Discrepancy]:
    """Sums of days, and spending, that are not the sums of their hours."""
    if connection.dialect.name == "sqlite":
        return []
    from gateway.store.postgresql.integrity import sums_of_days, wrong_spending
    from gateway.store.postgresql.schema import usage_days

    return [
        *await _compare(connection, usage_days, *sums_of_days()),
        *[
            Discrepancy(column=f"spending.{period}.{name}", stands=stands, counted=counted, **where)
            async for period, name, stands, counted, where in wrong_spending(
                connection, MAX_DISCREPANCIES
            )
        ],
    ]


async def _count(connection: AsyncConnection, query: Select[int]) -> int:
    return await connection.scalar(query) or 0


async def _compare(
    connection: AsyncConnection, table: Table, stands: Select[Any], counted: Select[Any]
) -> list[Discrepancy]:
    """Where the queries differ. Both have columns of a key, then counts of the same names."""
    sides = union_all(
        stands.add_columns(literal_column("1").label("side")),
        counted.add_columns(literal_column("2").label("side")),
    ).subquery()
    key = [column for column in sides.c if column.name in HOUR_KEY]
    counts = [column for column in sides.c if column.name not in (*HOUR_KEY, "side")]
    pairs = [
        [sum_of(case((sides.c.side == side, column), else_=0)) for side in (1, 2)]
        for column in counts
    ]
    query = (
        select(*key, *(count for pair in pairs for count in pair))
        .group_by(*key)
        .having(or_(*(left != right for left, right in pairs)))
        .order_by(*key)
        .limit(MAX_DISCREPANCIES)
    )
    columns = [f"{table.name}.{column.name}" for column in counts]
    names = [column.name for column in key]
    rows = await connection.execute(query)
    return [difference for row in rows for difference in _discrepancies(row, names, columns)]


def _discrepancies(
    row: Row[Any], key: Sequence[str], columns: Sequence[str]
) -> Iterator[Discrepancy]:
    key_values: dict[str, Any] = dict(zip(key, row, strict=False))
    counts = iter(row[len(key) :])
    for column, stands, counted in zip(columns, counts, counts, strict=True):
        if stands != counted:
            yield Discrepancy(column=column, stands=stands, counted=counted, **key_values)


def _totals() -> Select[Any]:
    return select(tokens.c.id.label("token_id"), *(tokens.c[name] for name in TOKEN_TOTALS))


def _totals_of_hours() -> Select[Any]:
    token_id = usage_hours.c.token_id
    sums = (sum_of(usage_hours.c[name]).label(name) for name in TOKEN_TOTALS)
    return select(token_id, *sums).group_by(token_id)


def _hours(since: int) -> Select[Any]:
    return select(usage_hours).where(usage_hours.c.hour >= since)


def _hours_of_rows(since: int) -> Select[Any]:
    row = requests.c
    columns: dict[str, ColumnElement[Any]] = {
        **HOUR_KEY,
        **{name: sum_of(row[name]) for name in USAGE_COUNTS if name in row},
        "errors": sum_of(case((row.state != ExchangeState.OK, row.requests), else_=0)),
        "estimated": sum_of(case((row.usage_source == "estimated", 1), else_=0)),
        "first_events": func.count(row.first_event_us),
        "total_us": sum_of(case((row.first_event_us.is_not(None), row.total_us))),
    }
    return (
        select(*(columns[column.name].label(column.name) for column in usage_hours.columns))
        .where(row.state != ExchangeState.RUNNING, row.started_at >= since * HOUR_US)
        .group_by(*HOUR_KEY.values())
    )
