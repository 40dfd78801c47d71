"""`gateway completion`: the scripts, and what bash completes with its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from gateway.admin.reload import ConfigSource
from gateway.cli import main
from gateway.config.load import load_config
from gateway.daemon import run_daemon
from tests.cli.cli_runner import CommandRunner
from tests.support.loop_thread import run_in_thread
from tests.support.paths import ROOT


@pytest.mark.parametrize("name", ["bash", "zsh", "fish"])
def test_a_script_calls_the_command(shell: CommandRunner, name: str) -> None:
    result = shell("completion", name)
    assert result.exit_code == 0
    assert f"_GATEWAY_COMPLETE={name}_complete" in result.stdout
    assert " gateway" in result.stdout


NAMES = {
    "gateway key show al": ["alice"],
    "gateway logs list --key al": ["alice"],
    "gateway logs list --channel=": ["chat-main"],
    "gateway key mint --group ": ["default"],
    "gateway group show de": ["default"],
    "gateway account reset chat": ["chat-main/one"],
    "gateway route --model beta-5.4-m": ["beta-5.4-mini"],
    "gateway admin remove a": [],
    "gateway admin token revoke al": [],
}


def test_names_are_those_of_the_gateway(shell: CommandRunner, tmp_path: Path) -> None:
    file = tmp_path / "own.yaml"
    file.write_text(
        f"state_dir: {shell.state_dir}\nserver: {{port: 0}}\nchannels: [{{name: chat-main,"
        " format: chat, base_url: http://127.0.0.1:1/v1, models: [beta-5.4],"
        " accounts: [{name: one, key: none}]}]\n"
    )
    source = ConfigSource(file, lambda: load_config(file), poll_interval=60)
    with run_in_thread(run_daemon(source.read(), source)):
        shell.create_key("alice")
        assert {words: complete(shell, words) for words in NAMES} == NAMES
    assert complete(shell, "gateway key show al") == [], "nothing is known without a gateway"


def complete(shell: CommandRunner, words: str) -> list[str]:
    """What bash gets for a line."""
    count = len(words.split()) - (not words.endswith(" "))
    environment = {"_GATEWAY_COMPLETE": "bash_complete", "COMP_WORDS": words}
    environment["COMP_CWORD"] = str(count)
    result = CliRunner().invoke(
        main, prog_name="gateway", env=shell.environ | environment, catch_exceptions=False
    )
    return [line.partition(",")[2] for line in result.stdout.split()]


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
