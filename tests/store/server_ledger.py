"""A ledger on a PostgreSQL server: what its sums must be, and a replica with leases in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import asyncpg

from gateway.config.cluster import DatabaseServer
from gateway.store import tokens
from gateway.store.log.integrity import check
from gateway.store.open import open_database
from gateway.store.postgresql.database import PostgresqlDatabase
from tests.store.sample_rows import token
from tests.support.postgres import new_database_url
from tests.support.proxy import FaultProxy, fault_proxy

_PERIODS = {
    "total": "0",
    "month": "date_trunc('month', at)",
    "day": "date_trunc('day', at)",
    "hour": "date_trunc('hour', at)",
    "step": "date_bin('5 minutes', at, 'epoch')",
}


@asynccontextmanager
async def server_ledger(
    url: str | None = None, **options: Any
) -> AsyncIterator[PostgresqlDatabase]:
    """With the tokens `tok_0` and `tok_1`."""
    url = url or await new_database_url()
    database = await open_database(DatabaseServer.model_validate({"url": url, **options}))
    assert isinstance(database, PostgresqlDatabase)
    if not await tokens.all_tokens(database):
        await tokens.add_tokens(database, [token(0), token(1)])
    try:
        yield database
    finally:
        await database.close()


@asynccontextmanager
async def behind_proxy(
    database: PostgresqlDatabase,
) -> AsyncIterator[tuple[FaultProxy, DatabaseServer]]:
    """A proxy in front of the database's server, and the server's address there."""
    url = database.server.url.get_secret_value()
    async with fault_proxy(url) as proxy:
        port = urlsplit(proxy.address).port
        there = url.replace(f":{urlsplit(url).port}/", f":{port}/")
        yield proxy, DatabaseServer.model_validate({"url": there, "timeout": 2})


async def connect(database: PostgresqlDatabase) -> asyncpg.Connection:
    return await database.connect(command_timeout=20)


async def lease(
    database: PostgresqlDatabase, epoch: int, holder: tuple[str, str], units: int, usd: int
) -> None:
    connection = await connect(database)
    await connection.execute(
        "INSERT INTO replicas (name, epoch, boot_id, state_id, state, address, version, schema,"
        " config_hash, started_at, heartbeat_at, expiry_us)"
        " VALUES ($1, $2, $1, '', 'serving', '', '', 1, '', 0, 0, 1) ON CONFLICT DO NOTHING",
        f"replica-{epoch}",
        epoch,
    )
    insert = "INSERT INTO budget_leases VALUES ($1, $2, $3, $4, $5)"
    await connection.execute(insert, *holder, epoch, units, usd)
    await connection.close()


async def leases(database: PostgresqlDatabase) -> dict[tuple[str, str], tuple[int, int]]:
    connection = await connect(database)
    rows = await connection.fetch("SELECT * FROM budget_leases")
    await connection.close()
    return {(row[0], row[1]): (row[3], row[4]) for row in rows}


async def spending(
    database: PostgresqlDatabase,
) -> dict[tuple[str, str, str, int], tuple[int, int]]:
    connection = await connect(database)
    rows = await connection.fetch("SELECT * FROM spending")
    await connection.close()
    return {tuple(row)[:4]: (row["units"], row["usd"]) for row in rows}  # type: ignore[misc]


async def assert_exact(database: PostgresqlDatabase, rows: int, running: int = 0) -> None:
    """So many rows, and every sum is that of the rows."""
    report = await check(database)
    assert report.discrepancies == ()
    assert (report.rows, report.open) == (rows, running)
    assert await spending(database) == await _spent_by_rows(database)


async def _spent_by_rows(
    database: PostgresqlDatabase,
) -> dict[tuple[str, str, str, int], tuple[int, int]]:
    """As the server's own calendar has it."""
    connection = await connect(database)
    spent: Counter[tuple[str, str, str, int]] = Counter()
    in_dollars: Counter[tuple[str, str, str, int]] = Counter()
    starts = ", ".join(
        "0" if period == "total" else f"(extract(epoch FROM {start}) * 1000000)::bigint"
        for period, start in _PERIODS.items()
    )
    rows = await connection.fetch(
        f"SELECT token_id, group_name, cost_micro, usd_micro, {starts} FROM (SELECT *,"
        " to_timestamp(started_at / 1000000.0) AT TIME ZONE 'UTC' AS at FROM requests"
        " WHERE state <> 'running' AND (cost_micro > 0 OR usd_micro > 0)) AS ended"
    )
    await connection.close()
    for token_id, group, units, usd, *periods in rows:
        for holder in (("key", token_id), ("group", group)):
            for period, start in zip(_PERIODS, periods, strict=True):
                spent[(*holder, period, start)] += units
                in_dollars[(*holder, period, start)] += usd
    return {key: (spent[key], in_dollars[key]) for key in spent | in_dollars}
