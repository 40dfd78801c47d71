"""A read that takes too long is given up, says what to do, and leaves its connection as it was."""

from __future__ import annotations

import asyncio
import time

import pytest
from sqlalchemy import text

from gateway.store.database import Database
from gateway.store.errors import QueryTimeout
from gateway.store.log.pages import timed_reader
from tests.support.timing import SLACK

ENDLESS = text(
    "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT count(*) FROM n"
)


async def test_a_slow_query_times_out(database: Database) -> None:
    began = time.monotonic()
    with pytest.raises(QueryTimeout, match=r"within 0\.1 s: narrow the time"):
        async with timed_reader(database, 0.1) as connection:
            await connection.execute(ENDLESS)
    assert time.monotonic() - began < SLACK


async def test_connections_work_after_a_timeout(database: Database) -> None:
    """More of them than the pool has, all at once; then one that has no deadline lives on."""

    async def one() -> None:
        async with timed_reader(database, 0.05) as connection:
            await connection.execute(ENDLESS)

    async with asyncio.timeout(30):
        outcomes = await asyncio.gather(*(one() for _ in range(9)), return_exceptions=True)
        assert {type(each) for each in outcomes} == {QueryTimeout}
        count = text(
            "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 1000000)"
            " SELECT count(*) FROM n"
        )
        async with database.reader.connect() as connection:
            assert await connection.scalar(count) == 1_000_000


async def test_other_errors_are_raised_unchanged(database: Database) -> None:
    with pytest.raises(Exception, match=r"no such table|does not exist"):
        async with timed_reader(database) as connection:
            await connection.execute(text("SELECT * FROM nowhere"))


async def test_a_cancellation_returns_its_connection(database: Database) -> None:
    async def one() -> None:
        async with timed_reader(database, 0.3) as connection:
            await connection.execute(ENDLESS)

    async with asyncio.timeout(30):
        tasks = [asyncio.create_task(one()) for _ in range(6)]
        await asyncio.sleep(0.1)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        async with timed_reader(database, 5) as connection:
            assert await connection.scalar(text("SELECT 1")) == 1
