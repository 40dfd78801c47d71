"""`gateway completion`: the scripts, and what bash completes with its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.cli_runner import CommandRunner
from tests.support.paths import ROOT


@pytest.mark.parametrize("name", ["bash", "zsh", "fish"])
def test_a_script_calls_the_command(shell: CommandRunner, name: str) -> None:
    result = shell("completion", name)
    assert result.exit_code == 0
    assert f"_GATEWAY_COMPLETE={name}_complete" in result.stdout
    assert " gateway" in result.stdout


def test_another_shell(shell: CommandRunner) -> None:
    assert shell("completion", "tcsh").exit_code == 2


@pytest.mark.processes
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("gateway comp", "completion"),
        ("gateway key mi", "mint"),
        ("gateway key mint --na", "--name"),
    ],
)
def test_bash_completes(shell: CommandRunner, tmp_path: Path, words: str, expected: str) -> None:
    program = tmp_path / "gateway"
    program.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m gateway "$@"\n')
    program.chmod(0o755)
    (tmp_path / "completion").write_text(shell("completion", "bash").stdout)
    line = (
        f"source completion; COMP_WORDS=({words}); COMP_CWORD={len(words.split()) - 1}; "
        f"_gateway_completion {program}; echo ${{COMPREPLY[@]}}"
    )
    done = subprocess.run(
        ["bash", "-c", line], cwd=tmp_path, capture_output=True, text=True, timeout=30
    )
    assert done.stdout.split() == [expected], done.stderr
