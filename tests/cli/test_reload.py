"""`gateway reload`: output and exit codes; SIGHUP."""

from __future__ import annotations

import signal
import urllib.request
from pathlib import Path

import orjson
import pytest

from tests.admin.config_follower import write
from tests.cli.cli_runner import AdminGateway, CommandRunner
from tests.resilience.chaos.process import GatewayProcess, write_config
from tests.support.gateway import channels


def write_channels(folder: Path, *accounts: str, **server: object) -> Path:
    """The configuration with these accounts on each channel."""
    named = [{"name": name, "key": f"secret-of-{name}"} for name in accounts]
    state = {"state_dir": str(folder / "state"), "server": {"port": 0} | server}
    line = channels("http://127.0.0.1:1", accounts=named)
    write(folder / "channels.yaml", orjson.dumps(state | {"channels": line}))
    return folder / "channels.yaml"


def ready(gateway: GatewayProcess) -> dict[str, object]:
    with urllib.request.urlopen(f"{gateway.address()}/readyz", timeout=5) as answer:
        config: dict[str, object] = orjson.loads(answer.read())["config"]
        return config


@pytest.mark.processes
def test_every_way_to_reload(shell: CommandRunner, tmp_path: Path) -> None:
    file = write_channels(tmp_path, "one")
    where = ("--config", str(file), "--state-dir", str(tmp_path / "state"))
    with GatewayProcess(tmp_path, "--config", file) as gateway:
        first = ready(gateway)

        write_channels(tmp_path, "two", port=1)
        result = shell("reload", *where)
        assert (result.exit_code, result.stdout) == (0, "")
        (warning, in_force, added, removed) = result.stderr.splitlines()
        assert warning == "Warning: server.port stays unchanged until a restart."
        assert in_force == f"{file}: configuration {ready(gateway)['hash']} is active."
        assert added == (
            "Added: account chat-main/two, account messages-main/two, account responses-main/two."
        )
        assert removed.startswith("Removed: account chat-main/one, ")
        assert ready(gateway)["hash"] != first["hash"]

        write(file, "channels: 7\nserver: {key: sk-4471}\n")
        result = shell("reload", *where)
        assert (result.exit_code, result.stdout) == (78, "")
        assert result.stderr.splitlines() == [
            f"{file}:1: channels: must be a list",
            f"{file}:2: server.key: unknown key",
        ]
        result = shell("reload", *where, "--json")
        assert result.exit_code == 78
        assert orjson.loads(result.stdout)["ok"] is False
        assert ready(gateway)["error"] == "channels.yaml:1: 2 errors, see the process log"

        write_channels(tmp_path, "one")
        answer = shell.json("reload", *where)
        assert (answer["ok"], answer["hash"], answer["file"]) == (True, first["hash"], str(file))
        assert answer["changes"]["added"][0] == "account chat-main/one"
        assert answer["warnings"] == []
        assert "No changes." in shell("reload", *where).stderr

        write_channels(tmp_path, "three")
        gateway.signal(signal.SIGHUP)
        gateway.wait_for_output(r"configuration \w+ is active: added account chat-main/three")
        gateway.signal(signal.SIGTERM)
        assert gateway.wait() == 0
    assert "secret-of" not in gateway.stderr + result.output


@pytest.mark.processes
def test_options_of_serve_still_take_precedence(tmp_path: Path) -> None:
    file = write_config(tmp_path, "http://127.0.0.1:1")
    state = tmp_path / "named"
    arguments = ("--config", file, "--port", "0", "--state-dir", state)
    with GatewayProcess(tmp_path, *arguments) as gateway:
        gateway.address()
        write_config(tmp_path, "http://127.0.0.1:1", port=7, commit_after=2)
        gateway.signal(signal.SIGHUP)
        gateway.wait_for_output(r"is active: changed server\n")
        assert "until the gateway is started again" not in gateway.stderr


def test_no_gateway_runs(shell: CommandRunner) -> None:
    shell.create_key("alice")
    result = shell("reload")
    assert result.exit_code == 69
    assert f"No gateway runs on the state directory {shell.state_dir}." in result.stderr


def test_a_gateway_without_a_file(shell: CommandRunner, gateway: AdminGateway) -> None:
    result = shell("reload")
    assert result.exit_code == 1
    assert "No gateway with a configuration file is running." in result.stderr
