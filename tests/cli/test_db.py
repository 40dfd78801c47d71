"""`gateway db`: consistent totals and every difference; backups, their restoration, migrations."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from pathlib import Path
from typing import Final

import orjson
import pytest

from gateway.store.migrations import MIGRATIONS, NAMES, migrate
from gateway.store.sqlite.database import SqliteDatabase
from gateway.store.sqlite.lock import DATABASE_NAME, LOCK_NAME
from tests.cli.cli_runner import CommandRunner, admin_gateway
from tests.store.sample_rows import intent, settlement
from tests.support.databases import raw_connection

SCHEMA: Final = len(MIGRATIONS)


@pytest.fixture
def token_id(shell: CommandRunner) -> str:
    created_id = str(shell.create_key("alice")["id"])
    with admin_gateway(shell.state_dir) as gateway:

        async def work() -> None:
            for number in range(3):
                opened = gateway.recorder.record_intent(intent(number, created_id))
                gateway.recorder.record_settlement(settlement(number, created_id, cost_micro=5))
            await opened
            await gateway.recorder.record_intent(intent(9, created_id))

        gateway.do(work)
    return created_id


def test_consistent_totals(shell: CommandRunner, token_id: str) -> None:
    result = shell("db", "check")
    assert (result.exit_code, result.stderr) == (0, "")
    report = shell.json("db", "check")
    (head,) = report["head"]
    assert result.stdout.splitlines() == [
        "The totals of all keys (1) are the sums of their hours.",
        "The hourly sums (1) are the sums of their rows (4).",
        f"The rows are those of their links ({report['links']}).",
        f"Head of the log: {head}",
        "Running requests: 1.",
    ]
    assert (report["clean"], report["keys"], report["rows"], report["open"]) == (True, 1, 4, 1)


def test_with_a_running_gateway(shell: CommandRunner, token_id: str) -> None:
    with admin_gateway(shell.state_dir):
        assert shell("db", "check").exit_code == 0


def test_every_difference_is_listed(shell: CommandRunner, token_id: str) -> None:
    with raw_connection(shell.state_dir / DATABASE_NAME) as connection:
        connection.execute("UPDATE tokens SET cost_micro = 14, requests = 4")
        connection.execute("UPDATE usage_hours SET output_tokens = 22")
    result = shell("db", "check")
    assert result.exit_code == 1
    _, *rows = [line.split() for line in result.stdout.splitlines()]
    assert [(row[0], row[1], *row[-2:]) for row in rows] == [
        ("tokens.requests", token_id, "4", "3"),
        ("tokens.output_tokens", token_id, "21", "22"),
        ("tokens.cost_micro", token_id, "14", "15"),
        ("usage_hours.output_tokens", token_id, "22", "21"),
    ]
    assert "Differences: 4, in the totals of 1 keys" in result.stderr
    assert "Nothing was changed." in result.stderr
    result = shell("db", "check", "--json")
    assert result.exit_code == 1
    assert '"clean": false' in result.stdout


def test_changed_rows_and_a_head_that_is_gone(shell: CommandRunner, token_id: str) -> None:
    head = shell("logs", "export").stderr.strip().removeprefix("Head of the log: ")
    assert shell("db", "check", "--head", head).exit_code == 0
    with raw_connection(shell.state_dir / DATABASE_NAME) as connection:
        connection.execute("UPDATE requests SET model = 'another' WHERE state = 'ok'")
    result = shell("db", "check", "--head", head)
    assert result.exit_code == 1
    assert "links.rows_digest" in result.stdout
    assert "links.digest" not in result.stdout
    with raw_connection(shell.state_dir / DATABASE_NAME) as connection:
        connection.execute("DELETE FROM links")
    report = orjson.loads(shell("db", "check", "--head", head, "--json").stdout)
    assert ("links.digest", head) in [
        (each["column"], each["link"]) for each in report["discrepancies"]
    ]
    assert shell("db", "check", "--head", "x").exit_code != 0


def test_a_missing_state_directory(shell: CommandRunner) -> None:
    result = shell("db", "check")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "There is no state directory" in result.stderr


def test_a_backup_and_its_restoration(shell: CommandRunner, token_id: str) -> None:
    with admin_gateway(shell.state_dir):
        made = shell.json("db", "backup")
        refused = shell("db", "restore", made["file"])
    backup = Path(made["file"])
    assert backup.parent == shell.state_dir / "backups"
    assert (made["size"], made["removed"]) == (backup.stat().st_size, [])
    assert refused.exit_code == 1
    assert "is in use by process" in refused.stderr
    assert "stop the gateway first" in refused.stderr
    shell.create_key("bob")
    result = shell("db", "restore", str(backup))
    assert result.exit_code == 0, result.output
    first, second = result.stdout.splitlines()
    assert first == f"{shell.state_dir / DATABASE_NAME} is now {backup} (schema {SCHEMA})."
    assert "gateway.db.replaced-" in second
    assert [key["name"] for key in shell.items("key", "list")] == ["alice"]


def test_a_refused_restoration_names_the_file(
    shell: CommandRunner, token_id: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As it was typed, with advice that concerns it."""
    monkeypatch.chdir(tmp_path)
    Path("garbage").write_bytes(b"text" * 5000)
    damaged = Path("damaged")
    damaged.write_bytes(Path(shell.json("db", "backup")["file"]).read_bytes())
    with damaged.open("r+b") as file:
        file.seek(4096 * 5)
        file.write(b"\xff" * 4096 * 10)
    sqlite3.connect("birds").execute("CREATE TABLE birds (name TEXT)").connection.close()
    for name, message in {
        "ff": "There is no file ff.",
        "garbage": "garbage is no database, or damaged: ",
        "damaged": "damaged is damaged (",
        "birds": "birds is no database of a gateway.",
    }.items():
        result = shell("db", "restore", name)
        assert result.exit_code == 1
        assert result.stderr.startswith(f"Error: {message}")
        assert ".part" not in result.stderr
        assert "db check" not in result.stderr
    assert "restore another backup" in shell("db", "restore", "damaged").stderr


def test_the_size_has_the_write_ahead_log(shell: CommandRunner, token_id: str) -> None:
    path = shell.state_dir / DATABASE_NAME
    with admin_gateway(shell.state_dir), raw_connection(path) as connection:
        connection.execute("CREATE TABLE ballast AS SELECT randomblob(3000000) AS content")
        connection.commit()
        log = path.with_name(f"{path.name}-wal").stat().st_size
        assert log > 3_000_000
        assert shell.json("db", "migrate", "--dry-run")["size"] == path.stat().st_size + log


def test_backups_in_a_directory(shell: CommandRunner, token_id: str, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for day in (20, 21):
        (elsewhere / f"gateway-202611{day}T070000Z.db").touch()
    result = shell("db", "backup", str(elsewhere), "--keep", "2")
    assert result.exit_code == 0, result.output
    assert "verified" in result.stdout
    assert f"Removed: {elsewhere}/gateway-20261120T070000Z.db" in result.stdout
    assert len(list(elsewhere.iterdir())) == 2


def test_a_named_backup_is_never_overwritten(shell: CommandRunner, token_id: str) -> None:
    named = shell.state_dir / "named.db"
    assert shell("db", "backup", str(named)).exit_code == 0
    before = named.read_bytes()
    result = shell("db", "backup", str(named))
    assert (result.exit_code, named.read_bytes()) == (1, before)
    assert f"Error: {named} exists: name another file" in result.stderr
    assert shell("db", "backup", str(named), "--keep", "3").exit_code == 2


def test_without_a_database(shell: CommandRunner) -> None:
    for arguments in (("backup",), ("vacuum",), ("migrate",), ("migrate", "--dry-run")):
        result = shell("db", *arguments)
        assert result.exit_code == 1
        assert result.stderr.startswith("Error: There is no database")
    assert not shell.state_dir.exists()


def test_migrations_are_tried_on_a_copy(shell: CommandRunner) -> None:
    path = shell.state_dir / DATABASE_NAME
    writer = SqliteDatabase(path)
    asyncio.run(migrate_and_close(writer, SCHEMA - 2))
    before = path.read_bytes()
    tried = shell.json("db", "migrate", "--dry-run")
    assert [step["number"] for step in tried["steps"]] == [SCHEMA - 1, SCHEMA]
    assert [step["name"] for step in tried["steps"]] == list(NAMES[-2:])
    assert (tried["copy"], path.read_bytes()) == (None, before)
    assert {each.name for each in shell.state_dir.iterdir()} == {DATABASE_NAME, LOCK_NAME}
    assert "Tried on a copy" in shell("db", "migrate", "--dry-run").stderr
    done = shell.json("db", "migrate")
    assert done["copy"] == f"{path}.schema-{SCHEMA - 2}.copy"
    assert Path(done["copy"]).is_file()
    assert shell.json("db", "migrate")["steps"] == []
    assert shell("db", "check").exit_code == 0


async def migrate_and_close(database: SqliteDatabase, version: int) -> None:
    await migrate(database, 0, MIGRATIONS[:version])
    await database.close()


def test_a_vacuum(shell: CommandRunner, token_id: str) -> None:
    result = shell("db", "vacuum")
    assert result.exit_code == 0, result.output
    assert "it shrinks by itself from now on" in result.stdout
    with admin_gateway(shell.state_dir):
        assert "stop the gateway first" in shell("db", "vacuum").stderr
    assert [key["name"] for key in shell.items("key", "list")] == ["alice"]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs a second user")
def test_as_another_user_nothing_is_created(shell: CommandRunner, token_id: str) -> None:
    for path in (shell.state_dir, *shell.state_dir.iterdir()):
        os.chown(path, 65534, 65534)
    before = sorted(shell.state_dir.iterdir())
    for arguments in (
        ("db", "backup"),
        ("db", "vacuum"),
        ("db", "migrate"),
        ("db", "restore", str(shell.state_dir / DATABASE_NAME)),
        ("db", "check"),
        ("key", "list"),
    ):
        result = shell(*arguments)
        assert result.exit_code == 1
        assert "belongs to nobody" in result.stderr
        assert "sudo -u nobody " in result.stderr
    assert sorted(shell.state_dir.iterdir()) == before
    assert {path.stat().st_uid for path in before} == {65534}
