"""What the recorder writes on a server is exact, whoever else writes and whatever gets lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest

from gateway.store.errors import InvalidRows
from gateway.store.log import pages
from gateway.store.log.recorder import Recorder
from gateway.store.postgresql.database import PostgresqlDatabase
from gateway.store.postgresql.recovery import mark_interrupted
from gateway.store.postgresql.writer import PostgresqlWriter
from gateway.store.records import HOUR_US, ExchangeState, LogEntry
from gateway.store.schema import requests
from tests.store.sample_rows import START, attempt, failed_attempt, intent, request_id, settlement
from tests.store.server_ledger import (
    assert_exact,
    behind_proxy,
    connect,
    lease,
    leases,
    server_ledger,
    spending,
)
from tests.support.postgres import postgres_server
from tests.support.proxy import Direction
from tests.support.toxics import Timeout

pytestmark = [pytest.mark.timeout(60), pytest.mark.servers]

EXPECTED = {"expected_input_tokens": 30, "expected_micro": 400, "expected_usd_micro": 9}
COST = {"cost_micro": 1_000, "usd_micro": 70}


@pytest.fixture
async def database() -> AsyncIterator[PostgresqlDatabase]:
    async with server_ledger() as database:
        yield database


@pytest.fixture
async def writer(database: PostgresqlDatabase) -> AsyncIterator[PostgresqlWriter]:
    writer = PostgresqlWriter(database, database.server, "boot")
    yield writer
    await writer.close(0)


def ended(number: int, **changes: Any) -> LogEntry:
    row = settlement(number, f"tok_{number % 2}", **{**EXPECTED, **COST, **changes})
    return LogEntry(row._replace(attempts=2), (failed_attempt(), attempt()))


def started(number: int) -> LogEntry:
    return LogEntry(intent(number, f"tok_{number % 2}", **EXPECTED))


async def interrupt(database: PostgresqlDatabase, epoch: int | None = None) -> int:
    """As another replica does."""
    left_by = requests.c.boot_id == "boot"
    settle = partial(mark_interrupted, left_by=left_by, epoch=epoch)
    return await database.write(settle)


async def test_money_is_written_with_its_rows(
    database: PostgresqlDatabase, writer: PostgresqlWriter
) -> None:
    """In the periods of their start, and from this replica's leases, however small."""
    await lease(database, 1, ("key", "tok_0"), 1_500, 1_000)
    await lease(database, 1, ("group", "default"), 9_000, 9_000)
    await lease(database, 2, ("key", "tok_1"), 500, 500)
    writer.epoch = 1
    at = {"started_at": START + 40 * 24 * HOUR_US}
    await writer.write_batch([started(number) for number in range(4)], set(), 5)
    opened = {request_id(number) for number in range(4)}
    await writer.write_batch([ended(number) for number in range(4)], opened, 5)
    await writer.write_batch([ended(4, **at), ended(5, cost_micro=0, usd_micro=0)], set(), 5)
    assert await leases(database) == {
        ("key", "tok_0"): (-1_500, 790),
        ("group", "default"): (4_000, 8_650),
        ("key", "tok_1"): (500, 500),
    }
    assert (await spending(database))["key", "tok_0", "total", 0] == (3_000, 210)
    await assert_exact(database, 6)


async def test_a_repeated_batch_changes_nothing(
    database: PostgresqlDatabase, writer: PostgresqlWriter
) -> None:
    entries = [started(0), ended(0), started(1), started(2), ended(3)]
    await writer.write_batch(entries, set(), 5)
    for opened in (set(), {request_id(0)}, None):
        await writer.write_batch([*entries, ended(0, cost_micro=5)], opened, 5)
    await assert_exact(database, 4, running=2)
    assert await pages.attempts(database, request_id(0)) == [failed_attempt(), attempt()]


async def test_a_late_truth_replaces_an_interruption_once(
    database: PostgresqlDatabase, writer: PostgresqlWriter
) -> None:
    await lease(database, 1, ("key", "tok_0"), 500, 500)
    writer.epoch = 1
    await writer.write_batch([started(number) for number in range(4)], set(), 5)
    opened = {request_id(number) for number in range(4)}
    await writer.write_batch([ended(0)], opened, 5)
    assert await interrupt(database, epoch=1) == 3
    assert (await leases(database))["key", "tok_0"] == (500 - 1_000 - 400, 500 - 70 - 9)
    await assert_exact(database, 4)
    await asyncio.gather(
        writer.write_batch([ended(0), ended(1), ended(2)], opened, 5),
        *(settle_apart(database, number) for number in range(4)),
    )
    await assert_exact(database, 4)
    row = await pages.get(database, request_id(3))
    assert row is not None
    assert (row.state, row.end_reason, row.cost_micro) == (ExchangeState.OK, None, 1_000)
    assert (await spending(database))["key", "tok_1", "total", 0] == (2_000, 140)
    assert (await leases(database))["key", "tok_0"] == (500 - 2 * 1_000, 500 - 2 * 70)


async def settle_apart(database: PostgresqlDatabase, number: int) -> None:
    other = PostgresqlWriter(database, database.server, "boot")
    await other.write_batch([ended(number)], {request_id(number)}, 5)
    await other.close(0)


async def test_deadlocks_are_tried_again(
    database: PostgresqlDatabase, writer: PostgresqlWriter
) -> None:
    """Another connection takes a token's lock, then that of a row: the other way round."""
    before = postgres_server().log.count("deadlock detected")
    await writer.write_batch([started(0)], set(), 5)
    other = await connect(database)
    await other.execute("SET deadlock_timeout = '5s'")
    lock = "SELECT 1 FROM {} WHERE id = $1 FOR UPDATE"
    async with other.transaction():
        await other.execute(lock.format("tokens"), "tok_0")
        writing = asyncio.ensure_future(writer.write_batch([ended(0)], {request_id(0)}, 5))
        await asyncio.sleep(0.2)
        await other.execute(lock.format("requests"), request_id(0))
    await writing
    await other.close()
    assert postgres_server().log.count("deadlock detected") == before + 1
    await assert_exact(database, 1)


async def test_an_acknowledgement_that_is_lost(database: PostgresqlDatabase) -> None:
    """The server commits, its answer never comes."""
    async with behind_proxy(database) as (proxy, there):
        writer = PostgresqlWriter(database, there, "boot")
        await writer.write_batch([started(0), started(1)], set(), 5)
        proxy.add(Timeout(), Direction.DOWN)
        with pytest.raises(TimeoutError):
            await writer.write_batch([ended(0)], {request_id(0), request_id(1)}, 0.5)
        await assert_exact(database, 2, running=1)
        proxy.clear()
        await writer.write_batch([ended(0), ended(1)], None, 5)
        await writer.close(0)
    await assert_exact(database, 2)


@pytest.mark.parametrize("bad", ["a\udcffb", "a\0b", 2**70])
async def test_rows_that_the_server_refuses_are_told_from_its_failures(
    database: PostgresqlDatabase, writer: PostgresqlWriter, bad: object
) -> None:
    column = "bytes_out" if isinstance(bad, int) else "user_agent"
    with pytest.raises(InvalidRows):
        await writer.write_batch([ended(0, **{column: bad}), ended(1)], set(), 5)
    await writer.write_batch([ended(1)], set(), 5)
    await assert_exact(database, 1)


async def test_a_newer_schema_is_no_fault_of_a_row(
    database: PostgresqlDatabase, writer: PostgresqlWriter
) -> None:
    other = await connect(database)
    await other.execute("ALTER TABLE requests ADD COLUMN later text")
    await writer.write_batch([ended(0)], set(), 5)
    await other.execute("ALTER TABLE requests RENAME COLUMN notes TO remarks")
    with pytest.raises(Exception, match="does not exist") as raised:
        await writer.write_batch([ended(1)], set(), 5)
    assert not isinstance(raised.value, InvalidRows)
    await other.execute("ALTER TABLE requests RENAME COLUMN remarks TO notes")
    await other.close()
    await writer.write_batch([ended(1)], None, 5)
    await assert_exact(database, 2)


async def test_two_recorders_of_one_key_add_up(database: PostgresqlDatabase) -> None:
    """Both write the same hours, totals and periods all the time."""
    recorders = [Recorder(database) for _ in range(2)]
    for each in recorders:
        await each.start()

    async def exchanges(recorder: Recorder, first: int) -> None:
        for number in range(first, first + 40, 2):
            await recorder.record_intent(started(number).row)
            recorder.record_settlement(ended(number).row, (failed_attempt(), attempt()))

    await asyncio.gather(*(exchanges(recorders[each % 2], each * 100) for each in range(10)))
    for each in recorders:
        await each.close()
    await assert_exact(database, 200)


FAILING = """
CREATE SEQUENCE tries;
CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF nextval('tries') <= {times} THEN
        RAISE EXCEPTION 'injected' USING ERRCODE = '{code}';
    END IF;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER fail AFTER INSERT OR UPDATE ON usage_hours
DEFERRABLE INITIALLY {when} FOR EACH ROW EXECUTE FUNCTION fail();
"""


@pytest.mark.parametrize("when", ["DEFERRED", "IMMEDIATE"])
@pytest.mark.parametrize("code", ["40001", "40P01", "53100"])
async def test_statements_and_commits_that_fail_are_tried_again(
    database: PostgresqlDatabase, when: str, code: str
) -> None:
    """Conflicts at once, other failures as those of the server; each three times."""
    other = await connect(database)
    await other.execute(FAILING.format(times=3, code=code, when=when))
    recorder = Recorder(database)
    await recorder.start()
    await recorder.record_intent(started(0).row)
    for number in range(3):
        recorder.record_settlement(ended(number).row, (failed_attempt(), attempt()))
    await recorder.record_intent(started(3).row)
    await recorder.close()
    assert await other.fetchval("SELECT last_value FROM tries") > 3
    await other.close()
    await assert_exact(database, 4, running=1)


async def test_rows_that_others_interrupt_all_the_time(database: PostgresqlDatabase) -> None:
    """Every request is declared interrupted while it runs, or while it ends."""
    recorder = Recorder(database, boot_id="boot")
    await recorder.start()
    done = asyncio.Event()
    interrupted = 0

    async def reap() -> None:
        nonlocal interrupted
        while not done.is_set():
            interrupted += await interrupt(database)
            await asyncio.sleep(0.01)

    async def exchanges(first: int) -> None:
        for number in range(first, first + 40):
            await recorder.record_intent(started(number).row)
            await asyncio.sleep(0.003 * (number % 5))
            recorder.record_settlement(ended(number).row, (failed_attempt(), attempt()))

    reaping = asyncio.ensure_future(reap())
    await asyncio.gather(*(exchanges(each * 100) for each in range(8)))
    await recorder.close()
    done.set()
    await reaping
    assert interrupted > 20
    await assert_exact(database, 320)
    ok = pages.LogFilter(state=ExchangeState.OK)
    assert len(await pages.page(database, ok, limit=1000)) == 320


WAITING = """
SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
AND wait_event_type = 'Lock'
"""
OPENED = """
SELECT count(DISTINCT relation) FROM pg_locks JOIN pg_class ON pg_class.oid = relation
JOIN pg_stat_activity USING (pid) WHERE datname = current_database()
AND relname LIKE 'requests%' AND relkind IN ('r', 'p') AND wait_event_type = 'Lock'
"""


async def test_only_the_days_of_its_rows_are_opened(
    database: PostgresqlDatabase, writer: PostgresqlWriter
) -> None:
    """Else a batch would cost more with each day that is kept."""
    other = await connect(database)
    for number in range(40):
        for table in ("requests", "attempts"):
            await other.execute(
                f"CREATE TABLE {table}_{number} PARTITION OF {table}"
                f" FOR VALUES FROM ('req_9{number:02d}') TO ('req_9{number + 1:02d}')"
            )
    await writer.write_batch([started(0), started(4)], set(), 5)
    observer = await connect(database)
    for number, opened in ((0, {request_id(0)}), (4, None)):
        async with other.transaction():
            await other.execute("SELECT 1 FROM tokens WHERE id = 'tok_0' FOR UPDATE")
            entries = [ended(number), ended(number + 2)]
            writing = asyncio.ensure_future(writer.write_batch(entries, opened, 5))
            async with asyncio.timeout(4):
                while not await observer.fetchval(WAITING):
                    await asyncio.sleep(0.02)
            tables = await observer.fetchval(OPENED)
        await writing
        assert 1 < tables < 10
    await other.close()
    await observer.close()
    await assert_exact(database, 4)
