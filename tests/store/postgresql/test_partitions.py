"""Partitions of the request log: days ahead, rows that come before their day, days that go."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import orjson
import pytest
from sqlalchemy import text
from sqlalchemy.dialects import postgresql

from gateway.config.cluster import DatabaseServer
from gateway.store import tokens
from gateway.store.log import integrity, pages
from gateway.store.log.integrity import check
from gateway.store.log.pages import LogFilter
from gateway.store.log.recorder import Recorder
from gateway.store.log.retention import ROWS_KEPT_SINCE, delete_before
from gateway.store.log.usage import Dimension, usage
from gateway.store.open import open_database
from gateway.store.postgresql import partitions
from gateway.store.postgresql.database import PostgresqlDatabase
from gateway.store.postgresql.partitions import (
    DAY_US,
    Day,
    create_days,
    create_listed,
    drop_days_before,
    list_days,
    lock_session,
)
from gateway.store.records import HOUR_US, ExchangeState, RequestRow
from tests.store.sample_rows import START, attempt, intent, settled, token
from tests.support.databases import all_written, run_apart
from tests.support.postgres import new_database_url

pytestmark = [pytest.mark.timeout(60), pytest.mark.servers]

TODAY = Day.of(START)


@pytest.fixture
async def database() -> AsyncIterator[PostgresqlDatabase]:
    server = DatabaseServer.model_validate({"url": await new_database_url()})
    database = await open_database(server)
    assert isinstance(database, PostgresqlDatabase)
    await tokens.add_token(database, token(0))
    yield database
    await database.close()


@pytest.fixture
async def recorder(database: PostgresqlDatabase) -> AsyncIterator[Recorder]:
    recorder = Recorder(database)
    await recorder.start()
    yield recorder
    await recorder.close()


@pytest.fixture
async def session(database: PostgresqlDatabase) -> AsyncIterator[asyncpg.Connection]:
    session = await database.connect(command_timeout=10)
    yield session
    await session.close()


def row_at(at: int, number: int = 0) -> RequestRow:
    return intent(number, id=f"req_{at:014x}{number:010x}", started_at=at)


def settlement_at(at: int, number: int = 0) -> RequestRow:
    return settled(row_at(at, number), attempts=1, cost_micro=3)


async def rows_in(session: asyncpg.Connection, table: str) -> int:
    count: int = await session.fetchval(f"SELECT count(*) FROM {table}")
    return count


async def partitioned_days(database: PostgresqlDatabase) -> list[Day]:
    async with lock_session(database) as session:
        return await list_days(session)


def test_a_day_is_named_and_bounded() -> None:
    day = Day.named("20260921")
    assert (day.name, day) == ("20260921", Day.of(START))
    first, end = day.bounds
    assert first <= row_at(day.number * DAY_US).id < end
    assert row_at(day.number * DAY_US - 1).id < first
    assert row_at((day.number + 1) * DAY_US).id >= end


async def test_days_are_created_once_by_any_number_of_replicas(
    database: PostgresqlDatabase,
) -> None:
    created = await asyncio.gather(*(create_days(database, START) for _ in range(4)))
    days = [Day(TODAY.number + ahead) for ahead in range(3)]
    assert sorted(day for each in created for day in each) == days
    assert await partitioned_days(database) == days
    assert await create_days(database, START) == []


async def test_rows_go_to_their_day_and_others_to_the_default(
    database: PostgresqlDatabase, recorder: Recorder, session: asyncpg.Connection
) -> None:
    await create_days(database, START, ahead=0)
    tomorrow = START + DAY_US
    await recorder.record_intent(row_at(START))
    for row in (settlement_at(START), settlement_at(tomorrow), settled(intent(7))):
        recorder.record_settlement(row, (attempt(),))
    await recorder.close()
    for table in ("requests", "attempts"):
        assert await rows_in(session, f"{table}_{TODAY.name}") == 1
        assert await rows_in(session, f"{table}_default") == 2
    assert [row.id for row in await pages.page(database)] == [
        settlement_at(tomorrow).id,
        settlement_at(START).id,
        intent(7).id,
    ]
    assert len(await pages.attempts(database, settlement_at(tomorrow).id)) == 1
    assert (await check(database)).ok


async def test_a_day_takes_its_rows_from_the_default(
    database: PostgresqlDatabase, recorder: Recorder, session: asyncpg.Connection
) -> None:
    await recorder.record_intent(row_at(START, 1))
    recorder.record_settlement(settlement_at(START, 2), (attempt(),))
    recorder.record_settlement(settled(intent(7)))
    await recorder.record_intent(row_at(START, 3))
    await all_written(recorder)
    assert TODAY in await create_days(database, START)
    assert await rows_in(session, f"requests_{TODAY.name}") == 3
    assert await rows_in(session, "requests_default") == 1
    recorder.record_settlement(settlement_at(START, 1), (attempt(),))
    recorder.record_settlement(settlement_at(START, 3), (attempt(),))
    await recorder.close()
    assert await rows_in(session, f"attempts_{TODAY.name}") == 3
    assert (await check(database)).ok


async def test_too_many_rows_stay_in_the_default(
    database: PostgresqlDatabase, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partitions, "MAX_MOVED", 1)
    for number in range(2):
        recorder.record_settlement(settlement_at(START, number))
    await recorder.close()
    assert TODAY not in await create_days(database, START)
    assert len(await partitioned_days(database)) == 2


async def test_days_are_created_while_rows_arrive(
    database: PostgresqlDatabase, recorder: Recorder, session: asyncpg.Connection
) -> None:
    """No row is refused or lost in the moment in which its day appears."""
    ended = asyncio.Event()
    written = 0

    async def write() -> None:
        nonlocal written
        while not ended.is_set():
            at = START + written % 3 * DAY_US
            await recorder.record_intent(row_at(at, written))
            recorder.record_settlement(settlement_at(at, written), (attempt(),))
            written += 1

    writing = asyncio.ensure_future(write())
    while written < 30:
        await asyncio.sleep(0.01)
    assert len(await create_days(database, START)) == 3
    before = written
    while written < before + 30:
        await asyncio.sleep(0.01)
    ended.set()
    await writing
    await recorder.close()
    assert await rows_in(session, "requests_default") == 0
    assert await rows_in(session, "requests") == await rows_in(session, "attempts") == written
    assert (await check(database)).ok


async def test_a_day_is_dropped_but_not_with_a_running_request(
    database: PostgresqlDatabase, recorder: Recorder, session: asyncpg.Connection
) -> None:
    await create_days(database, START)
    tomorrow = Day(TODAY.number + 1)
    await recorder.record_intent(row_at(START, 1))
    recorder.record_settlement(settlement_at(START, 2), (attempt(),))
    recorder.record_settlement(settlement_at(START + DAY_US, 3), (attempt(),))
    await asyncio.sleep(0.1)
    assert await drop_days_before(database, tomorrow) == 0
    recorder.record_settlement(settlement_at(START, 1))
    await recorder.close()
    assert await drop_days_before(database, tomorrow) == 2
    assert (await partitioned_days(database))[0] == tomorrow
    assert [row.id for row in await pages.page(database)] == [row_at(START + DAY_US, 3).id]
    assert await rows_in(session, "attempts") == 1
    assert await drop_days_before(database, tomorrow) == 0


async def test_a_day_that_was_only_detached_is_dropped_by_the_next_round(
    database: PostgresqlDatabase, session: asyncpg.Connection
) -> None:
    await create_days(database, START)
    for table in ("requests", "attempts", "searches"):
        await session.execute(f"ALTER TABLE {table} DETACH PARTITION {table}_{TODAY.name}")
    await drop_days_before(database, TODAY)
    found = await session.fetchval("SELECT to_regclass($1)", f"attempts_{TODAY.name}")
    assert found is None


async def test_nobody_waits_long_behind_a_long_query(
    database: PostgresqlDatabase,
    recorder: Recorder,
    session: asyncpg.Connection,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """While a long query reads a day, it is not detached, and rows are written as before."""
    monkeypatch.setattr(partitions, "_TRIES", 3)
    monkeypatch.setattr(partitions, "_PAUSE", 0.05)
    await create_days(database, START)
    reading = session.transaction()
    await reading.start()
    await rows_in(session, f"requests_{TODAY.name}")
    dropping = asyncio.ensure_future(drop_days_before(database, Day(TODAY.number + 1)))
    waits, number = [], 0
    clock = asyncio.get_running_loop().time
    while not dropping.done():
        number, began = number + 1, clock()
        await recorder.record_intent(row_at(START + DAY_US, number))
        waits.append(clock() - began)
    assert await dropping == 0
    assert TODAY in await partitioned_days(database)
    assert max(waits) < 1.0, "longer than a wait for a lock"
    await reading.rollback()
    await drop_days_before(database, Day(TODAY.number + 1))
    assert TODAY not in await partitioned_days(database)


@pytest.mark.parametrize(
    ("table", "indexes"),
    [
        (
            "requests",
            {
                *("requests_pkey", "requests_of_token", "requests_running", "requests_failed"),
                *("requests_of_model", "requests_of_other_model"),
            },
        ),
        ("attempts", {"attempts_pkey"}),
        ("searches", {"searches_pkey"}),
    ],
)
async def test_a_table_has_its_indexes_and_no_reference(
    session: asyncpg.Connection, table: str, indexes: set[str]
) -> None:
    found: list[Any] = await session.fetch(
        "SELECT indexname FROM pg_indexes WHERE tablename = $1", table
    )
    assert {name for (name,) in found} == indexes
    query = "SELECT count(*) FROM pg_constraint WHERE contype = 'f' AND conrelid = $1::regclass"
    assert await session.fetchval(query, table) == 0


async def test_retention_drops_days_and_deletes_rows_of_the_default(
    database: PostgresqlDatabase, recorder: Recorder, session: asyncpg.Connection
) -> None:
    """`rows_kept_since` is right for both, and the sums stay."""
    await create_days(database, START, ahead=0)
    late = START + 3 * DAY_US
    await recorder.record_intent(row_at(START - 2 * DAY_US, 9))
    for number, at in enumerate((START, START - DAY_US, late)):
        recorder.record_settlement(settlement_at(at, number), (attempt(),))
    await recorder.close()
    before = await usage(database, [Dimension.HOUR])
    assert await delete_before(database, START + DAY_US, pause=0) == 2
    assert await partitioned_days(database) == []
    kept = {row_at(late, 2).id, row_at(START - 2 * DAY_US, 9).id}
    assert {row.id for row in await pages.page(database)} == kept
    assert await rows_in(session, "attempts") == 1
    report = await check(database)
    assert (report.ok, report.rows) == (True, 2)
    assert report.rows_kept_since == (START + DAY_US) // HOUR_US
    assert await usage(database, [Dimension.HOUR]) == before


async def test_a_day_stays_until_its_last_hour_has_expired(
    database: PostgresqlDatabase, recorder: Recorder
) -> None:
    await create_days(database, START, ahead=0)
    recorder.record_settlement(settlement_at(START), (attempt(),))
    await recorder.close()
    end = (TODAY.number + 1) * DAY_US
    assert await delete_before(database, end - 1, pause=0) == 0
    assert (await check(database)).ok
    assert await delete_before(database, end, pause=0) == 1


async def test_a_check_sees_all_days_of_its_moment(
    database: PostgresqlDatabase, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Days that retention drops meanwhile are not missing: it waits for the check."""
    monkeypatch.setattr(partitions, "_TRIES", 2)
    await create_days(database, START, ahead=0)
    for number in range(10):
        recorder.record_settlement(settlement_at(START, number), (attempt(),))
    await recorder.close()
    async with database.snapshot(integrity.TIMEOUT) as connection:
        assert await connection.scalar(ROWS_KEPT_SINCE) is None
        assert await delete_before(database, START + DAY_US, pause=0) == 0
        query = text("SELECT count(*) FROM requests")
        assert await connection.scalar(query) == 10
    assert await delete_before(database, START + DAY_US, pause=0) == 10


PAGES = {
    "first": LogFilter(),
    "of a day": LogFilter(since=START - 2 * DAY_US, until=START - DAY_US),
    "of a key": LogFilter(token_id="tok_3"),
    "of a rare key": LogFilter(token_id="tok_rare"),
    "failed": LogFilter(state=ExchangeState.ERROR),
    "of a rare model": LogFilter(model="rare-model"),
    "of a rare model in a day": LogFilter(
        model="rare-model", since=START - DAY_US // 2, until=START + DAY_US // 2
    ),
    "of a model that clients invent": LogFilter(model="invented"),
    "of no model": LogFilter(model="none"),
}


@pytest.fixture(scope="module")
def full() -> DatabaseServer:
    """A hundred thousand rows of five days."""

    async def fill() -> DatabaseServer:
        server = DatabaseServer.model_validate({"url": await new_database_url()})
        database = await open_database(server)
        assert isinstance(database, PostgresqlDatabase)
        first = TODAY.number - 4
        await create_listed(database, map(Day, range(first, TODAY.number + 1)))
        session = await database.connect(command_timeout=60)
        for number in range(5):
            await session.execute(ROWS, (first + number) * DAY_US)
        await session.execute("VACUUM ANALYZE requests")
        await session.close()
        await database.close()
        return server

    return run_apart(fill())


ROWS = """
INSERT INTO requests (id, started_at, token_id, group_name, endpoint, format, model, catalog_model,
    stream, bytes_in, state, boot_id)
SELECT 'req_' || lpad(to_hex($1::bigint + n), 14, '0') || lpad(to_hex(n), 10, '0'), $1::bigint + n,
    CASE WHEN n % 2500 = 1 THEN 'tok_rare' ELSE 'tok_' || n % 50 END, 'default', '/', 'chat',
    CASE WHEN n % 2500 = 3 THEN 'invented' ELSE 'model-' || n % 9 END,
    CASE WHEN n % 2500 = 3 THEN NULL WHEN n % 2500 = 2 THEN 'rare-model' ELSE 'model-' || n % 9 END,
    true, 1, CASE WHEN n % 1000 = 1 THEN 'error' ELSE 'ok' END, 'boot'
FROM generate_series(0, 19999) AS n
"""


@pytest.mark.parametrize("page", PAGES)
async def test_a_page_reads_few_rows(full: DatabaseServer, page: str) -> None:
    """Of a hundred thousand: whatever the filter, an index finds what is rare. Blocks of the table
    and its indexes are counted, as time would be noise."""
    database = await open_database(full)
    assert isinstance(database, PostgresqlDatabase)
    query = pages._query(database, PAGES[page], 50).compile(
        dialect=postgresql.dialect(),  # type: ignore[no-untyped-call]
        compile_kwargs={"literal_binds": True},
    )
    session = await database.connect(command_timeout=20)
    (plan,) = orjson.loads(
        await session.fetchval(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {query}")
    )
    blocks = plan["Plan"]["Shared Hit Blocks"] + plan["Plan"]["Shared Read Blocks"]
    await session.close()
    await database.close()
    assert blocks < 500, "the table has 1,500 blocks"
