"""`gateway db copy`: how the server is named, what is printed, what is refused."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from gateway.config.cluster import DatabaseServer
from gateway.store.log.integrity import check
from gateway.store.open import open_database
from gateway.store.sqlite.lock import DATABASE_NAME
from tests.cli.cli_runner import CommandRunner
from tests.support.databases import run_apart
from tests.support.postgres import new_database_url

pytestmark = [pytest.mark.timeout(60), pytest.mark.sqlite]


@pytest.fixture
def url() -> str:
    return run_apart(new_database_url())


def keys_in(place: Path | str) -> list[str]:
    async def read() -> list[str]:
        server = DatabaseServer.model_validate({"url": place}) if isinstance(place, str) else place
        database = await open_database(server)
        async with database.reader.connect() as connection:
            names = await connection.exec_driver_sql("SELECT name FROM tokens ORDER BY name")
        assert (await check(database)).ok
        await database.close()
        return [name for (name,) in names]

    return asyncio.run(read())


def test_there_and_back(shell: CommandRunner, url: str, tmp_path: Path) -> None:
    shell.create_key("alice")
    shell.create_key("bob")
    result = shell("db", "copy", "--to", url)
    assert (result.exit_code, "Rows, sums and totals agree." in result.stdout) == (0, True)
    assert "Set `database` in the configuration" in result.stderr
    assert keys_in(url) == ["alice", "bob"]
    config = tmp_path / "server.yaml"
    config.write_text(f"database: {url}\n")
    (shell.state_dir / DATABASE_NAME).unlink()
    copied = shell.json("db", "copy", "--from-config", config)
    assert copied["rows"]["tokens"] == 2
    assert copied["copied"] == sum(copied["rows"].values())
    assert copied["rows_per_second"] > 0
    assert keys_in(shell.state_dir / DATABASE_NAME) == ["alice", "bob"]


def test_a_target_with_data_is_refused(shell: CommandRunner, url: str) -> None:
    shell.create_key("alice")
    assert shell("db", "copy", "--to", url).exit_code == 0
    result = shell("db", "copy", "--to", url)
    assert result.exit_code == 1
    assert "The target is in use, or a copy into it is complete: rows in" in result.stderr


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ((), "Name one of --to"),
        (("--to", "postgresql://h/d", "--from", "postgresql://h/d"), "Name one of --to"),
        (("--to", "postgresql://u:sekrit-5512@h/d"), "PGPASSWORD or ~/.pgpass"),
        (("--to", "mysql://h/d"), "The URL must begin with postgresql"),
        (("--to", "postgresql://h"), "must end with the name of the database"),
    ],
)
def test_what_cannot_be_a_server(shell: CommandRunner, options: tuple[str, ...], text: str) -> None:
    result = shell("db", "copy", *options)
    assert result.exit_code == 2
    assert text in " ".join(result.stderr.split())
    assert "sekrit" not in result.stderr


def test_a_configuration_without_a_server(shell: CommandRunner, tmp_path: Path) -> None:
    config = tmp_path / "file.yaml"
    config.write_text("server: {port: 0}\n")
    result = shell("db", "copy", "--to-config", config)
    assert (result.exit_code, "has no `database`" in result.stderr) == (1, True)
