"""The request log of several replicas, counted again from outside, in SQL of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, Final

import asyncpg

_SUMS: Final = "requests, input_tokens, output_tokens, cost_micro, usd_micro"
_OPEN: Final = "SELECT count(*) FROM requests WHERE state = 'running'"
_LEASED: Final = "SELECT coalesce(sum(units), 0) + coalesce(sum(usd), 0) FROM budget_leases"

_DOUBLED: Final = """
SELECT client_request_id FROM requests WHERE client_request_id = ANY($1)
GROUP BY client_request_id HAVING count(*) > 1
"""
_NAMES: Final = "SELECT DISTINCT client_request_id FROM requests WHERE client_request_id = ANY($1)"

_OF_ROWS: Final = """
SELECT coalesce(token_id, '') AS holder, sum(requests)::bigint AS requests,
    sum(coalesce(input_tokens, 0))::bigint AS input_tokens,
    sum(coalesce(output_tokens, 0))::bigint AS output_tokens,
    sum(cost_micro)::bigint AS cost_micro, sum(usd_micro)::bigint AS usd_micro
FROM requests WHERE state <> 'running' GROUP BY 1 HAVING coalesce(token_id, '') <> ''
"""
_OF_HOURS: Final = """
SELECT token_id AS holder, sum(requests)::bigint AS requests,
    sum(input_tokens)::bigint AS input_tokens, sum(output_tokens)::bigint AS output_tokens,
    sum(cost_micro)::bigint AS cost_micro, sum(usd_micro)::bigint AS usd_micro
FROM usage_hours WHERE token_id <> '' GROUP BY 1
"""
_OF_TOKENS: Final = f"SELECT id AS holder, {_SUMS} FROM tokens WHERE requests > 0"
_SPENT: Final = """
SELECT holder_kind || ' ' || holder_id AS holder, units, usd FROM spending
WHERE period = 'total' AND (units <> 0 OR usd <> 0)
"""
_SPENT_OF_ROWS: Final = """
SELECT 'key ' || token_id AS holder, sum(cost_micro)::bigint AS units,
    sum(usd_micro)::bigint AS usd
FROM requests WHERE state <> 'running' AND token_id <> '' AND cost_micro + usd_micro > 0 GROUP BY 1
UNION ALL
SELECT 'group ' || group_name, sum(cost_micro)::bigint, sum(usd_micro)::bigint
FROM requests WHERE state <> 'running' AND group_name <> '' AND cost_micro + usd_micro > 0
GROUP BY 1
"""
_PERIODS: Final = """
SELECT holder_kind || ' ' || holder_id || ' ' || period AS holder, sum(units)::bigint AS units,
    sum(usd)::bigint AS usd
FROM spending WHERE holder_kind IN ('key', 'group') GROUP BY 1
"""


async def query(url: str, sql: str, *arguments: Any) -> list[asyncpg.Record]:
    connection = await asyncpg.connect(url, timeout=10)
    try:
        rows: list[asyncpg.Record] = await connection.fetch(sql, *arguments, timeout=60)
        return rows
    finally:
        await connection.close()


async def value(url: str, sql: str, *arguments: Any) -> Any:
    return (await query(url, sql, *arguments))[0][0]


async def settled(url: str, seconds: float = 30) -> None:
    """No row is running any more."""
    async with asyncio.timeout(seconds):
        while await value(url, _OPEN):
            await asyncio.sleep(0.1)


async def leases_ended(url: str, seconds: float = 30) -> None:
    """Nothing is leased to anybody any more."""
    async with asyncio.timeout(seconds):
        while await value(url, _LEASED):
            await asyncio.sleep(0.1)


async def find_faults(url: str, answered: Iterable[str] = ()) -> list[str]:
    """What is wrong with the log; `answered` are the names of requests of which a client has seen
    at least a head with status 200: each has one row. Nothing may be under way."""
    connection = await asyncpg.connect(url, timeout=10)
    try:
        async with connection.transaction(isolation="repeatable_read", readonly=True):
            return [fault async for fault in _faults(connection, sorted(answered))]
    finally:
        await connection.close()


async def _faults(connection: Any, answered: list[str]) -> Any:
    if count := await connection.fetchval(_OPEN):
        yield f"{count} rows are running"
    found = {row[0] for row in await connection.fetch(_NAMES, answered)}
    if missing := sorted(set(answered) - found):
        yield f"{len(missing)} answered requests have no row: {missing[:5]}"
    if doubled := await connection.fetch(_DOUBLED, answered):
        yield f"{len(doubled)} requests have several rows: {doubled[:5]}"
    rows = await _table(connection, _OF_ROWS)
    for name, sql in (("hours", _OF_HOURS), ("tokens", _OF_TOKENS)):
        if differing := _differences(rows, await _table(connection, sql)):
            yield f"{name} differ from rows: {differing}"
    spent = await _table(connection, _SPENT)
    if differing := _differences(await _table(connection, _SPENT_OF_ROWS), spent):
        yield f"spending differs from rows: {differing}"
    periods = await _table(connection, _PERIODS)
    totals = {name: sums for name, sums in periods.items() if name.endswith(" total")}
    for name, sums in periods.items():
        if totals.get(f"{name.rpartition(' ')[0]} total") != sums:
            yield f"spending by period differs from the total: {name}"


async def _table(connection: Any, sql: str) -> dict[str, dict[str, int]]:
    rows = [dict(row) for row in await connection.fetch(sql)]
    return {row.pop("holder"): row for row in rows}


def _differences(
    one: dict[str, dict[str, int]], other: dict[str, dict[str, int]]
) -> dict[str, tuple[object, object]]:
    return {
        name: (one.get(name), other.get(name))
        for name in one.keys() | other.keys()
        if one.get(name) != other.get(name)
    }
