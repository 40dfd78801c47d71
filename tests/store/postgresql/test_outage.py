"""A database server that is gone, hangs or comes back: nothing is lost, nothing counts twice."""

from __future__ import annotations

import asyncio
import logging
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path

import pytest

from gateway.config.cluster import DatabaseServer
from gateway.config.limits import RequestLog
from gateway.store.log import pages
from gateway.store.log.recorder import Recorder
from gateway.store.open import open_database
from gateway.store.postgresql import writer as writer_module
from gateway.store.postgresql.database import PostgresqlDatabase
from gateway.store.postgresql.recovery import mark_interrupted
from gateway.store.postgresql.spool import Spool
from gateway.store.records import ExchangeState, RequestRow
from gateway.store.schema import requests
from tests.store.sample_rows import attempt, intent, request_id, settlement
from tests.store.server_ledger import assert_exact, behind_proxy, lease, leases, server_ledger
from tests.support.databases import all_written
from tests.support.postgres import PostgresServer, own_postgres_server
from tests.support.proxy import Direction
from tests.support.toxics import Timeout

pytestmark = [pytest.mark.timeout(90), pytest.mark.servers]

BOUNDS = RequestLog()


@pytest.fixture
async def database() -> AsyncIterator[PostgresqlDatabase]:
    async with server_ledger() as database:
        yield database


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    """One of the test's own, to be stopped."""
    with own_postgres_server() as server:
        yield server


def opened(number: int) -> RequestRow:
    known = {"expected_input_tokens": 10, "expected_micro": 7, "expected_usd_micro": 1}
    return intent(number, f"tok_{number % 2}", **known)


def ended(number: int) -> RequestRow:
    known = {"expected_input_tokens": 10, "expected_micro": 7, "expected_usd_micro": 1}
    costs = {"cost_micro": 100 + number, "usd_micro": number}
    return settlement(number, f"tok_{number % 2}", **known, **costs, attempts=1)


async def load(recorder: Recorder, seconds: float, first: int = 0) -> tuple[int, float]:
    """Requests, 100 in a second; their number, and the longest wait for an intent."""
    clock = asyncio.get_running_loop().time
    waits: list[float] = []

    async def exchange(number: int) -> None:
        began = clock()
        await recorder.record_intent(opened(number))
        waits.append(clock() - began)
        await asyncio.sleep(0.05 * (number % 3))
        recorder.record_settlement(ended(number), (attempt(),))

    ends_at, number = clock() + seconds, first
    async with asyncio.TaskGroup() as tasks:
        while clock() < ends_at:
            tasks.create_task(exchange(number))
            number += 1
            await asyncio.sleep(0.01)
    return number - first, max(waits)


async def until_written(recorder: Recorder) -> None:
    spool = recorder.spool
    assert spool is not None
    async with asyncio.timeout(30):
        while spool.count or recorder.backlog:
            await asyncio.sleep(0.02)


async def _stopped_under_load(server: PostgresServer, tmp_path: Path, seconds: float) -> None:
    async with server_ledger(server.url("postgres")) as database:
        await lease(database, 1, ("group", "default"), 10**9, 10**9)
        spool = Spool(tmp_path / "spool.db", 2**26)
        recorder = Recorder(database, spool=spool)
        recorder.use_epoch(1)
        committed: list[str] = []
        recorder.on_commit.append(
            lambda entries: committed.extend(e.row.id for e in entries if not e.is_intent)
        )
        await recorder.start()
        loading = asyncio.ensure_future(load(recorder, seconds + 2))
        await asyncio.sleep(0.5)
        await asyncio.to_thread(server.stop)
        most = 0
        for _ in range(int(seconds * 10)):
            await asyncio.sleep(0.1)
            most = max(most, recorder.backlog)
            assert not recorder.is_stuck
            assert not recorder.is_behind(BOUNDS)
        assert spool.count > 100 * seconds
        await asyncio.to_thread(server.start)
        count, longest = await loading
        assert longest < 5
        assert most < 1_000
        await until_written(recorder)
        more, longest = await load(recorder, 0.5, first=1_000_000)
        await recorder.close()
        await assert_exact(database, count + more)
        assert sorted(committed) == sorted(
            [*map(request_id, range(count)), *map(request_id, range(10**6, 10**6 + more))]
        )
        spent = sum(100 + n for n in range(count)) + sum(100 + 10**6 + n for n in range(more))
        assert (await leases(database))["group", "default"][0] == 10**9 - spent


@pytest.mark.slow("stops PostgreSQL under load")
async def test_a_server_that_is_stopped_under_load(server: PostgresServer, tmp_path: Path) -> None:
    await _stopped_under_load(server, tmp_path, 3)


@pytest.mark.slow("stops PostgreSQL for a part of a minute")
@pytest.mark.full
@pytest.mark.chaos
@pytest.mark.timeout(180)
async def test_a_server_that_is_stopped_for_a_minute(
    server: PostgresServer, tmp_path: Path
) -> None:
    await _stopped_under_load(server, tmp_path, 60)


@pytest.mark.slow("waits for a PostgreSQL that says nothing")
@pytest.mark.parametrize("directions", [tuple(Direction), (Direction.DOWN,)])
async def test_a_server_that_hangs(
    database: PostgresqlDatabase, tmp_path: Path, directions: tuple[Direction, ...]
) -> None:
    """Its address swallows all; what it did meanwhile nobody knows."""
    async with behind_proxy(database) as (proxy, there):
        recorder = recorder_at(there, tmp_path)
        await recorder.start()
        loading = asyncio.ensure_future(load(recorder, 5))
        await asyncio.sleep(0.3)
        for direction in directions:
            proxy.add(Timeout(), direction)
        await asyncio.sleep(3)
        assert recorder.spool is not None
        assert recorder.spool.count > 100
        assert not recorder.is_stuck
        proxy.clear()
        proxy.reset()
        count, longest = await loading
        assert longest < 3
        await until_written(recorder)
        await recorder.close()
    await assert_exact(database, count)


@pytest.mark.slow("connects many times")
async def test_a_server_that_refuses_connections_leaves_nothing_in_memory(
    server: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was answered is on disk at once, however long others would be waited for."""
    monkeypatch.setattr(writer_module, "_SPOOL_AFTER", 3600.0)
    async with server_ledger(server.url("postgres")) as database:
        spool = Spool(tmp_path / "spool.db", 2**24)
        recorder = Recorder(database, spool=spool)
        await recorder.start()
        await recorder.record_intent(opened(0))
        await asyncio.to_thread(server.stop)
        recorder.record_settlement(ended(0), (attempt(),))
        for number in range(1, 7):
            async with asyncio.timeout(5):
                await recorder.record_intent(opened(number))
            recorder.record_settlement(ended(number), (attempt(),))
        async with asyncio.timeout(5):
            while recorder.backlog:
                await asyncio.sleep(0.005)
        assert spool.count == 13
        await asyncio.to_thread(server.start)
        await until_written(recorder)
        await recorder.close()
        await assert_exact(database, 7)


async def test_one_lost_connection_is_opened_again(
    database: PostgresqlDatabase,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As when a pooler moves it to another server: nothing goes to disk."""
    monkeypatch.setattr(writer_module, "_SPOOL_AFTER", 3600.0)
    async with behind_proxy(database) as (proxy, there):
        recorder = recorder_at(there, tmp_path)
        await recorder.start()
        for number in range(5):
            await recorder.record_intent(opened(number))
            written = asyncio.ensure_future(recorder.record_intent(opened(100 + number)))
            await asyncio.sleep(0)
            proxy.reset()
            await written
            recorder.record_settlement(ended(number), (attempt(),))
            await all_written(recorder)
        await recorder.close()
    assert "requests are kept in" not in caplog.text
    await assert_exact(database, 10, running=5)


def recorder_at(there: DatabaseServer, tmp_path: Path, size: int = 2**24) -> Recorder:
    """Nothing but the recorder's connection goes through the address."""
    return Recorder(PostgresqlDatabase(there), spool=Spool(tmp_path / "spool.db", size))


async def test_a_network_that_is_cut_again_and_again(
    database: PostgresqlDatabase, tmp_path: Path
) -> None:
    async with behind_proxy(database) as (proxy, there):
        recorder = recorder_at(there, tmp_path)
        await recorder.start()
        loading = asyncio.ensure_future(load(recorder, 4))
        while not loading.done():
            await asyncio.sleep(0.1)
            proxy.reset()
        count, _ = await loading
        await recorder.close()
    await assert_exact(database, count)


async def test_an_end_while_the_server_is_gone(
    database: PostgresqlDatabase, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The next start writes what waits: rows keep their boot, and those without an end are
    interrupted."""
    async with behind_proxy(database) as (proxy, there):
        recorder = recorder_at(there, tmp_path)
        await recorder.start()
        await recorder.record_intent(opened(0))
        proxy.add(Timeout(), Direction.UP)
        recorder.record_settlement(ended(0), (attempt(),))
        recorder.record_intent(opened(1))
        recorder.record_settlement(ended(1), (attempt(),))
        recorder.record_intent(opened(2))
        await recorder.close()
        assert "4 entries of the request log wait" in caplog.text
    async with behind_proxy(database) as (proxy, there):
        following = recorder_at(there, tmp_path)
        await following.start()
        assert following.spool is not None
        assert following.spool.count == 0
        await following.close()
    await assert_exact(database, 3)
    rows = await pages.page(database)
    assert {row.boot_id for row in rows} == {recorder.boot_id}
    states = [row.state for row in reversed(rows)]
    assert states == [ExchangeState.OK, ExchangeState.OK, ExchangeState.INTERRUPTED]


async def test_rows_that_others_interrupt_meanwhile(
    database: PostgresqlDatabase, tmp_path: Path
) -> None:
    """This replica is cut off for so long that others settle its requests."""
    async with behind_proxy(database) as (proxy, there):
        recorder = recorder_at(there, tmp_path)
        await recorder.start()
        await asyncio.gather(*(recorder.record_intent(opened(number)) for number in range(10)))
        proxy.add(Timeout(), Direction.UP)
        for number in range(9):
            recorder.record_settlement(ended(number), (attempt(),))
        await recorder.record_intent(opened(10))
        left_by = requests.c.boot_id == recorder.boot_id
        settle = partial(mark_interrupted, left_by=left_by)
        assert await database.write(settle) == 10
        await assert_exact(database, 10)
        proxy.clear()
        proxy.reset()
        await until_written(recorder)
        recorder.record_settlement(ended(9))
        await recorder.close()
    await assert_exact(database, 11, running=1)
    row = await pages.get(database, request_id(3))
    assert row is not None
    assert (row.state, row.cost_micro) == (ExchangeState.OK, 103)


async def test_a_spool_without_room(
    database: PostgresqlDatabase, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """New requests are to be refused; those that run are still written when the server is back."""
    async with behind_proxy(database) as (proxy, there):
        recorder = recorder_at(there, tmp_path, 2**16)
        await recorder.start()
        await recorder.record_intent(opened(0))
        proxy.add(Timeout(), Direction.UP)
        for number in range(1, 400):
            recorder.record_intent(opened(number))
            recorder.record_settlement(ended(number))
            await asyncio.sleep(0.005)
        async with asyncio.timeout(10):
            while not recorder.is_behind(BOUNDS):
                await asyncio.sleep(0.05)
        assert recorder.backlog > 100
        assert not recorder.is_stuck
        assert "database or disk is full" in caplog.text
        proxy.clear()
        proxy.reset()
        await until_written(recorder)
        await recorder.record_intent(opened(400))
        assert not recorder.is_behind(BOUNDS)
        await recorder.close()
    await assert_exact(database, 401, running=2)


async def test_rows_that_no_server_takes_do_not_stop_the_others(
    database: PostgresqlDatabase, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with behind_proxy(database) as (proxy, there):
        recorder = recorder_at(there, tmp_path)
        await recorder.start()
        proxy.add(Timeout(), Direction.UP)
        for number in range(50):
            bad = {"endpoint": None} if number == 7 else {}
            recorder.record_settlement(ended(number)._replace(**bad))
        async with asyncio.timeout(10):
            while recorder.backlog:
                await asyncio.sleep(0.05)
        proxy.clear()
        proxy.reset()
        await until_written(recorder)
        await recorder.close()
    await assert_exact(database, 49)
    assert f"cannot store the row of {request_id(7)}" in caplog.text


@pytest.mark.slow("starts and kills a process, and starts it again")
@pytest.mark.chaos
async def test_a_process_that_is_killed_while_its_spool_has_rows(
    server: PostgresServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    told: set[str] = set()
    async with server_ledger(server.url("postgres")):
        pass
    for round in range(3):
        command = [sys.executable, "-m", "tests.store.writer_process", str(tmp_path / "spool.db")]
        options = [str(round * 1_000_000), server.url("postgres")]
        with subprocess.Popen([*command, *options], stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            lines = [process.stdout.readline()]
            await asyncio.sleep(0.3)
            await asyncio.to_thread(server.stop)
            await asyncio.sleep(1.5 + 0.3 * round)
            process.send_signal(signal.SIGKILL)
            lines += process.stdout.read().splitlines()
        told |= {line[5:33] for line in lines if line[:5] == "open " and len(line) > 32}
        await asyncio.to_thread(server.start)
    async with server_ledger(server.url("postgres")) as database:
        recorder = Recorder(database, spool=Spool(tmp_path / "spool.db", 2**26))
        await recorder.start()
        await recorder.close()
        assert "are written first" in caplog.text
        async with database.reader.connect() as connection:
            rows = (await connection.exec_driver_sql("SELECT id, state FROM requests")).all()
        assert told <= {row_id for row_id, _ in rows}
        assert len(told) > 500
        assert {state for _, state in rows} == {ExchangeState.OK, ExchangeState.INTERRUPTED}
        await assert_exact(database, len(rows))


async def test_a_database_that_is_a_file_has_no_spool(tmp_path: Path) -> None:
    database = await open_database(tmp_path / "ledger.db")
    recorder = Recorder(database, spool=Spool(tmp_path / "spool.db", 2**20))
    await recorder.start()
    assert recorder.spool is None
    await recorder.close()
    await database.close()
    assert not (tmp_path / "spool.db").exists()
