"""Checks that the ledger's rows, hourly sums, totals and links agree. It repairs nothing."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import (
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
from gateway.store.log.expressions import HOUR_KEY, IS_RUNNING, ROW_COUNTS, sum_of
from gateway.store.log.link_check import wrong_links
from gateway.store.log.links import LINKED_SINCE, open_ends
from gateway.store.log.retention import ROWS_KEPT_SINCE
from gateway.store.log.traffic import COUNTED_SINCE, FOLDED_BEFORE, folded_start
from gateway.store.log.traffic_rows import COUNTED, SLOT_KEY
from gateway.store.measures import MEASURES
from gateway.store.records import DAY_US, HOUR_US, TOKEN_TOTALS, Discrepancy, ExchangeState
from gateway.store.schema import attempts, links, requests, searches, tokens, traffic, usage_hours

TIMEOUT: Final = 3600.0
"""Seconds: it reads every row."""

MAX_DISCREPANCIES: Final = 1000
"""Rows of a table that are reported; one with more of them is not checked further."""


_KEYS: Final = {*HOUR_KEY, *SLOT_KEY}


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The result of a check: how many tokens, rows of requests and hourly sums were checked.

    Rows that started before the Unix hour `rows_kept_since` may have been deleted and are not
    compared. `open` are those still running. `links` is the number of links, `linked_since` the
    time (Unix µs) since which all rows have one, None while others write rows that have none;
    `head` are the digests of the last links (`gateway.store.log.links`). `damage` is what the
    database reports of itself; if there is any, nothing else was checked.
    """

    keys: int = 0
    rows: int = 0
    hours: int = 0
    open: int = 0
    rows_kept_since: int = 0
    links: int = 0
    linked_since: int | None = 0
    head: tuple[str, ...] = ()
    damage: tuple[str, ...] = ()
    discrepancies: tuple[Discrepancy, ...] = ()

    @property
    def ok(self) -> bool:
        return not self.damage and not self.discrepancies


async def check(
    database: Database, *, boot_id: str | None = None, heads: Sequence[str] = ()
) -> Report:
    """Count everything again, as of one moment, while others write. `heads` are digests of links
    that must be there.

    `boot_id` is that of the running recorder: there should be no running rows of others. With None
    no recorder runs, and running rows wait for the next one to settle them.
    """
    async with database.snapshot(TIMEOUT) as connection:
        if damage := await database.find_damage(connection):
            return Report(damage=damage)
        since = int(await connection.scalar(ROWS_KEPT_SINCE) or 0)
        kept = select(usage_hours).where(usage_hours.c.hour >= since)
        discrepancies = [
            *await compare(connection, tokens, _totals(), _totals_of_hours()),
            *await compare(connection, usage_hours, kept, _hours_of_rows(since)),
            *await _wrong_traffic(connection, since * HOUR_US),
            *await _stale_rows(database, connection, boot_id),
            *await database.wrong_sums(connection, MAX_DISCREPANCIES),
            *await wrong_links(connection, since, heads, MAX_DISCREPANCIES),
        ]
        linked_since = await connection.scalar(LINKED_SINCE)
        ends = await connection.execute(open_ends(time.time_ns() // 1000 // DAY_US))
        return Report(
            keys=await _count(connection, select(func.count()).select_from(tokens)),
            rows=await _count(connection, select(func.count()).select_from(requests)),
            hours=await _count(connection, select(func.count()).select_from(usage_hours)),
            open=await _count(connection, select(func.count()).where(IS_RUNNING)),
            rows_kept_since=since,
            links=await _count(connection, select(func.count()).select_from(links)),
            linked_since=None if linked_since == "" else int(linked_since or 0),
            head=tuple(digest for (digest,) in ends),
            discrepancies=tuple(discrepancies),
        )


async def _wrong_traffic(connection: AsyncConnection, since: int) -> list[Discrepancy]:
    """Sums of traffic that are not those of their rows, from `since` (Unix µs), or from when all
    rows are counted. Both sides are folded alike, as some may not be yet."""
    counted_since = await connection.scalar(COUNTED_SINCE)
    if counted_since == "":
        return []
    first = max(since, int(counted_since or 0))
    folded = {name: int(value) for name, value in await connection.execute(FOLDED_BEFORE)}

    def select_sums(key: Mapping[str, Any], measures: Iterable[Any]) -> Select[Any]:
        start = folded_start(key["start"], folded)
        names = start.label("start"), key["model"].label("model"), key["channel"].label("channel")
        grouped = start, key["model"], key["channel"]
        return select(*names, *measures).where(start >= first).group_by(*grouped)

    sums = [sum_of(traffic.c[name]).label(name) for name in map(str, MEASURES)]
    rows = select_sums(SLOT_KEY, COUNTED).where(~IS_RUNNING, requests.c.started_at >= first)
    return await compare(connection, traffic, select_sums(dict(traffic.c), sums), rows)


async def _stale_rows(
    database: Database, connection: AsyncConnection, boot_id: str | None
) -> list[Discrepancy]:
    """Attempts without a request, and running rows of other boots."""
    orphans = select(func.count()).select_from(attempts.outerjoin(requests))
    lost_searches = select(func.count()).select_from(searches.outerjoin(requests))
    queries = {
        "attempts.request_id": orphans.where(requests.c.id.is_(None)),
        "searches.request_id": lost_searches.where(requests.c.id.is_(None)),
    }
    if boot_id is not None:
        left_by = database.left_by_earlier_boots(boot_id)
        of_others = select(func.count()).where(IS_RUNNING, left_by)
        queries["requests.boot_id"] = of_others
    return [
        Discrepancy(column=column, stands=count, counted=0)
        for column, query in queries.items()
        if (count := await _count(connection, query))
    ]


async def _count(connection: AsyncConnection, query: Select[int]) -> int:
    return await connection.scalar(query) or 0


async def compare(
    connection: AsyncConnection, table: Table, stands: Select[Any], counted: Select[Any]
) -> list[Discrepancy]:
    """Returns the rows in which the queries differ. Both have columns of a key, then counts of the
    same names."""
    sides = union_all(
        stands.add_columns(literal_column("1").label("side")),
        counted.add_columns(literal_column("2").label("side")),
    ).subquery()
    key = [column for column in sides.c if column.name in _KEYS]
    counts = [column for column in sides.c if column.name not in (*_KEYS, "side")]
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


def _hours_of_rows(since: int) -> Select[Any]:
    row = requests.c
    columns = {**HOUR_KEY, **{name: sum_of(count) for name, count in ROW_COUNTS.items()}}
    return (
        select(*(columns[column.name].label(column.name) for column in usage_hours.columns))
        .where(row.state != ExchangeState.RUNNING, row.started_at >= since * HOUR_US)
        .group_by(*HOUR_KEY.values())
    )
