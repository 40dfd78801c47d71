"""`gateway check`: output, exit codes and errors."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import orjson
import pytest
from click.testing import CliRunner, Result

import gateway
from gateway.cli import COMMANDS, main

RIGHT = """\
channels:
  - name: messages-main
    format: messages
    base_url: http://[::1]:9000
    models: {alpha-opus-4-8: big}
    accounts: [{name: a1, key: "${MESSAGES_KEY}"}]
"""
WRONG = RIGHT.replace("9000", "9000/v1").replace("alpha-opus-4-8", "alpha-opus-4-9")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "channels.yaml"


def check(*arguments: str | Path, **env: str) -> Result:
    return CliRunner().invoke(
        main, ["check", *map(str, arguments)], env={"GATEWAY_STATE_DIR": "var", **env}
    )


def test_a_valid_file(file: Path) -> None:
    file.write_text(RIGHT)
    result = check("--config", file, MESSAGES_KEY="secret-7f3a9c", COLUMNS="200")
    assert result.exit_code == 0
    assert result.stdout.startswith(f"{file}: ok (channels: 1, models: 9, state in var)\n")
    for text in ("messages-main", "http://[::1]:9000", "alpha-opus-4-8", "1"):
        assert text in result.stdout
    assert "secret-7f3a9c" not in result.output


def test_every_error_on_stderr(file: Path) -> None:
    file.write_text(WRONG)
    result = check("--config", file)
    assert result.exit_code == 78
    assert result.stdout == ""
    assert result.stderr.splitlines() == [
        f"{file}:4: channels[0].base_url: must not end in /v1: "
        "in this format the path /v1/messages is appended",
        f"{file}:5: channels[0].models.alpha-opus-4-9: no such model; did you mean alpha-opus-4-8?",
        f"{file}:6: channels[0].accounts[0].key: the environment variable MESSAGES_KEY is not set",
    ]


def test_no_channels_is_a_warning(file: Path) -> None:
    file.write_text("channels: []\n")
    result = check("--config", file)
    assert result.exit_code == 0
    assert result.stderr.startswith(f"{file}: warning: No channels")


def test_the_file_of_the_environment(file: Path) -> None:
    file.write_text("")
    assert check(GATEWAY_CONFIG=str(file)).exit_code == 0
    assert check(GATEWAY_CONFIG=f"{file}.gone").exit_code == 78


def test_json_of_a_valid_file(file: Path) -> None:
    file.write_text(RIGHT)
    result = check("--config", file, "--json", MESSAGES_KEY="k")
    assert orjson.loads(result.stdout) == {
        "ok": True,
        "file": str(file),
        "state_dir": "var",
        "models": 9,
        "channels": [
            {
                "name": "messages-main",
                "format": "messages",
                "base_url": "http://[::1]:9000",
                "models": ["alpha-opus-4-8"],
                "accounts": 1,
            }
        ],
        "warnings": [],
    }


def test_json_of_an_invalid_file(file: Path) -> None:
    file.write_text("server: {prot: 1}")
    result = check("--config", file, "--json")
    assert result.exit_code == 78
    assert orjson.loads(result.stdout) == {
        "ok": False,
        "mistakes": [
            {
                "path": "server.prot",
                "file": str(file),
                "line": 1,
                "text": "unknown key; did you mean port?",
                "column": 0,
            }
        ],
    }


def test_the_schema_needs_no_file() -> None:
    result = check("--schema", GATEWAY_CONFIG="/nowhere")
    assert result.exit_code == 0
    assert "channels" in orjson.loads(result.stdout)["properties"]


def test_every_listed_command_exists() -> None:
    listed = CliRunner().invoke(main, ["--help"])
    assert listed.exit_code == 0
    for name in COMMANDS:
        assert f"  {name} " in listed.stdout
        assert CliRunner().invoke(main, [name, "--help"]).exit_code == 0


def test_an_unknown_command_is_wrong_usage() -> None:
    assert CliRunner().invoke(main, ["chekc"]).exit_code == 2


def test_the_help_imports_no_command() -> None:
    code = (
        "import sys; from gateway.cli import main; main(['--help'], standalone_mode=False); "
        "sys.exit(any(name in sys.modules for name in ('pydantic', 'aiohttp', 'rich')))"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=30).returncode == 0


def test_only_imports_are_excluded_from_garbage_collection() -> None:
    code = (
        "import gc; from gateway.cli import main; "
        "call = lambda: main(['check', '--schema'], standalone_mode=False); "
        "call(); frozen, later = gc.get_freeze_count(), [[] for _ in range(10_000)]; "
        "call(); raise SystemExit(not 0 < gc.get_freeze_count() <= frozen)"
    )
    done = subprocess.run([sys.executable, "-c", code], timeout=30, stdout=subprocess.DEVNULL)
    assert done.returncode == 0


def test_python_m_gateway() -> None:
    command = [sys.executable, "-m", "gateway", "--version"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    commit = gateway.commit()
    assert result.stdout == f"gateway {gateway.__version__}" + (
        f" ({commit})\n" if commit else "\n"
    )


@pytest.mark.parametrize(
    ("command", "suggestion"),
    [
        (["lgs"], "logs"),
        (["key", "shw"], "show"),
        (["key", "create", "alice"], "mint"),
        (["key", "delete", "alice"], "revoke"),
        (["group", "create", "team"], "add"),
        (["group", "update", "team"], "set"),
        (["account", "ls"], "list"),
    ],
)
def test_the_nearest_command_is_suggested(command: list[str], suggestion: str) -> None:
    result = CliRunner().invoke(main, command)
    assert result.exit_code == 2
    assert f"Did you mean {suggestion!r}?" in result.output
