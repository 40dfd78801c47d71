"""`gateway doctor --client` against the simulator in three formats, and against planted faults."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml

from gateway.core.formats import Format
from gateway.doctor.clients.profile import CLIENTS, load_profile
from tests.cli.cli_runner import CommandRunner
from tests.cli.planted_faults import (
    Fault,
    IgnoresCompactions,
    IgnoresTools,
    NeverStreams,
    RefusesForeign,
    Rejects,
    WithoutFrames,
    planted,
)
from tests.support.gateway import ALPHA, BETA, UPSTREAM_MODEL

KEY = "upstream-secret-4471"


def write_config(folder: Path, address: str, *formats: Format, **changes: Any) -> Path:
    file = folder / "channels.yaml"
    file.touch(mode=0o600)
    channels = [
        {
            "name": f"{format}-up",
            "format": format.value,
            "base_url": address if format is Format.MESSAGES else f"{address}/v1",
            "models": {ALPHA: UPSTREAM_MODEL, BETA: UPSTREAM_MODEL},
            "accounts": [{"name": "a1", "key": KEY}],
            **deepcopy(changes),  # no anchors
        }
        for format in formats or Format
    ]
    file.write_text(yaml.safe_dump({"channels": channels}))
    return file


def replay(
    shell: CommandRunner, file: Path, client: str, *options: str
) -> tuple[int, dict[str, Any]]:
    command = ("doctor", "--config", str(file), "--client", client, "--isolated", "--yes")
    result = shell(*command, "--json", *options)
    assert KEY not in result.output
    report: dict[str, Any] = orjson.loads(result.stdout)
    return result.exit_code, report


def faults(report: dict[str, Any]) -> dict[str, list[str]]:
    return {
        f"{','.join(step['channels'])} {step['step']}".strip(): [
            f"{fault['text']} -> {fault['remedy']}" for fault in step["faults"]
        ]
        for step in report["steps"]
        if step["faults"]
    }


@pytest.mark.parametrize("client", CLIENTS)
def test_the_simulator_satisfies_every_client(
    shell: CommandRunner, tmp_path: Path, client: str
) -> None:
    with planted(Fault(), tmp_path / "upstream") as address:
        file = write_config(tmp_path, address, traits={"compaction": False})
        code, report = replay(shell, file, client, "--model", BETA)
    assert (code, faults(report)) == (0, {})
    profile = load_profile(client)
    steps = [each for each in report["steps"] if each["model"]]
    assert len(steps) == 3 * len(profile.steps)
    assert {each["channels"][0] for each in steps if each["channels"]} == {
        "chat-up",
        "messages-up",
        "responses-up",
    }
    sent = sum(len(each["requests"]) for each in steps)
    assert sent == 3 * profile.cost(1)[0] - 3 * sum(len(step.requests) for step in profile.once)


def test_an_upstream_that_does_not_compact_is_no_fault(
    shell: CommandRunner, tmp_path: Path
) -> None:
    with planted(IgnoresCompactions(), tmp_path / "upstream") as address:
        file = write_config(tmp_path, address, Format.RESPONSES)
        code, report = replay(shell, file, "codex")
    assert (code, faults(report)) == (0, {})
    (step,) = [each for each in report["steps"] if each["step"] == "compaction by the server"]
    assert "the upstream has not compacted the conversation" in str(step["notes"])


REFUSALS = {
    "claude-code": (
        {
            "ZG9jdG9y": "messages.2.content.0: Invalid `signature` in `thinking` block",
            "gateway-doctor": "Unexpected value(s) `gateway-doctor-2020-01-01` for the"
            " `anthropic-beta` header.",
        },
        Format.MESSAGES,
        {"another account", "refused beta"},
    ),
    "codex": (
        {
            "ZG9jdG9y": "The encrypted content ZG9j... could not be verified.",
            "gateway-doctor": "Unknown parameter: 'gateway_doctor'.",
        },
        Format.RESPONSES,
        {"another account", "refused field"},
    ),
}


@pytest.mark.parametrize("client", REFUSALS)
@pytest.mark.parametrize("known", [True, False])
def test_refused_proofs_and_betas(
    shell: CommandRunner, tmp_path: Path, client: str, known: bool
) -> None:
    """What the gateway hides is no fault; words that it does not know are."""
    messages, format, steps = REFUSALS[client]
    if not known:
        messages = dict.fromkeys(messages, "Something is wrong with this request.")
    with planted(RefusesForeign(**messages), tmp_path / "upstream") as address:
        file = write_config(tmp_path, address, format, traits={"compaction": False})
        code, report = replay(shell, file, client)
    found = faults(report)
    assert code == (0 if known else 1)
    assert set(found) == (set() if known else {f"{format}-up {step}" for step in steps})
    assert all("does not know these words" in texts[0] for texts in found.values())


@pytest.mark.parametrize("client", ["claude-code", "openai"])
def test_a_refused_credential_is_named(shell: CommandRunner, tmp_path: Path, client: str) -> None:
    with planted(Rejects(401, "invalid api key"), tmp_path / "upstream") as address:
        file = write_config(tmp_path, address, Format.MESSAGES)
        code, report = replay(shell, file, client)
    assert code == 1
    texts = str(faults(report))
    assert "[messages-up/a1: 401" in texts
    assert "s credential; then probe it" in texts


def test_a_lost_message_delta_is_named(shell: CommandRunner, tmp_path: Path) -> None:
    with planted(WithoutFrames(b"message_delta"), tmp_path / "upstream") as address:
        file = write_config(tmp_path, address, Format.MESSAGES)
        code, report = replay(shell, file, "claude-code")
    assert code == 1
    assert "message_delta" in str(faults(report)["messages-up streamed"])


def test_rejected_thinking_is_named(shell: CommandRunner, tmp_path: Path) -> None:
    fault = Rejects(400, "thinking: this model does not support thinking", "thinking")
    with planted(fault, tmp_path / "upstream") as address:
        file = write_config(tmp_path, address, Format.MESSAGES)
        code, report = replay(shell, file, "claude-code")
    assert code == 1
    steps = {"messages-up thinking", "messages-up agent turn", "messages-up another account"}
    assert set(faults(report)) == steps
    (text,) = faults(report)["messages-up thinking"]
    assert "thinking {type: adaptive}" in text
    assert "traits: {thinking: budget | adaptive | none" in text


@pytest.mark.parametrize("client", ["claude-code", "codex", "opencode", "anthropic"])
def test_missing_tools_are_named(shell: CommandRunner, tmp_path: Path, client: str) -> None:
    with planted(IgnoresTools(), tmp_path / "upstream") as address:
        file = write_config(tmp_path, address, load_profile(client).format)
        code, report = replay(shell, file, client)
    assert code == 1
    texts = str(faults(report))
    assert "the model did not call the tool" in texts
    assert "use another model" in texts


def test_rejected_tools_are_named(shell: CommandRunner, tmp_path: Path) -> None:
    with planted(
        Rejects(400, "tools are not supported", "tools"), tmp_path / "upstream"
    ) as address:
        file = write_config(tmp_path, address, Format.CHAT)
        code, report = replay(shell, file, "opencode")
    assert code == 1
    assert "the upstream has no tools" in str(faults(report)["chat-up agent turn"])


@pytest.mark.parametrize(
    ("format", "client"), [(Format.CHAT, "opencode"), (Format.MESSAGES, "claude-code")]
)
def test_an_upstream_that_never_streams_is_named(
    shell: CommandRunner, tmp_path: Path, format: Format, client: str
) -> None:
    with planted(NeverStreams(), tmp_path / "upstream") as address:
        file = write_config(tmp_path, address, format)
        code, report = replay(shell, file, client)
    assert code == 0
    assert "came in one piece" in str(faults(report))


def test_lost_items_are_named(shell: CommandRunner, tmp_path: Path) -> None:
    with planted(WithoutFrames(b"response.output_item.done"), tmp_path / "upstream") as address:
        file = write_config(tmp_path, address, Format.RESPONSES)
        code, report = replay(shell, file, "codex")
    assert code == 1
    assert "output_item.done missing" in str(faults(report)["responses-up streamed"])


def test_the_remedy_for_lost_events_helps(shell: CommandRunner, tmp_path: Path) -> None:
    with planted(
        WithoutFrames(b"message_delta", b"content_block_stop"), tmp_path / "upstream"
    ) as address:
        file = write_config(tmp_path, address, Format.MESSAGES, lane="translated")
        _, report = replay(shell, file, "claude-code")
    assert not any("missing" in text for texts in faults(report).values() for text in texts)


def test_output_for_people(shell: CommandRunner, tmp_path: Path) -> None:
    with planted(
        Rejects(400, "tools are not supported", "tools"), tmp_path / "upstream"
    ) as address:
        file = write_config(tmp_path, address, Format.CHAT)
        command = ("doctor", "--config", str(file), "--client", "opencode", "--isolated")
        result = shell(*command, "--yes")
        unanswered = shell(*command)
    assert result.exit_code == 1
    assert "6 real requests" in result.stderr
    assert "opencode does not work" in result.stdout
    assert result.stdout.count("the upstream has no tools") == 1
    assert "Send them?" in unanswered.stderr
    assert unanswered.exit_code == 1
    assert "State" not in unanswered.stdout
