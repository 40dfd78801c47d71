"""Fixtures: a command runner, and an admin API in a thread."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.cli_runner import AdminGateway, CommandRunner, admin_gateway


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandRunner:
    monkeypatch.chdir(tmp_path)
    for name in ("GATEWAY_CONFIG", "GATEWAY_STATE_DIR", "STATE_DIRECTORY"):
        monkeypatch.delenv(name, raising=False)
    state_dir = tmp_path / "state"
    return CommandRunner(state_dir, {"GATEWAY_STATE_DIR": str(state_dir)})


@pytest.fixture
def gateway(shell: CommandRunner) -> Iterator[AdminGateway]:
    with admin_gateway(shell.state_dir) as gateway:
        yield gateway
