"""The manual page: every command is in it, and man accepts it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.cli import COMMANDS
from tests.support.paths import ROOT
from tests.support.programs import find_program


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "reference", "man"],
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        check=True,
        timeout=60,
    )
    file = tmp_path_factory.mktemp("man") / "gateway.1"
    file.write_bytes(done.stdout)
    return file


@pytest.mark.slow("renders the manual page")
def test_every_command_is_in_it(page: Path) -> None:
    sections = [line for line in page.read_text().splitlines() if line.startswith(".SS gateway ")]
    assert {line.split()[2].replace("\\", "") for line in sections} == {*COMMANDS}
    assert any(line.startswith(".SS gateway key mint ") for line in sections)


@pytest.mark.parametrize("width", ["60", "78", "100"])
@pytest.mark.parametrize("language", ["C", "C.UTF-8"])
def test_man_formats_it_without_warnings(page: Path, width: str, language: str) -> None:
    """In any terminal: a line that cannot be filled would be a warning in one of them only."""
    command = [find_program("man"), "--warnings", "--local-file", page]
    done = subprocess.run(
        command,
        env=os.environ | {"MANWIDTH": width, "LC_ALL": language},
        capture_output=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr.decode()) == (0, "")
    text = done.stdout.decode()
    assert "--budget-day" in text  # hyphens that can be copied
    assert "gateway completion bash > /usr/share/" in text  # lines that are not filled
    assert "gateway completion zsh > /usr/share/" in text
