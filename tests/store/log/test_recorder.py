"""The recorder: what it acknowledges is on disk, what it is given twice counts once."""

from __future__ import annotations

import asyncio
import logging
from itertools import pairwise
from pathlib import Path

import pytest

from gateway.store import tokens
from gateway.store.database import Database
from gateway.store.log import pages
from gateway.store.log.integrity import check
from gateway.store.log.recorder import Recorder
from gateway.store.log.usage import usage
from gateway.store.records import ExchangeState
from tests.store.sample_rows import (
    START,
    attempt,
    failed_attempt,
    intent,
    request_id,
    settlement,
)
from tests.support.databases import all_written, locked, on_server, raw_connection


async def totals(database: Database) -> dict[str, tuple[int, int, int]]:
    return {
        found.id: (found.requests, found.input_tokens, found.output_tokens)
        for found in await tokens.all_tokens(database)
    }


async def test_an_acknowledged_intent_is_on_disk(recorder: Recorder, path: Path) -> None:
    acknowledged = recorder.record_intent(intent(1))
    assert not acknowledged.done()
    assert recorder.backlog == 1
    async with asyncio.timeout(5):
        await acknowledged
    assert recorder.backlog == 0
    with raw_connection(path) as connection:
        row = connection.execute("SELECT state, boot_id, usage_source FROM requests").fetchone()
    assert row == ("running", recorder.boot_id, "none")


async def test_settling_twice_changes_nothing(database: Database, recorder: Recorder) -> None:
    once = settlement(1, attempts=2)
    await recorder.record_intent(intent(1))
    recorder.record_settlement(once, (failed_attempt(), attempt()))
    recorder.record_settlement(once._replace(state=ExchangeState.ERROR, output_tokens=1000))
    await recorder.record_intent(intent(2))
    recorder.record_settlement(once._replace(state=ExchangeState.CLIENT_GONE), (attempt(),))
    await recorder.record_intent(intent(3))
    await all_written(recorder)
    assert await pages.attempts(database, request_id(1)) == [failed_attempt(), attempt()]
    row = await pages.get(database, request_id(1))
    assert row is not None
    assert (row.state, row.output_tokens) == (ExchangeState.OK, 7)
    assert await totals(database) == {"tok_0": (1, 100, 7)}
    (used,) = await tokens.all_tokens(database)
    assert used.last_used_at == START + 1 + 1_200_000


async def test_an_exchange_may_settle_before_its_intent_is_committed(
    database: Database, recorder: Recorder
) -> None:
    acknowledged = recorder.record_intent(intent(1))
    recorder.record_settlement(settlement(1))
    await acknowledged
    await all_written(recorder)
    row = await pages.get(database, request_id(1))
    assert row is not None
    assert row.state is ExchangeState.OK
    assert await totals(database) == {"tok_0": (1, 100, 7)}


async def test_a_rejection_is_a_complete_row_and_counts(
    database: Database, recorder: Recorder
) -> None:
    refused = {"state": ExchangeState.REJECTED, "status": 429, "channel": None}
    recorder.record_settlement(settlement(1, **refused, input_tokens=0, output_tokens=0))
    await all_written(recorder)
    row = await pages.get(database, request_id(1))
    assert row is not None
    assert (row.state, row.status, row.channel) == (ExchangeState.REJECTED, 429, None)
    assert await totals(database) == {"tok_0": (1, 0, 0)}


async def test_cancellations_lose_no_rows(database: Database, recorder: Recorder) -> None:
    async def exchange(number: int) -> None:
        acknowledged = recorder.record_intent(intent(number))
        try:
            await acknowledged
            await asyncio.sleep(10)
        finally:
            recorder.record_settlement(settlement(number))

    running = [asyncio.ensure_future(exchange(number)) for number in range(100)]
    for task in running:
        await asyncio.sleep(0)
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)
    await recorder.record_intent(intent(1000))
    await all_written(recorder)
    rows = await pages.page(database, pages.LogFilter(state=ExchangeState.OK), limit=500)
    started = [task for task in running if task.cancelled()]
    assert len(rows) == len(started) > 90
    assert (await totals(database))["tok_0"][0] == len(rows)


async def test_closing_flushes_the_queue(database: Database, recorder: Recorder) -> None:
    for number in range(2500):
        recorder.record_intent(intent(number))
        recorder.record_settlement(settlement(number))
    assert recorder.backlog == 5000
    async with asyncio.timeout(5):
        await recorder.close()
    assert recorder.backlog == 0
    assert not recorder.alive
    assert await totals(database) == {"tok_0": (2500, 250_000, 17_500)}


async def test_another_boots_open_rows_become_interrupted(
    database: Database, recorder: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    await recorder.record_intent(intent(1))
    await recorder.record_intent(intent(2))
    recorder.record_settlement(settlement(2))
    await recorder.close()
    following = Recorder(database)
    early = following.record_intent(intent(3))
    await following.start()
    await early
    first, second, third = reversed(await pages.page(database))
    assert (first.state, first.end_reason) == (ExchangeState.INTERRUPTED, "interrupted")
    assert (second.state, second.end_reason) == (ExchangeState.OK, None)
    assert (third.state, third.boot_id) == (ExchangeState.RUNNING, following.boot_id)
    assert await totals(database) == {"tok_0": (2, 100, 7)}
    assert "1 exchanges were interrupted" in caplog.text
    following.record_settlement(settlement(1))
    await following.close()
    # On a server others may have interrupted a row that goes on: what is known later replaces it.
    expected = (2, 200, 14) if on_server() else (2, 100, 7)
    assert await totals(database) == {"tok_0": expected}


async def test_invalid_rows_are_repaired_or_dropped_individually(
    database: Database, recorder: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    waiting = [
        recorder.record_intent(intent(number, user_agent="a\udcffb" if number == 3 else "plain"))
        for number in range(50)
    ]
    lost = recorder.record_intent(intent(50, endpoint=None))
    recorder.record_settlement(settlement(50, endpoint=None))
    waiting += [recorder.record_intent(intent(number)) for number in range(51, 80)]
    async with asyncio.timeout(10):
        await asyncio.gather(*waiting)
    rows = await pages.page(database, limit=100)
    assert len(rows) == 79
    assert next(row for row in rows if row.id == request_id(3)).user_agent == "a?b"
    assert lost.done() != on_server(), "where there is a journal, it was kept"
    assert f"cannot store the intent of {request_id(50)}" in caplog.text
    assert f"cannot store the settlement of {request_id(50)}" in caplog.text
    assert await totals(database) == {"tok_0": (0, 0, 0)}
    for number in range(100, 600):
        recorder.record_intent(intent(number))
    backlogs = [recorder.backlog]
    while recorder.backlog:
        await asyncio.sleep(0)
        backlogs.append(recorder.backlog)
    assert max(before - after for before, after in pairwise(backlogs)) == 200


async def test_a_dead_writer_is_replaced(
    database: Database, recorder: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    acknowledged = recorder.record_intent(intent(1))
    await asyncio.sleep(0)
    (writer,) = (task for task in asyncio.all_tasks() if task.get_name() == "recorder")
    writer.cancel()
    await asyncio.wait({writer})
    await asyncio.sleep(0)
    assert not recorder.alive
    assert [record.levelno for record in caplog.records] == [logging.CRITICAL]
    recorder.record_settlement(settlement(1))
    assert recorder.alive
    async with asyncio.timeout(5):
        await acknowledged
        await recorder.close()
    assert await totals(database) == {"tok_0": (1, 100, 7)}


@pytest.mark.sqlite
async def test_a_commit_without_confirmation_counts_once(
    database: Database, recorder: Recorder, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (writer,) = (task for task in asyncio.all_tasks() if task.get_name() == "recorder")
    with locked(path):
        waiting = [recorder.record_intent(intent(number)) for number in range(20)]
        for number in range(10):
            recorder.record_settlement(settlement(number, attempts=1), (attempt(),))
        await asyncio.sleep(0.1)
        writer.cancel()
        await asyncio.wait({writer})
    await database.write(lambda connection: None)
    assert len(await pages.page(database)) == 20
    assert (await usage(database))[0].requests == 10
    assert not any(future.done() for future in waiting)
    for number in range(20):
        recorder.record_settlement(settlement(number, attempts=1), (attempt(),))
    async with asyncio.timeout(5):
        await asyncio.gather(*waiting)
        await recorder.close()
    assert await totals(database) == {"tok_0": (20, 2000, 140)}
    for row in await pages.page(database):
        assert await pages.attempts(database, row.id) == [attempt()]
    (everything,) = await usage(database)
    assert (everything.requests, everything.input_tokens) == (20, 2000)
    assert (await check(database)).ok
    assert "cannot hold" not in caplog.text


async def test_rows_after_closing_are_reported(
    recorder: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    await recorder.close()
    recorder.record_settlement(settlement(1))
    assert request_id(1) in caplog.text


async def test_after_several_intents_the_next_ones_share_a_commit(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An intent after a single one is committed at once. With a journal none waits for others."""
    recorder._writer.has_journal = False
    monkeypatch.setattr("gateway.store.log.recorder._MAX_PAUSE", 0.3)
    monkeypatch.setattr("gateway.store.log.recorder._PAUSE_PER_INTENT", 0.3)
    clock = asyncio.get_running_loop().time
    await asyncio.gather(*(recorder.record_intent(intent(number)) for number in range(20)))
    began = clock()
    first = recorder.record_intent(intent(100))
    await asyncio.sleep(0.1)
    second = recorder.record_intent(intent(101))
    await first
    assert clock() - began > 0.2
    assert second.done()
    await asyncio.sleep(0.4)
    began = clock()
    for number in range(200, 204):
        await recorder.record_intent(intent(number))
    assert clock() - began < 0.3


async def test_closing_interrupts_a_pause(database: Database, recorder: Recorder) -> None:
    await asyncio.gather(*(recorder.record_intent(intent(number)) for number in range(20)))
    waiting = recorder.record_intent(intent(100))
    recorder.record_settlement(settlement(100))
    await recorder.close()
    assert waiting.done()
    assert await totals(database) == {"tok_0": (1, 100, 7)}


async def test_commits_are_reported_in_order(database: Database) -> None:
    recorder = Recorder(database)
    results: list[tuple[str, str]] = []
    recorder.on_commit.append(
        lambda entries: results.extend((entry.row.state.value, entry.row.id) for entry in entries)
    )
    await recorder.start()
    await recorder.record_intent(intent(2))
    await recorder.record_intent(intent(1))
    await recorder.flush()
    recorder.record_settlement(settlement(1))
    recorder.record_settlement(settlement(2))
    assert results == [("running", request_id(2)), ("running", request_id(1))]
    await recorder.close()
    assert results[2:] == [("ok", request_id(1)), ("ok", request_id(2))]
