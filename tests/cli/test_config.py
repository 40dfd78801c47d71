"""`gateway config`: the effective configuration, and the way back to an earlier file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import orjson
import pytest
from click.testing import Result

from gateway.admin.reload import ConfigSource
from gateway.config.load import load_config
from gateway.daemon import run_daemon
from tests.cli.cli_runner import CommandRunner
from tests.support.loop_thread import run_in_thread

SECRETS = ("first-secret-1", "second-secret-2")


def text_of(shell: CommandRunner, account: str, secret: str) -> str:
    return f"""\
# kept by the operator
state_dir: {shell.state_dir}
server: {{port: 0}}
channels:
  - name: chat-main
    format: chat
    base_url: http://127.0.0.1:1/v1
    models: [beta-5.4]
    accounts:
      - {{name: {account}, key: {secret}}}
"""


@pytest.fixture
def file(shell: CommandRunner, tmp_path: Path) -> Path:
    file = tmp_path / "own.yaml"
    file.touch(mode=0o640)
    file.chmod(0o600)
    file.write_text(text_of(shell, "one", SECRETS[0]))
    return file


@contextmanager
def gateway(file: Path) -> Iterator[None]:
    source = ConfigSource(file, lambda: load_config(file), poll_interval=60)
    with run_in_thread(run_daemon(source.read(), source)):
        yield


def without_secrets(result: Result) -> str:
    assert [each for each in SECRETS if each in result.output] == []
    return result.output


def test_a_change_is_seen_compared_and_taken_back(shell: CommandRunner, file: Path) -> None:
    with gateway(file):
        before = file.read_text()
        file.write_text(text_of(shell, "two", SECRETS[1]))
        assert shell("reload").exit_code == 0
        rows = without_secrets(shell("config", "history")).splitlines()
        assert "added account chat-main/two; removed account chat-main/one" in rows[1]
        assert "start" in rows[2]

        lines = without_secrets(shell("config", "diff", "1")).splitlines()
        assert lines[:2] == ["--- snapshot 1", f"+++ {file}"]
        assert lines[-2:] == [
            "-      - {name: one, key: <secret 1>}",
            "+      - {name: two, key: <secret 2>}",
        ]
        assert "are the same" in shell("config", "diff").stderr

        file.write_text("broken: [")
        answer = shell.json("config", "rollback", "1")
        assert (answer["number"], answer["reload"]["ok"]) == (1, True)
        assert file.read_text() == before
        assert file.stat().st_mode & 0o777 == 0o600
        items = shell.json("config", "history")["items"]
        assert [(each["cause"], each["same_as"]) for each in items] == [
            *(("reload", 1), ("found", None), ("reload", None), ("start", None))
        ]


def test_the_effective_configuration_is_that_of_the_gateway(
    shell: CommandRunner, file: Path
) -> None:
    with gateway(file):
        file.write_text("channels: 7\n")
        shown = without_secrets(shell("config", "show"))
        assert "base_url: http://127.0.0.1:1/v1" in shown
        assert "drain_timeout" not in shown
        assert "drain_timeout: 30" in shell("config", "show", "--all").output
        answer = shell.json("config", "show")
        assert answer["file"] == str(file)
        assert answer["config"]["channels"][0]["accounts"][0]["name"] == "one"
    result = shell("config", "show")
    assert result.exit_code == 69
    assert "To use a file instead: --config FILE" in result.stderr


def test_without_a_gateway_the_file_is_changed_for_the_next_start(
    shell: CommandRunner, file: Path
) -> None:
    with gateway(file):
        pass
    before = file.read_text()
    file.write_text(text_of(shell, "two", SECRETS[1]))
    assert "name: two" in without_secrets(shell("config", "show", "--config", str(file)))
    result = shell("config", "rollback", "1")
    assert "No gateway runs: the next start uses it." in without_secrets(result)
    assert file.read_text() == before


def test_a_file_that_the_gateway_refuses_is_put_back(
    shell: CommandRunner, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OLD_KEY", "old-key-1234")
    file.write_text(text_of(shell, "one", '"${OLD_KEY}"'))
    with gateway(file):
        file.write_text(text_of(shell, "two", SECRETS[1]))
        assert shell("reload").exit_code == 0
        now = file.read_text()
        monkeypatch.delenv("OLD_KEY")
        result = shell("config", "rollback", "1")
        assert result.exit_code == 78
        assert "the environment variable OLD_KEY is not set" in result.stderr
        assert file.read_text() == now


def test_what_is_missing_is_said(shell: CommandRunner, file: Path) -> None:
    assert "There are no snapshots in" in shell("config", "diff").stderr
    with gateway(file):
        for command in ("diff", "rollback"):
            result = shell("config", command, "7")
            assert result.exit_code == 1
            assert "no undamaged snapshot 7" in result.stderr
        result = shell("config", "rollback", "7", "--json")
        error = orjson.loads(result.stdout)["error"]
        assert error["exit_code"] == result.exit_code == 1
        assert "no undamaged snapshot 7" in error["message"]


def test_a_file_that_cannot_be_written_stays(shell: CommandRunner, file: Path) -> None:
    with gateway(file):
        pass
    elsewhere = file.parent / "gone"
    result = shell("config", "rollback", "1", "--config", str(elsewhere / "channels.yaml"))
    assert result.exit_code == 78
    assert "cannot be read" in result.stderr
