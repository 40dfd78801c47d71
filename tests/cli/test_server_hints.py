"""Where the database is on a server, commands of the file name the server's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.cli_runner import CommandRunner

SECRET = "s3cret-4471"
PLACE = "--host db.internal --port 5433 --username gw"


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("backup",), f"pg_dump --format=custom --file=gateway.dump {PLACE} gateway"),
        (("restore", "a b.dump"), f"{PLACE} --dbname=gateway 'a b.dump'"),
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
