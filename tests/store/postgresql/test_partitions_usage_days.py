"""Days that are added up say what their hours say, whatever is settled meanwhile and later."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from itertools import product
from typing import Any

import pytest
from sqlalchemy import text

from gateway.store import tokens
from gateway.store.database import Database
from gateway.store.log.integrity import check
from gateway.store.log.overview import Overview, overview
from gateway.store.log.recorder import Recorder
from gateway.store.log.usage import Dimension, UsageRow, usage
from gateway.store.open import open_database
from gateway.store.postgresql.database import PostgresqlDatabase
from gateway.store.postgresql.partitions import _ADD_UP, _LOCK, add_up_days
from gateway.store.records import DAY_US, HOUR_US, RequestRow
from tests.store.sample_rows import settlement, token
from tests.support.databases import server_of
from tests.support.postgres import drop_database, new_database_url, postgres_server

pytestmark = pytest.mark.servers

MONDAY = 20_700
SPANS = [
    (None, None),
    (MONDAY * 24, (MONDAY + 1) * 24),
    (MONDAY * 24 + 5, (MONDAY + 2) * 24 + 7),
    (MONDAY * 24 + 5, MONDAY * 24 + 7),
    (MONDAY * 24 + 20, (MONDAY + 1) * 24 + 4),
    ((MONDAY + 1) * 24, None),
    (None, (MONDAY + 3) * 24 + 1),
]
BY = [
    (),
    (Dimension.DAY,),
    (Dimension.KEY, Dimension.DAY),
    (Dimension.MODEL, Dimension.GROUP),
    (Dimension.HOUR,),
]


@pytest.fixture
async def database() -> AsyncIterator[PostgresqlDatabase]:
    url = await new_database_url()
    database = await open_database(server_of(url))
    assert isinstance(database, PostgresqlDatabase)
    for number in range(2):
        await tokens.add_token(database, token(number))
    yield database
    await database.close()
    await drop_database(postgres_server(), url.rpartition("/")[2])


def ended(number: int, hour: int, **changes: Any) -> RequestRow:
    return settlement(number, f"tok_{number % 2}", started_at=hour * HOUR_US, **changes)


async def settle(database: Database, *rows: RequestRow) -> None:
    """And wait for their commits."""
    recorder = Recorder(database)
    await recorder.start()
    for row in rows:
        recorder.record_settlement(row)
    await recorder.close()


@pytest.fixture
async def used(database: PostgresqlDatabase) -> PostgresqlDatabase:
    """Monday, Tuesday, not Wednesday, Thursday."""
    hours = (1, 6, 6, 22, 23, 24, 27, 47, 72, 73, 95)
    models = ("alpha-5", "beta-5.4", None)
    rows = [
        ended(
            number,
            MONDAY * 24 + hour,
            catalog_model=models[number % 3],
            group_name=f"group-{number % 2}",
            cost_micro=2**number,
            usd_micro=number,
            cache_write_1h_tokens=number,
        )
        for number, hour in enumerate(hours)
    ]
    await settle(database, *rows)
    return database


async def reports(database: Database) -> tuple[list[list[UsageRow]], list[Overview]]:
    rows = [
        await usage(database, by, since=since, until=until, **filters)
        for (since, until), by in product(SPANS, BY)
        for filters in ({}, {"token_id": "tok_1"}, {"group": "group-0"}, {"model": "alpha-5"})
    ]
    days = [(0, 7), (0, 1), (1, 5), (-3, 2)]
    seen = [
        await overview(database, (MONDAY + first) * DAY_US, (MONDAY + last) * DAY_US)
        for first, last in days
    ]
    return rows, seen


async def days_of(database: PostgresqlDatabase) -> list[tuple[int, int]]:
    query = text("SELECT day, sum(requests)::bigint FROM usage_days GROUP BY 1 ORDER BY 1")
    async with database.reader.connect() as connection:
        return [(day, count) for day, count in await connection.execute(query)]


@pytest.mark.slow("writes a year of hours")
async def test_reports_do_not_change(used: PostgresqlDatabase) -> None:
    before = await reports(used)
    assert before[0][0][0].requests == 11
    assert await add_up_days(used) == 3
    assert await days_of(used) == [(MONDAY, 5), (MONDAY + 1, 3), (MONDAY + 3, 3)]
    assert await reports(used) == before
    assert (await check(used)).ok
    assert await add_up_days(used) == 0


async def test_reports_read_the_days(used: PostgresqlDatabase) -> None:
    """Else they would be as slow as before."""
    await add_up_days(used)
    await used.write(lambda connection: connection.execute(text("DELETE FROM usage_hours")))
    (row,) = await usage(used, [Dimension.KEY], token_id="tok_1")
    assert row.requests == 5
    seen = await overview(used, MONDAY * DAY_US, (MONDAY + 4) * DAY_US)
    assert [part.requests for part in seen.series] == [5, 3, 0, 3]


@pytest.mark.parametrize("hour", [6, 7, 50, -5], ids=["same", "new", "empty day", "earlier day"])
async def test_what_is_settled_later_is_in_both(used: PostgresqlDatabase, hour: int) -> None:
    await add_up_days(used)
    before = sum(count for _, count in await days_of(used))
    for number in (100, 101, 102):
        row = ended(number, MONDAY * 24 + hour, cost_micro=7, catalog_model="late")
        await settle(used, row)
    assert sum(count for _, count in await days_of(used)) == before + 3
    (row,) = await usage(used, [Dimension.DAY], model="late")
    assert (row.requests, row.cost_micro) == (3, 21)
    assert (await check(used)).ok


async def test_a_day_that_is_not_over_is_left(database: PostgresqlDatabase) -> None:
    now = time.time_ns() // 1000 // HOUR_US
    await settle(database, ended(1, now))
    assert await add_up_days(database) == 0
    (row,) = await usage(database, [Dimension.DAY])
    assert row.requests == 1


async def test_a_writer_in_the_middle_of_its_transaction(used: PostgresqlDatabase) -> None:
    writer = await used.connect()
    transaction = writer.transaction()
    await transaction.start()
    await writer.execute("UPDATE usage_hours SET requests = requests + 5 WHERE model = 'alpha-5'")
    adding = asyncio.ensure_future(add_up_days(used))
    await asyncio.sleep(0.3)
    assert not adding.done()
    await transaction.commit()
    await writer.close()
    async with asyncio.timeout(15):
        assert await adding == 3
    assert sum(count for _, count in await days_of(used)) == 11 + 4 * 5


async def test_a_writer_that_waits_for_a_day_to_be_added_up(used: PostgresqlDatabase) -> None:
    session = await used.connect()
    async with session.transaction():
        await session.execute(_LOCK)
        await session.execute(_ADD_UP, MONDAY)
        settling = asyncio.ensure_future(settle(used, ended(200, MONDAY * 24 + 6)))
        await asyncio.sleep(0.3)
        assert not settling.done()
    await session.close()
    async with asyncio.timeout(15):
        await settling
    assert await days_of(used) == [(MONDAY, 6)]
    assert (await check(used)).ok


async def test_several_at_once_add_up_each_day_once(used: PostgresqlDatabase) -> None:
    async with asyncio.timeout(30):
        await asyncio.gather(*(add_up_days(used) for _ in range(4)))
    assert await days_of(used) == [(MONDAY, 5), (MONDAY + 1, 3), (MONDAY + 3, 3)]


async def test_sums_that_do_not_agree_are_found(used: PostgresqlDatabase) -> None:
    await add_up_days(used)
    wrong = text(
        f"UPDATE usage_days SET cost_micro = cost_micro + 3 WHERE day = {MONDAY + 3}"
        " AND token_id = 'tok_1'"
    )
    await used.write(lambda connection: connection.execute(wrong))
    (found,) = (await check(used)).discrepancies
    assert (found.column, found.token_id) == ("usage_days.cost_micro", "tok_1")
    assert (found.hour, found.stands - found.counted) == ((MONDAY + 3) * 24, 3)
