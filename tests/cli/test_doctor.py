"""`gateway doctor` with and without a running gateway."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml
from click.testing import CliRunner

from gateway.cli import main
from gateway.core.formats import Format
from tests.cli.cli_runner import CommandRunner
from tests.cli.running_gateway import GatewayProcess, running_gateway
from tests.resilience.chaos import process as processes
from tests.resilience.faults.upstream import FaultUpstream
from tests.support.gateway import ALPHA, BETA, UPSTREAM_MODEL

GOOD, BAD = "good-secret-4471", "bad-secret-4472"


def channels(upstream: FaultUpstream) -> list[dict[str, Any]]:
    return [
        {
            "name": f"{format}-up",
            "format": format.value,
            "base_url": upstream.base_url(format),
            "models": {ALPHA: UPSTREAM_MODEL, BETA: UPSTREAM_MODEL},
            "accounts": [{"name": "good", "key": GOOD}, {"name": "bad", "key": BAD}],
        }
        for format in (Format.CHAT, Format.MESSAGES)
    ]


@pytest.fixture
def gateway(shell: CommandRunner) -> Iterator[GatewayProcess]:
    with running_gateway(shell.state_dir, channels) as gateway:
        yield gateway


def write_config(tmp_path: Path, gateway: GatewayProcess, **server: Any) -> Path:
    port = int(gateway.running.address.rpartition(":")[2])
    models = [{"id": id, "family": id.partition("-")[0], "multiplier": 1.0} for id in (ALPHA, BETA)]
    file = tmp_path / "channels.yaml"
    file.touch(mode=0o600)
    file.write_text(
        yaml.safe_dump(
            {
                "server": {"port": port} | server,
                "models": models,
                "channels": channels(gateway.upstream),
            }
        )
    )
    return file


def by_subject(report: dict[str, Any], area: str) -> dict[str, dict[str, Any]]:
    return {each["subject"]: each for each in report["findings"] if each["area"] == area}


def test_a_running_gateway_has_no_problem(
    shell: CommandRunner, gateway: GatewayProcess, tmp_path: Path
) -> None:
    file = write_config(tmp_path, gateway)
    result = shell("doctor", "--config", str(file))
    assert result.exit_code == 0, result.output
    assert "0 problems" in result.output
    for word in ("the gateway answers", "requests are served", "chat-up/good", "healthy"):
        assert word in result.output
    assert GOOD not in result.output
    assert gateway.upstream.requests == []
    report = shell.json("doctor", "--config", str(file))
    assert report["ok"] is True
    assert {each["area"] for each in report["findings"]} == {
        *("configuration", "files", "database", "network", "process", "clock", "versions"),
        *("channels", "accounts"),
    }


def test_what_to_do_is_said_of_all_that_is_not_ok(
    shell: CommandRunner, gateway: GatewayProcess, tmp_path: Path
) -> None:
    shell("account", "disable", "chat-up/bad")
    (shell.state_dir / "gateway.db").chmod(0o644)
    result = shell("doctor", "--config", str(write_config(tmp_path, gateway)))
    assert result.exit_code == 1
    _, _, todo = result.output.partition("What to do:")
    assert "gateway account enable chat-up/bad" in todo
    assert f"chmod 600 {shell.state_dir}/gateway.db" in todo


def test_probes_through_the_running_gateway(
    shell: CommandRunner, gateway: GatewayProcess, tmp_path: Path
) -> None:
    gateway.upstream.set_plan("refuse:401", key=BAD)
    file = write_config(tmp_path, gateway)
    result = shell("doctor", "--probe", "--config", str(file))
    assert result.exit_code == 1
    assert "replied within" in result.output
    assert "replace the credential, then: gateway reload" in result.output
    assert BAD not in result.output
    assert len([call for call in gateway.upstream.requests if call.key == GOOD]) == 2


def test_probes_without_a_running_gateway(
    shell: CommandRunner, gateway: GatewayProcess, tmp_path: Path
) -> None:
    gateway.upstream.set_plan("refuse:401", key=BAD)
    file = write_config(tmp_path, gateway, port=0)
    other = tmp_path / "other"
    result = shell("doctor", "--probe", "--config", str(file), "--state-dir", str(other), "--json")
    assert result.exit_code == 1
    report = orjson.loads(result.stdout)
    probes = by_subject(report, "probe")
    assert {name: each["state"] for name, each in probes.items()} == {
        "chat-up/good": "ok",
        "chat-up/bad": "problem",
        "messages-up/good": "ok",
        "messages-up/bad": "problem",
    }
    assert by_subject(report, "process")["gateway"]["state"] == "warning"
    assert not other.exists()


@pytest.mark.processes
def test_a_gateway_that_hangs_is_one_problem(tmp_path: Path) -> None:
    """Not also one that does not run, nor another program at its port."""
    own = processes.write_config(tmp_path)
    with processes.GatewayProcess(tmp_path, "--config", own) as gateway:
        port = int(gateway.address().rpartition(":")[2])
        file = processes.write_config(tmp_path, port=port)
        gateway.signal(signal.SIGSTOP)
        result = CliRunner().invoke(main, ["doctor", "--config", str(file), "--json"])
    report = orjson.loads(result.stdout)
    problems = [each for each in report["findings"] if each["state"] == "problem"]
    assert [each["subject"] for each in problems] == ["gateway"]
    assert f"process {gateway.pid} holds" in problems[0]["text"]
    assert "systemctl restart gateway" in problems[0]["remedy"]
    assert "does not run" not in result.stdout
    assert "open files" in by_subject(report, "process")


def test_without_a_configuration(shell: CommandRunner) -> None:
    result = shell("doctor")
    assert result.exit_code == 1
    assert "no configuration file" in result.output


def test_secrets_that_cannot_be_read_are_named(
    shell: CommandRunner, gateway: GatewayProcess, tmp_path: Path
) -> None:
    file = write_config(tmp_path, gateway)
    file.write_text(file.read_text().replace(GOOD, "${NOT_SET}"))
    result = shell("doctor", "--config", str(file), "--state-dir", str(tmp_path / "x"), "--probe")
    assert result.exit_code == 1
    assert "NOT_SET is not set" in result.output
    assert "not probed, as secrets are missing" in result.output
    assert all(call.method == "HEAD" for call in gateway.upstream.requests)


def test_a_client_is_replayed_through_the_running_gateway(
    shell: CommandRunner, gateway: GatewayProcess
) -> None:
    address = gateway.running.address
    result = shell(
        "doctor", "--client", "aider", "--base-url", f"{address}/v1", "--model", BETA, "--yes"
    )
    assert "error: invalid key" in result.stdout
    assert "messages-up" in result.stdout
    assert "is the first candidate of none" in result.stdout
    keys = [key for key in shell.items("key", "list") if key["name"] == "doctor"]
    assert [key["state"] for key in keys] == ["revoked"]


def test_a_client_is_replayed_with_a_key_of_a_file(
    shell: CommandRunner, gateway: GatewayProcess, tmp_path: Path
) -> None:
    file = tmp_path / "key"
    file.write_text(f"{gateway.running.key}\n")
    command = ("doctor", "--client", "aider", "--base-url", gateway.running.address, "--yes")
    report = orjson.loads(shell(*command, "--key-file", str(file), "--json").stdout)
    assert {each["step"] for each in report["steps"]} >= {"streamed", "error: invalid key"}
    assert gateway.running.key not in str(report)
    file.write_text("sk-not-a-key")
    result = shell(*command, "--key-file", str(file))
    assert result.exit_code == 1
    assert "401" in result.output


def test_what_cannot_be_replayed_is_said(
    shell: CommandRunner, gateway: GatewayProcess, tmp_path: Path
) -> None:
    address = gateway.running.address
    command = ("doctor", "--client", "aider", "--yes")
    missing = shell(*command, "--base-url", address, "--channel", "nowhere")
    assert "There is no channel nowhere; there are chat-up, messages-up." in missing.output
    unreachable = shell(*command, "--base-url", "http://127.0.0.1:9", "--channel", "chat-up")
    assert "cannot be reached" in unreachable.output
    other = ("--state-dir", str(tmp_path / "none"), "--base-url", address)
    keyless = shell(*command, *other)
    assert "A key is needed" in keyless.output
    assert {each.exit_code for each in (missing, unreachable, keyless)} == {1}
