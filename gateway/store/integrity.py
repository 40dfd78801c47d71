"""Proves that the ledger's figures agree: rows, hours and totals. It repairs nothing, and it must
not know where a figure is shown.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import (
    ColumnElement,
    Row,
    Select,
    case,
    func,
    literal_column,
    or_,
    select,
    union_all,
)
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.store.database import Database
from gateway.store.records import HOUR_US, ExchangeState
from gateway.store.retention import ROWS_KEPT_SINCE
from gateway.store.schema import attempts, requests, tokens, usage_hours
from gateway.store.statements import HOUR_KEY, IS_RUNNING, sum_of
from gateway.store.usage import COUNTS

MAX_DISCREPANCIES: Final = 1000
"""Places of a table that are told; one with more of them is not gone through further."""

_TOTALS = ("requests", "input_tokens", "output_tokens", "cost_micro")


@dataclass(frozen=True, slots=True, kw_only=True)
class Discrepancy:
    """A figure that is not what it should be: it `stands` in the ledger, `counted` is right.

    `column` is `table.column`. A token's total has the token, a sum of an hour (whole Unix hour)
    its whole place, others have neither.
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
    """What was looked at: tokens, rows of requests, rows of hourly sums.

    Rows that started before the whole Unix hour `rows_kept_since` may have been deleted and prove
    nothing. `open` are those that have not ended. `damage` is what the database says of itself;
    where there is any, nothing else was looked at.
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
    """Count everything anew, as of one moment, while others write.

    `boot_id` is that of the running recorder: open rows of others should not be there. With None
    no recorder runs, and open rows wait for the next one to settle them.
    """
    async with _snapshot(database) as connection:
        if damage := await _damage(connection):
            return Report(damage=damage)
        kept = int(await connection.scalar(ROWS_KEPT_SINCE) or 0)
        found = [
            *await _compare(connection, "tokens", _totals(), _totals_of_hours()),
            *await _compare(connection, "usage_hours", _hours(kept), _hours_of_rows(kept)),
            *await _stale_rows(connection, boot_id),
        ]
        return Report(
            keys=await _count(connection, select(func.count()).select_from(tokens)),
            rows=await _count(connection, select(func.count()).select_from(requests)),
            hours=await _count(connection, select(func.count()).select_from(usage_hours)),
            open=await _count(connection, select(func.count()).where(IS_RUNNING)),
            rows_kept_since=kept,
            discrepancies=tuple(found),
        )


@asynccontextmanager
async def _snapshot(database: Database) -> AsyncIterator[AsyncConnection]:
    """All reads see what was committed before the first of them."""
    async with database.reader.connect() as connection:
        if database.dialect.name == "sqlite":
            await connection.exec_driver_sql("BEGIN")
        else:
            connection = await connection.execution_options(isolation_level="REPEATABLE READ")
        try:
            yield connection
        finally:
            await connection.rollback()


async def _damage(connection: AsyncConnection) -> tuple[str, ...]:
    if connection.dialect.name != "sqlite":
        return ()
    findings = (await connection.exec_driver_sql("PRAGMA integrity_check")).scalars().all()
    return tuple(finding for finding in findings if finding != "ok")


async def _stale_rows(connection: AsyncConnection, boot_id: str | None) -> list[Discrepancy]:
    """Rows that should not be there."""
    of_none = select(func.count()).select_from(attempts.outerjoin(requests))
    queries = {"attempts.request_id": of_none.where(requests.c.id.is_(None))}
    if boot_id is not None:
        of_others = select(func.count()).where(IS_RUNNING, requests.c.boot_id != boot_id)
        queries["requests.boot_id"] = of_others
    counts = {column: await _count(connection, query) for column, query in queries.items()}
    return [
        Discrepancy(column=column, stands=count, counted=0)
        for column, count in counts.items()
        if count
    ]


async def _count(connection: AsyncConnection, query: Select[int]) -> int:
    return await connection.scalar(query) or 0


async def _compare(
    connection: AsyncConnection, table: str, stands: Select[Any], counted: Select[Any]
) -> list[Discrepancy]:
    """Where the queries differ. Each has columns of a place, then counts of the same names."""
    sides = union_all(
        stands.add_columns(literal_column("1").label("side")),
        counted.add_columns(literal_column("2").label("side")),
    ).subquery()
    place = [column for column in sides.c if column.name in HOUR_KEY]
    counts = [column for column in sides.c if column.name not in (*HOUR_KEY, "side")]
    pairs = [
        [sum_of(case((sides.c.side == side, column), else_=0)) for side in (1, 2)]
        for column in counts
    ]
    query = (
        select(*place, *(figure for pair in pairs for figure in pair))
        .group_by(*place)
        .having(or_(*(left != right for left, right in pairs)))
        .order_by(*place)
        .limit(MAX_DISCREPANCIES)
    )
    columns = [f"{table}.{column.name}" for column in counts]
    names = [column.name for column in place]
    rows = await connection.execute(query)
    return [each for row in rows for each in _differences(row, names, columns)]


def _differences(
    row: Row[Any], place: Sequence[str], columns: Sequence[str]
) -> Iterator[Discrepancy]:
    where: dict[str, Any] = dict(zip(place, row, strict=False))
    figures = iter(row[len(place) :])
    for column, stands, counted in zip(columns, figures, figures, strict=True):
        if stands != counted:
            yield Discrepancy(column=column, stands=stands, counted=counted, **where)


def _totals() -> Select[Any]:
    return select(tokens.c.id.label("token_id"), *(tokens.c[name] for name in _TOTALS))


def _totals_of_hours() -> Select[Any]:
    token = usage_hours.c.token_id
    sums = (sum_of(usage_hours.c[name]).label(name) for name in _TOTALS)
    return select(token, *sums).group_by(token)


def _hours(since: int) -> Select[Any]:
    return select(usage_hours).where(usage_hours.c.hour >= since)


def _hours_of_rows(since: int) -> Select[Any]:
    row = requests.c
    counted: dict[str, ColumnElement[int]] = {
        "requests": func.count(),
        "errors": sum_of(case((row.state != ExchangeState.OK, 1), else_=0)),
        "estimated": sum_of(case((row.usage_source == "estimated", 1), else_=0)),
        "first_events": func.count(row.first_event_us),
        "total_us": sum_of(case((row.first_event_us.is_not(None), row.total_us))),
    }
    sums = {name: counted[name] if name in counted else sum_of(row[name]) for name in COUNTS}
    return (
        select(*(column.label(name) for name, column in (*HOUR_KEY.items(), *sums.items())))
        .where(row.state != ExchangeState.RUNNING, row.started_at >= since * HOUR_US)
        .group_by(*HOUR_KEY.values())
    )
