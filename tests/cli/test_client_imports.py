"""What a command imports is most of its time: with a running gateway only what asks it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import orjson
import pytest

from tests.cli.cli_runner import AdminGateway, CommandRunner

HEAVY: Final = ("aiohttp", "asyncio", "pydantic", "sqlalchemy", "gateway.console", "gateway.wire")
COMMANDS: Final = (
    *("key list", "key mint --name alice", "logs list", "usage", "budgets", "group list"),
    *("responses list", "key --help", "admin --help", "account --help", "--help"),
)
PROBE: Final = f"""
import json, sys
from gateway.cli import main

for command in sys.argv[1:]:
    main(command.split(), prog_name="gateway", standalone_mode=False)
    imported = [name for name in {HEAVY} if name in sys.modules]
    print(json.dumps([command, imported]), file=sys.stderr)
"""


@pytest.mark.processes
def test_commands_import_no_more_than_what_asks_the_gateway(
    shell: CommandRunner, gateway: AdminGateway
) -> None:
    assert imports_of(shell, *COMMANDS) == {command: [] for command in COMMANDS}


@pytest.mark.processes
def test_a_check_of_a_file_imports_what_validates_it_alone(
    shell: CommandRunner, tmp_path: Path
) -> None:
    file = tmp_path / "gateway.yaml"
    file.write_text("{server: {port: 0}}")
    command = f"check --config {file}"
    assert imports_of(shell, command) == {command: ["pydantic"]}


def imports_of(shell: CommandRunner, *commands: str) -> dict[str, list[str]]:
    """Command → the heavy modules that it and those before it have imported."""
    process = subprocess.run(
        [sys.executable, "-c", PROBE, *commands],
        env=os.environ | shell.environ,
        capture_output=True,
        timeout=60,
    )
    assert process.returncode == 0, process.stderr.decode()
    lines = [line for line in process.stderr.splitlines() if line.startswith(b"[")]
    return dict(orjson.loads(line) for line in lines)
