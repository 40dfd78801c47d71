"""The database: real files, healthy and not."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from gateway.doctor.database import check_database
from gateway.doctor.findings import Finding, State
from gateway.runtime import unix_microseconds
from gateway.store.migrations import MIGRATIONS
from gateway.store.sqlite.lock import DATABASE_NAME
from tests.support.gateway import RunningGateway
from tests.support.ledger_template import copy_ledger


@pytest.fixture
async def file(tmp_path: Path) -> Path:
    path = tmp_path / DATABASE_NAME
    await copy_ledger(path)
    return path


def findings_of(file: Path, *, running: bool = False) -> dict[str, Finding]:
    findings = check_database(file.parent, running=running)
    return {each.subject.rpartition("/")[2]: each for each in findings}


def execute(file: Path, statement: str) -> None:
    with closing(sqlite3.connect(file)) as database, database:
        database.execute(statement)


def test_a_healthy_database(file: Path) -> None:
    found = findings_of(file)
    assert {each.state for each in found.values()} == {State.OK}
    assert found["schema"].text == str(len(MIGRATIONS))
    assert set(found) == {"disk", DATABASE_NAME, "schema", "open rows"}


def test_without_a_database(tmp_path: Path) -> None:
    found = findings_of(tmp_path / "absent" / DATABASE_NAME)
    assert {each.state for each in found.values()} == {State.OK}


async def test_beside_a_running_gateway(gateway: RunningGateway, tmp_path: Path) -> None:
    found = findings_of(tmp_path / DATABASE_NAME, running=True)
    assert {each.state for each in found.values()} == {State.OK}
    assert found["write-ahead log"].text.endswith("MiB")


def test_damage(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[4096 * 2 : 4096 * 4] = b"\xff" * 8192
    file.write_bytes(content)
    finding = findings_of(file)[DATABASE_NAME]
    assert finding.state is State.PROBLEM
    assert "is damaged" in finding.text


def test_an_empty_file_and_one_that_is_no_database(tmp_path: Path) -> None:
    file = tmp_path / DATABASE_NAME
    file.touch()
    assert findings_of(file)[DATABASE_NAME].state is State.PROBLEM
    file.write_text("no database, only text\n" * 100)
    assert findings_of(file)[DATABASE_NAME].state is State.PROBLEM


@pytest.mark.parametrize(("change", "state"), [(1, State.PROBLEM), (-1, State.WARNING)])
def test_schemas_of_other_releases(file: Path, change: int, state: State) -> None:
    version = len(MIGRATIONS) + change
    execute(file, f"UPDATE settings SET value = '{version}' WHERE name = 'schema_version'")
    assert findings_of(file)["schema"].state is state


def test_a_clock_that_was_set_back(file: Path) -> None:
    with closing(sqlite3.connect(file)) as database, database:
        columns = [
            (name, kind)
            for _, name, kind, required, default, _ in database.execute(
                "PRAGMA table_info(requests)"
            )
            if required and default is None
        ]
        row = {name: 0 if "INT" in kind else "x" for name, kind in columns}
        row |= {
            "id": "req_1",
            "state": "running",
            "started_at": unix_microseconds() + 7_190_000_000,
        }
        marks = ", ".join("?" * len(row))
        database.execute("PRAGMA foreign_keys = OFF")
        database.execute(
            f"INSERT INTO requests ({', '.join(row)}) VALUES ({marks})",
            tuple(row.values()),
        )
    found = findings_of(file)
    assert found["clock"].state is State.PROBLEM
    assert "119 min" in found["clock"].text
    assert found["open rows"].text == "1 from the last run: the next start ends them"
    assert findings_of(file, running=True)["open rows"].text == "1 running requests"
