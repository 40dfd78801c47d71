"""The recorder's statements: one run for many rows writes the same as one run for each."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import create_engine, insert
from sqlalchemy.engine.interfaces import DBAPICursor
from sqlalchemy.exc import IntegrityError, OperationalError

from gateway.store.database import Database, driver_cursor
from gateway.store.log.batch import Batch, build_batch
from gateway.store.records import ExchangeState, LogEntry
from gateway.store.schema import metadata, requests, usage_hours
from gateway.store.schema import tokens as tokens_table
from gateway.store.sqlite.statements import Statement, Statements
from tests.store.sample_rows import (
    START,
    attempt,
    failed_attempt,
    intent,
    request_id,
    settlement,
)
from tests.support.databases import locked, raw_connection
from tests.support.hypothesis_profiles import examples


def write(statements: Statements, cursor: DBAPICursor, batch: Batch, at_once: int) -> None:
    runs: list[tuple[Statement, Sequence[tuple[Any, ...]]]] = [
        (statements.insert_intent, batch.intents),
        (statements.insert_complete, batch.complete_rows),
        (statements.update_settled, batch.settled_rows),
        (statements.insert_attempt, batch.attempts),
        (statements.add_hour, batch.hour_deltas),
        (statements.add_to_token, batch.token_deltas),
    ]
    for statement, rows in runs:
        for start in range(0, len(rows), at_once):
            statement.run(cursor, rows[start : start + at_once])


def batches(opened: int, settled: int, refused: int, owners: int) -> list[Batch]:
    """First some rows are opened, then some of them settled while others come whole."""
    first = {
        request_id(number): LogEntry(intent(number, f"tok_{number % owners}"))
        for number in range(opened)
    }
    entries: list[LogEntry] = []
    for number in range(min(settled, opened)):
        tried = (failed_attempt(), attempt())[number % 3 :]
        changes: dict[str, Any] = {"attempts": len(tried)}
        if number % 2:
            changes |= {"channel": "spare", "account": "b", "error_code": "x", "first_event_us": 7}
        row = settlement(number, f"tok_{number % owners}", **changes)
        entries.append(LogEntry(row, tried))
    for number in range(opened, opened + refused):
        owner = f"tok_{number % owners}"
        changes = {"stream": False, "catalog_model": "m", "first_event_us": None}
        row = settlement(number, owner, state=ExchangeState.REJECTED, **changes)
        entries.append(LogEntry(row))
    return [build_batch(first.values(), {}), build_batch(entries, {}, first)]


def written(steps: Sequence[Batch], at_once: int = 1000) -> list[Any]:
    """Every row of every table that the recorder writes, in a database in memory."""
    engine = create_engine("sqlite://")
    statements = Statements("boot")
    with engine.connect() as connection:
        metadata.create_all(connection)
        for number in range(3):
            row = {"id": f"tok_{number}", "name": "", "digest": b"%d" % number, "display": ""}
            row |= {"group": "default", "state": "active", "created_at": 0}
            connection.execute(insert(tokens_table).values(row))
        with driver_cursor(connection) as cursor:
            for batch in steps:
                write(statements, cursor, batch, at_once)
        tables = (requests, usage_hours, tokens_table, metadata.tables["attempts"])
        rows = [connection.execute(table.select().order_by(*table.primary_key)) for table in tables]
        found = [tuple(row) for result in rows for row in result]
    engine.dispose()
    return found


@examples(0.6)
@given(st.integers(0, 140), st.integers(0, 140), st.integers(0, 70), st.integers(1, 3))
def test_many_rows_are_written_as_each_alone(
    opened: int, settled: int, refused: int, owners: int
) -> None:
    steps = batches(opened, settled, refused, owners)
    assert written(steps) == written(steps, at_once=1)


@pytest.mark.parametrize("count", sorted({n + more for n in Statement.SIZES for more in (0, 1)}))
def test_any_number_of_rows_is_written_exactly(count: int) -> None:
    rows = written(batches(count, count, 0, 1))
    in_requests = [row for row in rows if str(row[0]).startswith("req_") and len(row) > 20]
    assert [row[0] for row in in_requests] == [request_id(number) for number in range(count)]


@pytest.mark.sqlite
async def test_updates_use_the_primary_key(database: Database, path: Path) -> None:
    statements = Statements("boot")
    for each in (statements.update_settled, statements.add_to_token):
        with raw_connection(path) as connection:
            for sql in each._texts:
                plan = connection.execute(f"EXPLAIN QUERY PLAN {sql}", ("",) * sql.count("?"))
                searched = [row[3] for row in plan if "given" not in row[3] and "ROW" not in row[3]]
                assert len(searched) == 1
                assert searched[0].startswith("SEARCH")
                assert searched[0].endswith("(id=?)")


@pytest.mark.sqlite
async def test_a_row_without_its_key_is_refused(database: Database) -> None:
    statements = Statements("boot")
    rows = [intent(1), intent(2, id=None)]
    with pytest.raises(IntegrityError):
        await database.write_rows(lambda cursor: statements.insert_intent.run(cursor, rows))


@pytest.mark.sqlite
async def test_an_error_rolls_back_and_the_next_transaction_works(
    database: Database, path: Path
) -> None:
    statements = Statements("boot")

    def fail(cursor: DBAPICursor) -> None:
        statements.insert_intent.run(cursor, [intent(1)])
        raise ValueError(START)

    with pytest.raises(ValueError, match=str(START)):
        await database.write_rows(fail)
    await database.write_rows(lambda cursor: statements.insert_intent.run(cursor, [intent(2)]))
    await database.write(lambda connection: connection.exec_driver_sql("SELECT 1"))
    with raw_connection(path) as connection:
        assert connection.execute("SELECT id FROM requests").fetchall() == [(request_id(2),)]


@pytest.mark.sqlite
async def test_a_locked_database_has_the_engines_message(database: Database, path: Path) -> None:
    with locked(path), pytest.raises(OperationalError, match="locked") as caught:
        await database.write_rows(lambda cursor: None)
    assert isinstance(caught.value.orig, sqlite3.OperationalError)
    await database.write_rows(lambda cursor: None)
