"""The check: clean where all is well, and the place and both figures where it is not."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from gateway.store.database import Database
from gateway.store.log.integrity import MAX_DISCREPANCIES, Discrepancy, check
from gateway.store.log.recorder import Recorder
from gateway.store.records import HOUR_US
from tests.store.sample_rows import (
    START,
    attempt,
    intent,
    request_id,
    settled,
)
from tests.support.databases import all_written, on_server, raw_connection


@pytest.fixture
async def used(database: Database, recorder: Recorder) -> Recorder:
    """Four settled exchanges in two hours and one that is open."""
    for number in range(4):
        row = intent(number, started_at=START + number // 2 * HOUR_US, catalog_model="m")
        recorder.record_settlement(settled(row, cost_micro=5, attempts=1), (attempt(),))
    await recorder.record_intent(intent(9))
    await all_written(recorder)
    return recorder


async def test_a_consistent_database_passes(database: Database, used: Recorder) -> None:
    clean = await check(database)
    assert (clean.keys, clean.rows, clean.hours, clean.open) == (1, 5, 2, 1)
    assert await check(database, boot_id=used.boot_id) == clean
    assert clean.ok


async def test_open_rows_of_other_runs_are_reported(database: Database, used: Recorder) -> None:
    report = await check(database, boot_id="another")
    assert report.discrepancies == (Discrepancy(column="requests.boot_id", stands=1, counted=0),)
    assert not report.ok


@pytest.mark.parametrize(
    ("column", "stands", "counted"),
    [
        ("requests", 5, 4),
        ("input_tokens", 401, 400),
        ("output_tokens", 29, 28),
        ("cost_micro", 21, 20),
    ],
)
async def test_every_total_is_checked(
    database: Database, used: Recorder, path: Path, column: str, stands: int, counted: int
) -> None:
    with raw_connection(path) as connection:
        connection.execute(f"UPDATE tokens SET {column} = {column} + 1")
    assert (await check(database)).discrepancies == (
        Discrepancy(column=f"tokens.{column}", stands=stands, counted=counted, token_id="tok_0"),
    )


@pytest.mark.parametrize(
    ("column", "of_row"),
    [
        ("errors", "state = 'error'"),
        ("estimated", "usage_source = 'estimated'"),
        *(
            (name, f"{name} = {name} + 1")
            for name in (
                "cache_read_tokens",
                "cache_write_tokens",
                "cache_write_1h_tokens",
                "output_tokens",
                "reasoning_tokens",
                "cost_micro",
            )
        ),
    ],
)
async def test_every_hourly_sum_is_checked(
    database: Database, used: Recorder, path: Path, column: str, of_row: str
) -> None:
    with raw_connection(path) as connection:
        connection.execute(f"UPDATE requests SET {of_row} WHERE id = '{request_id(3)}'")
    (found,) = (
        each for each in (await check(database)).discrepancies if each.column.startswith("usage")
    )
    assert found.column == f"usage_hours.{column}"
    assert found.counted == found.stands + 1
    assert (found.token_id, found.hour) == ("tok_0", START // HOUR_US + 1)
    assert (found.group_name, found.model) == ("default", "m")


async def test_missing_rows_hours_and_tokens(
    database: Database, used: Recorder, path: Path
) -> None:
    with raw_connection(path) as connection:
        connection.execute(f"DELETE FROM usage_hours WHERE hour = {START // HOUR_US}")
        connection.execute("DELETE FROM tokens")
    found = {(each.column, each.hour): each for each in (await check(database)).discrepancies}
    gone = found["usage_hours.requests", START // HOUR_US]
    assert (gone.stands, gone.counted) == (0, 2)
    total = found["tokens.requests", None]
    assert (total.token_id, total.stands, total.counted) == ("tok_0", 0, 2)


async def test_orphaned_attempts_are_reported(
    database: Database, used: Recorder, path: Path
) -> None:
    with raw_connection(path) as connection:  # without foreign keys
        if on_server():
            connection.execute("SET session_replication_role = replica")
        connection.execute(
            f"UPDATE attempts SET request_id = 'x' WHERE request_id = '{request_id(1)}'"
        )
    found, of_link = (await check(database)).discrepancies
    assert found == Discrepancy(column="attempts.request_id", stands=1, counted=0)
    assert of_link.column == "links.rows_digest"


async def test_hours_with_deleted_rows_are_not_checked(
    database: Database, used: Recorder, path: Path
) -> None:
    with raw_connection(path) as connection:
        if not on_server():
            connection.execute("PRAGMA foreign_keys = ON")
        connection.execute(f"DELETE FROM requests WHERE id = '{request_id(0)}'")
        if on_server():  # there it does not take its attempts with it
            connection.execute(f"DELETE FROM attempts WHERE request_id = '{request_id(0)}'")
    assert not (await check(database)).ok
    with raw_connection(path) as connection:
        kept = START // HOUR_US + 1
        connection.execute(f"INSERT INTO settings VALUES ('rows_kept_since', '{kept}')")
    report = await check(database)
    assert report.ok
    assert report.rows_kept_since == kept


@pytest.mark.sqlite
async def test_a_damaged_file_is_reported(database: Database, used: Recorder, path: Path) -> None:
    with raw_connection(path) as connection:
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute(
            "UPDATE sqlite_schema SET sql = replace(sql, 'requests_of_token ON requests (token_id',"
            " 'requests_of_token ON requests (model') WHERE name = 'requests_of_token'"
        )
    await database.reader.dispose()
    report = await check(database)
    assert "requests_of_token" in report.damage[0]
    assert not report.ok


async def test_reported_discrepancies_are_limited(database: Database, path: Path) -> None:
    with raw_connection(path) as connection:
        connection.execute("BEGIN")
        connection.executemany(
            "INSERT INTO usage_hours (hour, token_id, group_name, model, errors)"
            " VALUES (?, 'tok_0', 'default', '', 1)",
            ((number,) for number in range(MAX_DISCREPANCIES + 5)),
        )
        connection.execute("COMMIT")
    assert len((await check(database)).discrepancies) == MAX_DISCREPANCIES


async def test_the_check_reads_one_snapshot(database: Database, recorder: Recorder) -> None:
    writing = True

    async def write() -> None:
        number = 0
        while writing:
            number += 1
            row = intent(number, started_at=START + number * HOUR_US // 7)
            await recorder.record_intent(row)
            recorder.record_settlement(settled(row, cost_micro=number))

    async with asyncio.timeout(20):
        writer = asyncio.ensure_future(write())
        reports = [await check(database, boot_id=recorder.boot_id) for _ in range(8)]
        writing = False
        await writer
    assert all(report.ok for report in reports)
    assert reports[0].rows < reports[-1].rows
