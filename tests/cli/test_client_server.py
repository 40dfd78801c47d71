"""Commands where the configuration names a database server and no gateway runs here."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.store.database import Database
from gateway.store.migrations import MIGRATIONS, migrate, migrations_for
from gateway.store.postgresql.database import PostgresqlDatabase
from tests.cli.cli_runner import CommandRunner
from tests.support.databases import run_apart, server_of
from tests.support.postgres import (
    drop_database,
    empty_database,
    new_database_url,
    postgres_server,
)

SECRET = "s3cret-4471"


@pytest.fixture
def url() -> Iterator[str]:
    url = run_apart(new_database_url())
    yield url
    run_apart(drop_database(postgres_server(), url.rpartition("/")[2]))


def shell_of(folder: Path, database: str, **environ: str) -> CommandRunner:
    """Commands with a configuration whose other parts are never looked at."""
    file = folder / "channels.yaml"
    file.write_text(f"database: {database}\nchannels: no list\n")
    file.chmod(0o600)
    state_dir = folder / "state"
    variables = {"GATEWAY_CONFIG": str(file), "GATEWAY_STATE_DIR": str(state_dir)}
    return CommandRunner(state_dir, variables | environ)


def test_commands_use_the_server_and_no_file(tmp_path: Path, url: str) -> None:
    shell = shell_of(tmp_path, url)
    result = shell("key", "mint", "--name", "alice")
    assert (result.exit_code, result.stdout[:3]) == (0, "sk-")
    assert "No gateway runs" not in result.stderr
    assert [each["name"] for each in shell.items("key", "list")] == ["alice"]
    assert [each["name"] for each in shell.items("group", "list")] == ["default"]
    assert shell.items("logs", "list") == []
    assert shell.json("db", "check")["clean"]
    assert {each.name for each in shell.state_dir.iterdir()} == {"lock"}


def test_a_machine_without_a_state_directory(tmp_path: Path, url: str) -> None:
    """The replicas are elsewhere."""
    shell = shell_of(tmp_path, url)
    assert shell.items("key", "list") == []
    assert not shell.state_dir.exists()


def test_only_the_secrets_of_the_database_are_resolved(tmp_path: Path, url: str) -> None:
    option = f"{{url: '{url}', password: '${{DB_PASSWORD}}'}}"
    missing = shell_of(tmp_path, option)("key", "list")
    assert missing.exit_code == 1
    assert "database.password: the environment variable DB_PASSWORD is not set" in missing.stderr
    assert shell_of(tmp_path, option, DB_PASSWORD=SECRET).items("key", "list") == []


def test_a_server_that_cannot_be_used(tmp_path: Path) -> None:
    result = shell_of(tmp_path, f"postgresql://gw:{SECRET}@127.0.0.1:1/gateway")("key", "list")
    assert result.exit_code == 1
    assert 'the database "gateway" on 127.0.0.1:1: the connection was refused' in result.stderr
    assert SECRET not in result.stderr


def test_migrations_of_a_server(tmp_path: Path) -> None:
    server = postgres_server()
    name = run_apart(empty_database(server))
    place = server_of(server.url(name))

    async def prepare() -> None:
        database: Database = PostgresqlDatabase(place)
        await migrate(database, 1, migrations_for("postgresql")[:-1])
        await database.close()

    try:
        asyncio.run(prepare())
        shell = shell_of(tmp_path, server.url(name))
        for _ in range(2):
            tried = shell.json("db", "migrate", "--dry-run")
            assert [step["number"] for step in tried["steps"]] == [len(MIGRATIONS)]
        assert "Nothing was changed." in shell("db", "migrate", "--dry-run").stderr
        assert shell.json("db", "migrate")["schema"] == len(MIGRATIONS)
        assert shell.json("db", "migrate")["steps"] == []
    finally:
        run_apart(drop_database(server, name))
