"""Migrations: from nothing to today's schema, copies before changes, refusals that say why."""

from __future__ import annotations

import sqlite3
import stat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import Connection, MetaData

from gateway.core.limits import UNLIMITED
from gateway.store import tokens
from gateway.store.database import Database
from gateway.store.errors import MigrationFailed, NewerSchema, StoreError
from gateway.store.log import pages
from gateway.store.log.integrity import check
from gateway.store.log.recorder import Recorder
from gateway.store.log.usage import Dimension, usage
from gateway.store.migrations import MIGRATIONS, migrate
from gateway.store.open import open_database
from gateway.store.records import DIMENSIONS, HOUR_US, ExchangeState, Group
from gateway.store.schema import metadata
from gateway.store.sqlite.database import SqliteDatabase
from tests.store.sample_rows import (
    attempt,
    integrity_check,
    request_id,
    settlement,
)
from tests.support.databases import raw_connection

pytestmark = pytest.mark.sqlite

NOW = 1_790_000_000_000_000


def described(tables: MetaData) -> dict[str, Any]:
    """What two descriptions of the same tables must agree on."""
    return {
        table.name: (
            sorted(
                (
                    column.name,
                    str(column.type),
                    column.nullable,
                    column.primary_key,
                    column.server_default is not None,
                    sorted(key.target_fullname for key in column.foreign_keys),
                )
                for column in table.columns
            ),
            sorted((str(index.name), index.columns.keys()) for index in table.indexes),
        )
        for table in tables.sorted_tables
    }


async def test_an_empty_database_gets_the_current_schema(database: Database) -> None:
    def reflect(connection: Connection) -> MetaData:
        found = MetaData()
        found.reflect(connection)
        return found

    assert described(await database.write(reflect)) == described(metadata)


async def test_recovery_and_paging_use_their_indexes(database: Database, path: Path) -> None:
    with raw_connection(path) as connection:

        def plan(query: str) -> str:
            return " ".join(row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {query}"))

        assert "requests_running" in plan(
            "SELECT * FROM requests WHERE state = 'running' AND boot_id != 'x'"
        )
        page = plan("SELECT * FROM requests WHERE id < 'x' ORDER BY id DESC LIMIT 50")
        assert "PRIMARY KEY" in page
        assert "TEMP B-TREE" not in page
        of_token = plan(
            "SELECT * FROM requests WHERE token_id = 'x' AND id < 'y' ORDER BY id DESC LIMIT 50"
        )
        assert "requests_of_token" in of_token
        assert "TEMP B-TREE" not in of_token
        failed = plan(
            "SELECT error_code, upstream_status, sum(requests), max(id) FROM requests"
            " INDEXED BY requests_failed WHERE state NOT IN ('ok', 'running') AND id > 'x'"
            " GROUP BY error_code, upstream_status"
        )
        assert "COVERING INDEX requests_failed (id>?)" in failed


async def test_the_first_start_creates_the_default_group(path: Path) -> None:
    database = await open_database(path, clock_ns=lambda: NOW * 1000)
    assert await tokens.all_groups(database) == [Group("default", ("*",), NOW)]
    await tokens.remove_group(database, "default")
    await database.close()
    database = await open_database(path)
    assert await tokens.all_groups(database) == []
    await database.close()


FIRST = 1
"""The number of the first schema that was ever released."""


async def test_rows_of_the_first_schema_are_unchanged(path: Path) -> None:
    writer = SqliteDatabase(path)
    await migrate(writer, NOW, MIGRATIONS[:FIRST])
    with raw_connection(path) as connection:
        for state in ("ok", "open"):
            connection.execute(
                "INSERT INTO requests (id, started_at, token_id, group_name, endpoint, format,"
                " channel, stream, bytes_in, state, total_us, boot_id) VALUES"
                f" ('req_{state}', 1, 'tok_0', 'default', '/v1/messages', 'messages', 'main',"
                f" 1, 2, '{state}', 3, 'boot')"
            )
        connection.row_factory = sqlite3.Row
        before = {row["id"]: dict(row) for row in connection.execute("SELECT * FROM requests")}
    await writer.close()
    database = await open_database(path)
    recorder = Recorder(database, boot_id="boot")
    await recorder.start()
    rows = {row.id: row._asdict() for row in await pages.page(database)}
    new = {
        "upstream_id": None,
        "upstream_format": None,
        "affinity": None,
        "affinity_kept": None,
        "config_hash": None,
        "attempts": 0,
        "expected_input_tokens": 0,
        "expected_micro": 0,
        "tariff": None,
        "notes": None,
        "cache_write_1h_tokens": 0,
        "cost_micro": 0,
        "error_message": None,
        "requests": 1,
        "web_searches": 0,
        "expected_usd_micro": 0,
        "usd_micro": 0,
        **dict.fromkeys(DIMENSIONS),
    }
    assert rows == {
        name: row
        | new
        | {"catalog_model": row["model"], "state": "running" if name == "req_open" else "ok"}
        for name, row in before.items()
    }
    recorder.record_settlement(settlement(0, id="req_open", attempts=1), (attempt(),))
    await recorder.close()
    assert await pages.attempts(database, "req_open") == [attempt()]
    assert await pages.attempts(database, "req_ok") == []
    await database.close()
    assert integrity_check(path) == "ok"
    assert path.with_name("ledger.db.schema-1.copy").exists()


FOURTH_HOUR = 4 * HOUR_US


async def test_hourly_sums_are_computed_from_existing_rows(path: Path) -> None:
    """And a ledger that was migrated agrees with itself, whatever it holds."""
    writer = SqliteDatabase(path)
    await migrate(writer, NOW, MIGRATIONS[:2])
    rows = (
        ("ok", 0, "main", "alpha-x", 10, 1, 100),
        ("error", 1, "main", "alpha-x", 20, 2, 50),
        ("rejected", 2, None, "alpha-x", 0, 0, None),
        ("ok", HOUR_US, "main", None, 30, 3, 7),
        ("open", 0, "main", "alpha-x", 0, 0, None),
    )
    with raw_connection(path) as connection:
        connection.execute(
            'INSERT INTO tokens (id, name, digest, display, "group", state, created_at, requests,'
            " input_tokens, output_tokens) VALUES ('tok_0', 'n', x'00', 'sk', 'default', 'active',"
            " 1, 4, 60, 6)"
        )
        for number, (state, later, channel, model, sent, made, first) in enumerate(rows):
            connection.execute(
                "INSERT INTO requests (id, started_at, token_id, group_name, endpoint, format,"
                " channel, model, stream, bytes_in, state, input_tokens, output_tokens, boot_id,"
                " first_event_us, total_us)"
                " VALUES (?, ?, 'tok_0', 'default', '/', 'chat', ?, ?, 1, 2, ?, ?, ?, 'boot', ?,"
                " 9)",
                (f"req_{number}", FOURTH_HOUR + later, channel, model, state, sent, made, first),
            )
    await writer.close()
    database = await open_database(path)
    assert (await check(database)).ok
    found = [
        (
            *(row.hour, row.model, row.requests, row.errors, row.input_tokens, row.output_tokens),
            *(row.first_events, row.first_event_us, row.total_us),
        )
        for row in await usage(database, [Dimension.HOUR, Dimension.MODEL])
    ]
    assert found == [
        (4, "alpha-x", 2, 1, 30, 3, 2, 150, 18),
        (4, "", 1, 1, 0, 0, 0, 0, 0),
        (5, "", 1, 0, 30, 3, 1, 7, 9),
    ]
    recorder = Recorder(database)
    await recorder.start()
    await recorder.close()
    report = await check(database, boot_id=recorder.boot_id)
    assert report.ok
    assert (report.keys, report.rows, report.hours) == (1, 5, 3)
    (known,) = await tokens.all_tokens(database)
    assert (known.requests, known.cost_micro, known.probe) == (5, 0, False)
    assert known.limits == UNLIMITED
    await database.close()


async def test_open_rows_become_running(path: Path) -> None:
    """Those of a gateway that ended without settling them; the next start settles them."""
    writer = SqliteDatabase(path)
    await migrate(writer, NOW, MIGRATIONS[:4])
    states = ("ok", "open", "error", "open", "interrupted")
    with raw_connection(path) as connection:
        for number, state in enumerate(states):
            connection.execute(
                "INSERT INTO requests (id, started_at, token_id, group_name, endpoint, format,"
                " stream, bytes_in, state, total_us, boot_id)"
                " VALUES (?, 1, 'tok_0', 'default', '/', 'chat', 1, 2, ?, 3, 'before')",
                (request_id(number), state),
            )
    await writer.close()
    database = await open_database(path)

    async def found(log_filter: pages.LogFilter) -> list[str]:
        return [row.id for row in await pages.page(database, log_filter)]

    running = pages.LogFilter(state=ExchangeState.RUNNING)
    assert await found(running) == [request_id(3), request_id(1)]
    assert await found(pages.LogFilter(state=ExchangeState.ERROR)) == [request_id(2)]
    recorder = Recorder(database)
    await recorder.start()
    await recorder.close()
    assert await found(running) == []
    assert len(await found(pages.LogFilter(state=ExchangeState.INTERRUPTED))) == 3
    await database.close()
    assert integrity_check(path) == "ok"
    assert path.with_name("ledger.db.schema-4.copy").exists()


async def test_attempts_are_deleted_with_their_request(
    database: Database, recorder: Recorder, path: Path
) -> None:
    for number in (1, 2):
        recorder.record_settlement(settlement(number, attempts=2), (attempt(),) * 2)
    await recorder.close()
    with raw_connection(path) as connection:
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute(f"DELETE FROM requests WHERE id = '{request_id(1)}'")
    assert await pages.attempts(database, request_id(1)) == []
    assert len(await pages.attempts(database, request_id(2))) == 2


ADD_COLUMN = "ALTER TABLE groups ADD COLUMN remark TEXT;\n"


def has_remark(connection: sqlite3.Connection) -> bool:
    return "remark" in {row[1] for row in connection.execute("PRAGMA table_info(groups)")}


async def test_a_backup_precedes_a_migration(database: Database, path: Path) -> None:
    await database.close()
    writer = SqliteDatabase(path)
    await migrate(writer, NOW, (*MIGRATIONS, ADD_COLUMN))
    await writer.close()
    copy = path.with_name(f"ledger.db.schema-{len(MIGRATIONS)}.copy")
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    assert integrity_check(copy) == "ok"
    with raw_connection(copy) as connection:
        assert not has_remark(connection)
        assert connection.execute("SELECT count(*) FROM tokens").fetchone() == (1,)
    with raw_connection(path) as connection:
        assert has_remark(connection)


async def test_only_the_newest_copies_are_kept(path: Path) -> None:
    database = await open_database(path)
    for version in range(5):
        await database.copy(version)
    await database.close()
    names = {each.name for each in path.parent.glob("*.copy*")}
    assert names == {f"ledger.db.schema-{version}.copy" for version in (2, 3, 4)}


async def test_without_space_nothing_is_changed(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = SqliteDatabase(path)
    await migrate(writer, NOW, MIGRATIONS[:3])
    await writer.close()
    usage = SimpleNamespace(free=4096)
    monkeypatch.setattr("gateway.store.sqlite.database.shutil.disk_usage", lambda _: usage)
    with pytest.raises(StoreError, match="too little space"):
        await open_database(path)
    with raw_connection(path) as connection:
        query = "SELECT value FROM settings WHERE name = 'schema_version'"
        assert connection.execute(query).fetchone() == ("3",)
    assert not list(path.parent.glob("*.copy*"))


async def test_a_failed_step_is_rolled_back(database: Database, path: Path) -> None:
    await database.close()
    writer = SqliteDatabase(path)
    with pytest.raises(
        MigrationFailed, match=f"from schema {len(MIGRATIONS)} to {len(MIGRATIONS) + 1}"
    ):
        await migrate(
            writer, NOW, (*MIGRATIONS, f"{ADD_COLUMN}ALTER TABLE nowhere ADD COLUMN x TEXT")
        )
    await writer.close()
    with raw_connection(path) as connection:
        assert not has_remark(connection)
    database = await open_database(path)
    await database.close()


async def test_a_newer_schema_is_refused(database: Database, path: Path) -> None:
    await database.close()
    with raw_connection(path) as connection:
        connection.execute("UPDATE settings SET value = '99' WHERE name = 'schema_version'")
    with pytest.raises(NewerSchema, match=r"schema 99.*newer release"):
        await open_database(path)


async def test_the_database_of_another_program_is_refused(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE birds (name TEXT)")
    connection.close()
    with pytest.raises(StoreError, match="another program"):
        await open_database(path)
