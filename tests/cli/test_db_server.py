"""Where the database is on a server, commands of the file name the server's own."""

from __future__ import annotations

import asyncio
import os
import shlex
import subprocess
from pathlib import Path

import pytest

from gateway.config.cluster import DatabaseServer
from gateway.store.log.integrity import check
from gateway.store.open import open_database
from gateway.store.tokens import all_groups
from tests.cli.cli_runner import CommandRunner
from tests.support.postgres import drop_database, find_postgres, new_database_url, postgres_server

SECRET = "s3cret-4471"
PLACE = "--host db.internal --port 5433 --username gw"


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("backup",), f"pg_dump --format=custom --file=gateway.dump {PLACE} gateway"),
        (("restore", "a b.dump"), f"{PLACE} --dbname=gateway_restored 'a b.dump'"),
        (("vacuum",), f"vacuumdb --analyze {PLACE} gateway"),
    ],
)
def test_the_servers_own_command_without_secrets(
    tmp_path: Path, arguments: tuple[str, ...], named: str
) -> None:
    file = tmp_path / "channels.yaml"
    file.write_text(f"database: postgresql://gw:{SECRET}@db.internal:5433/gateway\n")
    file.chmod(0o600)
    shell = CommandRunner(tmp_path, {"GATEWAY_CONFIG": str(file)})
    result = shell("db", *arguments)
    assert result.exit_code == 1
    assert named in result.stderr
    assert "~/.pgpass" in result.stderr
    assert SECRET not in result.output


async def test_a_backup_is_restored_by_the_commands_that_are_printed(tmp_path: Path) -> None:
    url = await new_database_url()
    file = tmp_path / "channels.yaml"
    file.write_text(f"database: {url}\n")
    shell = CommandRunner(tmp_path, {"GATEWAY_CONFIG": str(file)})
    path = {"PATH": f"{find_postgres()}:{os.environ['PATH']}"}
    for arguments in (("backup",), ("restore", "gateway.dump")):
        result = await asyncio.to_thread(shell, "db", *arguments)
        commands = [line for line in result.stderr.splitlines() if line.startswith("  ")]
        assert commands
        for command in commands:
            await asyncio.to_thread(
                subprocess.run,
                shlex.split(command),
                cwd=tmp_path,
                env=os.environ | path,
                check=True,
                timeout=60,
            )
    try:
        database = await open_database(DatabaseServer.model_validate({"url": f"{url}_restored"}))
        try:
            assert (await check(database)).ok
            assert [group.name for group in await all_groups(database)] == ["default"]
        finally:
            await database.close()
    finally:
        await drop_database(postgres_server(), f"{url.rpartition('/')[2]}_restored")
