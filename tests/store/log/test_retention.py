"""Retention: old rows go in whole hours, sums stay, and whoever writes hardly waits."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from gateway.admin.retention import vacuum_hint
from gateway.store import tokens
from gateway.store.database import Database
from gateway.store.log import pages
from gateway.store.log.integrity import check
from gateway.store.log.recorder import Recorder
from gateway.store.log.retention import delete_before, shrink
from gateway.store.log.usage import Dimension, usage
from gateway.store.records import HOUR_US, RequestRow
from tests.store.sample_rows import START, attempt, intent, settled
from tests.support.databases import all_written, raw_connection
from tests.support.ledger_template import open_ledger

FIRST = START // HOUR_US


ATTEMPTS = (attempt(), attempt())


def exchange(at: int, number: int = 0) -> tuple[RequestRow, RequestRow]:
    row = intent(0, id=f"req_{at:014x}{number:010x}", started_at=at)
    return row, settled(row, cost_micro=3, attempts=2)


async def test_whole_hours_are_deleted_and_their_sums_kept(
    database: Database, recorder: Recorder
) -> None:
    border = (FIRST + 2) * HOUR_US
    moments = [FIRST * HOUR_US, border - 1, border, border + HOUR_US]
    for moment in moments:
        recorder.record_settlement(exchange(moment)[1], ATTEMPTS)
    await recorder.record_intent(exchange(border - 2)[0])
    await all_written(recorder)
    before = await usage(database, [Dimension.HOUR])
    assert await delete_before(database, border + HOUR_US - 1, pause=0) == 2
    rows = await pages.page(database)
    assert sorted(row.started_at for row in rows) == [border - 2, *moments[2:]]
    assert await pages.attempts(database, exchange(moments[0])[0].id) == []
    assert len(await pages.attempts(database, exchange(moments[2])[0].id)) == 2
    assert await usage(database, [Dimension.HOUR]) == before
    report = await check(database, boot_id=recorder.boot_id)
    assert report.ok
    assert report.rows_kept_since == FIRST + 2
    recorder.record_settlement(exchange(border - 2)[1])  # it was open and ends late
    await recorder.close()
    assert (await check(database)).ok
    assert await delete_before(database, border, pause=0) == 1


async def test_the_boundary_never_moves_back(database: Database, recorder: Recorder) -> None:
    assert await delete_before(database, START) == 0
    assert await delete_before(database, START - 5 * HOUR_US) == 0
    assert (await check(database)).rows_kept_since == FIRST


async def test_an_interrupted_deletion_leaves_a_consistent_database(
    database: Database, recorder: Recorder
) -> None:
    for number in range(100):
        recorder.record_settlement(exchange(START, number)[1], ATTEMPTS)
    await recorder.close()
    deleting = asyncio.ensure_future(delete_before(database, START + HOUR_US, batch=10, pause=0.05))
    async with asyncio.timeout(10):
        while len(rows := await pages.page(database, limit=100)) > 80:
            await asyncio.sleep(0.005)
    deleting.cancel()
    await asyncio.wait({deleting})
    assert len(rows) > 0
    assert (await check(database)).ok
    assert await delete_before(database, START + HOUR_US, batch=10, pause=0) > 0
    assert await pages.page(database) == []
    assert (await check(database)).ok


@pytest.mark.slow("deletes many thousand rows")
@pytest.mark.large
@pytest.mark.timeout(60)
async def test_a_large_deletion_does_not_block_writers(
    database: Database, recorder: Recorder, path: Path
) -> None:
    count = 50_000
    with raw_connection(path) as connection:
        connection.execute("BEGIN")
        connection.executemany(
            "INSERT INTO requests (id, started_at, token_id, group_name, endpoint, format, stream,"
            " bytes_in, state, input_tokens, boot_id) VALUES"
            " (?, ?, 'tok_0', 'default', '/v1/messages', 'messages', true, 2, 'ok', 10, 'boot')",
            ((f"req_{START + n:014x}{n:010x}", START + n) for n in range(count)),
        )
        connection.execute(
            "INSERT INTO attempts (request_id, number, channel, account, upstream_model, format,"
            " lane, reason, started_us, total_us, verdict) SELECT id, 1, 'main', 'a1', 'm',"
            " 'messages', 'native', 'x', 1, 2, 'ok' FROM requests"
        )
        connection.execute(
            "INSERT INTO usage_hours (hour, token_id, group_name, model, requests, input_tokens)"
            f" VALUES ({FIRST}, 'tok_0', 'default', '', {count}, {10 * count})"
        )
        connection.execute(f"UPDATE tokens SET requests = {count}, input_tokens = {10 * count}")
        connection.execute("COMMIT")
    deleting = asyncio.ensure_future(delete_before(database, START + HOUR_US))
    waits, number, began = [], 0, time.perf_counter()
    while not deleting.done():
        number += 1
        opened, ended = exchange(START + 3 * HOUR_US, number)
        before = time.perf_counter()
        async with asyncio.timeout(10):
            await recorder.record_intent(opened)
        waits.append(time.perf_counter() - before)
        recorder.record_settlement(ended)
        await asyncio.sleep(0.01)
    assert await deleting == count
    took = time.perf_counter() - began
    await recorder.close()
    assert number > 10
    assert max(waits) < took / 2, "a row waited for most of the deletion"
    (used,) = await tokens.all_tokens(database)
    assert used.requests == count + number
    report = await check(database)
    assert report.ok
    assert report.rows == number


def add_and_delete(path: Path, megabytes: int) -> None:
    """Many rows, most of which are deleted."""
    with raw_connection(path) as connection:
        connection.execute("CREATE TABLE ballast (content BLOB)")
        connection.execute(
            "INSERT INTO ballast WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n"
            f" WHERE i < {megabytes * 1024}) SELECT randomblob(1000) FROM n"
        )
        connection.execute("DELETE FROM ballast WHERE rowid % 10")


@pytest.mark.slow("deletes many thousand rows")
@pytest.mark.large
@pytest.mark.sqlite
async def test_the_file_shrinks_while_others_write(
    database: Database, recorder: Recorder, path: Path
) -> None:
    add_and_delete(path, 30)
    waits: list[float] = []
    shrinking = asyncio.ensure_future(shrink(database, pause=0.001))
    number = 0
    while not shrinking.done():
        number += 1
        began = time.perf_counter()
        await recorder.record_intent(intent(number))
        waits.append(time.perf_counter() - began)
        recorder.record_settlement(settled(intent(number)))
    shrunk = await shrinking
    assert shrunk is not None
    assert shrunk.size_before > 30 * 2**20 > 10 * 2**20 > shrunk.size
    assert sorted(waits)[len(waits) // 2] < 0.1, "a writer waits for one step at most"
    await recorder.close()
    assert (await check(database)).ok
    await database.close()
    assert path.stat().st_size < 10 * 2**20


@pytest.mark.sqlite
async def test_a_tenth_of_the_file_stays_free(database: Database, path: Path) -> None:
    add_and_delete(path, 20)
    await shrink(database, pause=0)
    state = await database.free_pages()
    assert state is not None
    assert 0 < state.free * 10 <= state.pages
    assert await shrink(database) is None


@pytest.mark.sqlite
async def test_a_file_that_cannot_shrink_is_left_alone(path: Path) -> None:
    """One of an older release."""
    database = await open_ledger(path)
    await database.close()
    with raw_connection(path) as connection:
        connection.execute("PRAGMA auto_vacuum = NONE")
        connection.execute("VACUUM")
    add_and_delete(path, 5)
    database = await open_ledger(path)
    assert await shrink(database) is None
    assert "run `gateway db vacuum` once" in str(await vacuum_hint(database))
    await database.close()
