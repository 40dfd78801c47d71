"""Spending and leases on a database server are checked too."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from sqlalchemy import text

from gateway.store import tokens
from gateway.store.database import Database
from gateway.store.log.integrity import check
from gateway.store.log.recorder import Recorder
from gateway.store.open import open_database
from gateway.store.records import HOUR_US
from tests.store.sample_rows import START, intent, settlement, token
from tests.support.databases import server_of
from tests.support.postgres import drop_database, new_database_url, postgres_server

pytestmark = pytest.mark.servers

COST = 14


@pytest.fixture
async def database() -> AsyncIterator[Database]:
    url = await new_database_url()
    database = await open_database(server_of(url))
    await tokens.add_token(database, token(0))
    recorder = Recorder(database)
    await recorder.start()
    for number in range(2):
        await recorder.record_intent(intent(number))
        recorder.record_settlement(settlement(number, cost_micro=COST, usd_micro=3))
    await recorder.close()
    yield database
    await database.close()
    await drop_database(postgres_server(), url.rpartition("/")[2])


async def change(database: Database, statement: str) -> None:
    await database.write(lambda connection: connection.execute(text(statement)))


async def test_what_was_recorded_agrees(database: Database) -> None:
    report = await check(database)
    assert report.ok
    assert report.rows == 2


@pytest.mark.parametrize("period", ["total", "day", "hour"])
async def test_spending_that_is_not_the_sum_of_its_hours(database: Database, period: str) -> None:
    await change(
        database,
        f"UPDATE spending SET units = units + 1 WHERE holder_kind = 'key' AND period = '{period}'",
    )
    (found,) = (await check(database)).discrepancies
    assert (found.column, found.token_id) == (f"spending.{period}.units", "tok_0")
    assert (found.stands, found.counted) == (2 * COST + 1, 2 * COST)
    begins = {"total": None, "day": START // HOUR_US // 24 * 24, "hour": START // HOUR_US}
    assert found.hour == begins[period]


async def test_a_missing_total(database: Database) -> None:
    await change(database, "DELETE FROM spending WHERE holder_kind = 'group'")
    found = (await check(database)).discrepancies
    assert [(each.column, each.stands, each.counted) for each in found] == [
        ("spending.total.units", 0, 2 * COST),
        ("spending.total.usd", 0, 6),
    ]
    assert {each.group_name for each in found} == {"default"}
