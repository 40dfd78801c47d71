"""A shell for commands, with and without a gateway that answers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.shell import Shell, Standing, standing


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    monkeypatch.chdir(tmp_path)
    for name in ("GATEWAY_CONFIG", "GATEWAY_STATE_DIR", "STATE_DIRECTORY"):
        monkeypatch.delenv(name, raising=False)
    state_dir = tmp_path / "state"
    return Shell(state_dir, {"GATEWAY_STATE_DIR": str(state_dir)})


@pytest.fixture
def gateway(shell: Shell) -> Iterator[Standing]:
    with standing(shell.state_dir) as gateway:
        yield gateway
