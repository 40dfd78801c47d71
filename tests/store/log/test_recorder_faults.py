"""The recorder where things break: killed processes, locked files, full disks."""

from __future__ import annotations

import asyncio
import logging
import re
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path

import pytest
from sqlalchemy import Connection

from gateway.store import tokens
from gateway.store.database import Database
from gateway.store.errors import RowsLost
from gateway.store.log import pages
from gateway.store.log.integrity import check
from gateway.store.log.recorder import Recorder
from gateway.store.records import ExchangeState
from tests.store.sample_rows import integrity_check, intent, settlement
from tests.support.databases import LOCKED, locked
from tests.support.ledger_template import open_ledger
from tests.support.sizes import sized
from tests.support.timing import SLACK

pytestmark = pytest.mark.sqlite

KILLS = sized(4, 20)


def run_and_kill(path: Path, first: int, after: float) -> dict[str, set[str]]:
    """The ids of which a writing process had been told that their intents, or settlements, are
    durable when it was killed."""
    command = [sys.executable, "-m", "tests.store.writer_process", str(path), str(first)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline()]
        time.sleep(after)
        process.send_signal(signal.SIGKILL)
        lines += process.stdout.read().splitlines(keepends=True)
    assert process.returncode == -signal.SIGKILL
    told: dict[str, set[str]] = {"open": set(), "settled": set()}
    for kind, id_ in (line.split() for line in lines if line.endswith("\n")):
        told[kind].add(id_)
    return told


@pytest.mark.sqlite
@pytest.mark.chaos
async def test_a_killed_process_loses_no_acknowledged_row(database: Database, path: Path) -> None:
    """Nor a settlement that was handed over before such a row."""
    await database.close()
    acknowledged: set[str] = set()
    ended: set[str] = set()
    for kill in range(KILLS):
        told = run_and_kill(path, kill * 1_000_000, 0.15 + 0.11 * (kill % 4))
        acknowledged |= told["open"]
        ended |= told["settled"]
        assert integrity_check(path) == "ok"
    assert len(acknowledged) > 200
    database = await open_ledger(path)
    recorder = Recorder(database)
    await recorder.start()
    await recorder.close()
    async with database.reader.connect() as connection:
        rows = (await connection.exec_driver_sql("SELECT id, state FROM requests")).all()
        boots = await connection.exec_driver_sql("SELECT count(DISTINCT boot_id) FROM requests")
        assert boots.scalar_one() == KILLS
    states = {state for _, state in rows}
    assert acknowledged <= {row_id for row_id, _ in rows}
    assert states == {ExchangeState.OK, ExchangeState.INTERRUPTED}
    assert ended <= {row_id for row_id, state in rows if state == ExchangeState.OK}
    assert len(ended) > 200
    settled = sum(state == ExchangeState.OK for _, state in rows)
    (used,) = await tokens.all_tokens(database)
    assert (used.requests, used.output_tokens) == (len(rows), 7 * settled)
    assert (await check(database, boot_id=recorder.boot_id)).ok
    await database.close()


async def test_a_locked_database_only_delays(
    database: Database, recorder: Recorder, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with locked(path):
        waiting = [recorder.record_intent(intent(number)) for number in range(300)]
        slowest = 0.0
        for _ in range(160):
            before = time.perf_counter()
            await asyncio.sleep(0.01)
            slowest = max(slowest, time.perf_counter() - before)
        assert not any(future.done() for future in waiting)
        assert slowest < 0.95, "the loop waited for the lock"
        for number in range(300):
            recorder.record_settlement(settlement(number))
    async with asyncio.timeout(SLACK):
        await asyncio.gather(*waiting)
        await recorder.close()
    rows = await pages.page(database, pages.LogFilter(state=ExchangeState.OK), limit=1000)
    assert len(rows) == 300
    (used,) = await tokens.all_tokens(database)
    assert used.requests == 300
    warnings = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert 1 <= len(warnings) <= 2
    assert re.search(LOCKED, warnings[0].getMessage())


def allow(connection: Connection, more: int) -> None:
    """Leave the database room for so many more pages."""
    pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one() + more
    connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}")


@pytest.mark.sqlite
async def test_a_full_disk_only_delays(
    database: Database, recorder: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    await database.write(partial(allow, more=2))
    waiting = [recorder.record_intent(intent(number)) for number in range(1000)]
    for number in range(1000):
        recorder.record_settlement(settlement(number))
    await asyncio.sleep(0.3)
    assert recorder.backlog > 0
    assert not waiting[-1].done()
    assert len(await tokens.all_tokens(database)) == 1
    assert "full" in caplog.text
    await database.write(partial(allow, more=1_000_000))
    async with asyncio.timeout(SLACK):
        await asyncio.gather(*waiting)
        await recorder.close()
    (used,) = await tokens.all_tokens(database)
    assert (used.requests, used.output_tokens) == (1000, 7000)


async def test_closing_at_its_deadline_reports_lost_rows(
    database: Database, recorder: Recorder, path: Path
) -> None:
    with locked(path):
        recorder.record_intent(intent(1))
        before = time.perf_counter()
        recorder.record_settlement(settlement(1))
        recorder.record_intent(intent(2))
        with pytest.raises(RowsLost, match=" lacks 2 requests or their ends"):
            await recorder.close(deadline=0.2)
        assert time.perf_counter() - before < SLACK


@pytest.mark.sqlite
@pytest.mark.chaos
async def test_five_seconds_of_a_full_disk_at_200_requests_a_second_lose_nothing(
    database: Database, recorder: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    await database.write(partial(allow, more=2))
    waiting = []
    began = time.perf_counter()
    for number in range(1000):
        await asyncio.sleep(max(0.0, began + number / 200 - time.perf_counter()))
        waiting.append(recorder.record_intent(intent(number)))
        recorder.record_settlement(settlement(number, cost_micro=number))
    assert time.perf_counter() - began > 4.9
    assert recorder.backlog > 1000
    assert "full" in caplog.text
    await database.write(partial(allow, more=1_000_000))
    async with asyncio.timeout(SLACK):
        await asyncio.gather(*waiting)
        await recorder.close()
    (used,) = await tokens.all_tokens(database)
    assert (used.requests, used.cost_micro) == (1000, sum(range(1000)))
    report = await check(database)
    assert report.ok
    assert (report.rows, report.open) == (1000, 0)


async def test_closing_with_five_thousand_rows_in_the_queue_loses_none(
    database: Database, recorder: Recorder
) -> None:
    for number in range(5000):
        recorder.record_settlement(settlement(number, cost_micro=1))
    assert recorder.backlog == 5000
    before = time.perf_counter()
    await recorder.close()
    assert time.perf_counter() - before <= SLACK
    report = await check(database)
    assert report.ok
    assert (report.rows, report.open) == (5000, 0)
    (used,) = await tokens.all_tokens(database)
    assert (used.requests, used.cost_micro) == (5000, 5000)


@pytest.mark.sqlite
async def test_a_commit_that_does_not_end_is_noticed(
    database: Database, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And one that fails is not: a full disk is no reason to restart."""
    monkeypatch.setattr("gateway.store.log.recorder.STUCK_AFTER", 0.1)
    goes_on = threading.Event()
    blocked = asyncio.ensure_future(database.write(lambda _: goes_on.wait(SLACK)))
    await asyncio.sleep(0.2)
    assert not recorder.is_stuck
    opened = recorder.record_intent(intent(0))
    await asyncio.sleep(0.3)
    assert (recorder.is_stuck, recorder.alive) == (True, True)
    goes_on.set()
    await opened
    await blocked
    assert not recorder.is_stuck
