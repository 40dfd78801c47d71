"""The configuration file and the credentials of its accounts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from gateway.doctor.configuration import check_channels, check_configuration, secret_files
from gateway.doctor.findings import Finding, State

SECRET = "upstream-secret-4471"


def write(tmp_path: Path, base_url: str = "https://chat.example/v1", **changes: Any) -> Path:
    channel = {
        "name": "chat-main",
        "format": "chat",
        "base_url": base_url,
        "models": ["beta-5.4"],
        "accounts": [{"name": "a1", "key": "${CHAT_KEY}"}],
    } | changes
    file = tmp_path / "channels.yaml"
    server = {"port": 8080, "public_url": "https://gateway.example"}
    models = [{"id": "beta-5.4", "family": "beta", "multiplier": 1}]
    file.write_text(yaml.safe_dump({"server": server, "models": models, "channels": [channel]}))
    return file


def channel_findings(file: Path, *, running: bool = False, **env: str) -> dict[str, Finding]:
    config, findings = check_configuration(file, None, env)
    assert config is not None, findings
    return {each.subject: each for each in check_channels(file, config, running=running, env=env)}


def test_a_missing_file_is_a_problem() -> None:
    config, (finding,) = check_configuration(None, None, {})
    assert config is None
    assert finding.state is State.PROBLEM
    assert "--config" in (finding.remedy or "")


def test_each_error_of_the_file_is_a_finding_with_its_line(tmp_path: Path) -> None:
    file = write(tmp_path, base_url="https://chat.example", weight=-1)
    config, findings = check_configuration(file, None, {})
    assert config is None
    texts = {each.text for each in findings}
    assert {each.state for each in findings} == {State.PROBLEM}
    assert any("base_url: must have a path, as a rule /v1" in text for text in texts)
    assert any("weight" in text for text in texts)
    assert all(each.subject.startswith(f"{file}:") for each in findings)


def test_credentials(tmp_path: Path) -> None:
    accounts = [
        {"name": "a1", "key": "${CHAT_KEY}"},
        {"name": "a2", "key": "${CHAT_KEY}"},
        {"name": "a3", "key": "${NOT_SET}"},
        {"name": "a4", "key": f"file:{tmp_path}/absent"},
    ]
    file = write(tmp_path, accounts=accounts)
    found = channel_findings(file, CHAT_KEY=SECRET)
    assert found["chat-main"].state is State.OK
    assert found["chat-main/a1"].state is State.OK
    assert found["chat-main/a2"].state is State.WARNING
    assert "same credential as a1" in found["chat-main/a2"].text
    assert found["chat-main/a3"].state is State.PROBLEM
    assert "NOT_SET is not set" in found["chat-main/a3"].text
    assert "No such file" in found["chat-main/a4"].text
    assert SECRET not in repr(found)


def test_what_is_missing_here_may_be_known_to_the_running_gateway(tmp_path: Path) -> None:
    found = channel_findings(write(tmp_path), running=True)
    assert found["chat-main/a1"].state is State.WARNING


@pytest.mark.parametrize(
    ("base_url", "state", "text"),
    [
        ("https://chat.example/v1", State.OK, "1 models"),
        ("http://127.0.0.1:8080/v1", State.PROBLEM, "the gateway's own address"),
        ("https://gateway.example/v1", State.WARNING, "in a circle"),
        ("https://chat.example/v1/v1", State.PROBLEM, "the path /v1/v1"),
        ("http://chat.example/v1", State.WARNING, "unencrypted"),
        ("http://127.0.0.1:9000/v1", State.OK, "1 models"),
    ],
)
def test_addresses(tmp_path: Path, base_url: str, state: State, text: str) -> None:
    finding = channel_findings(write(tmp_path, base_url), CHAT_KEY=SECRET)["chat-main"]
    assert (finding.state, text in finding.text) == (state, True)


def test_files_of_secrets_are_named(tmp_path: Path) -> None:
    accounts = [{"name": "a1", "key": "file:/run/key"}, {"name": "a2", "key": "${CHAT_KEY}"}]
    config, _ = check_configuration(write(tmp_path, accounts=accounts), None, {})
    assert config is not None
    assert list(secret_files(config)) == [Path("/run/key")]


def test_secrets_elsewhere_in_the_file_are_resolved_too(tmp_path: Path) -> None:
    file = write(tmp_path, headers={"x-api-token": "${TOKEN_NOT_SET}"})
    finding = channel_findings(file, CHAT_KEY=SECRET)["channels[0].headers.x-api-token"]
    assert finding.state is State.PROBLEM
    assert "TOKEN_NOT_SET is not set" in finding.text


def test_a_literal_key_in_a_file_that_others_can_read(tmp_path: Path) -> None:
    file = write(tmp_path, accounts=[{"name": "a1", "key": SECRET}])
    file.chmod(0o644)
    found = channel_findings(file)
    assert "only its owner can read" in found["chat-main/a1"].text
    assert SECRET not in repr(found)
    file.chmod(0o600)
    assert channel_findings(file)["chat-main/a1"].state is State.OK


def test_accounts_without_a_key_share_no_credential(tmp_path: Path) -> None:
    """The second one was told to have the credential of the first."""
    accounts = [{"name": "a1", "key": "none"}, {"name": "a2", "key": "none"}]
    found = channel_findings(write(tmp_path, accounts=accounts))
    for name in ("chat-main/a1", "chat-main/a2"):
        assert (found[name].state, found[name].text) == (State.OK, "needs no credential")
