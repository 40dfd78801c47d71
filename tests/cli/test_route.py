"""`gateway route`, as operators and scripts see it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.core.formats import Format
from tests.cli.cli_runner import CommandRunner
from tests.cli.running_gateway import GatewayProcess, running_gateway
from tests.resilience.faults.upstream import FaultUpstream
from tests.support.gateway import ALPHA, BETA, UPSTREAM_MODEL

CONFIG = """\
state_dir: {state}
models:
  - {{id: beta-5.4, family: beta}}
  - {{id: beta-old, family: beta, lifecycle: retired}}
  - {{id: alpha-sonnet-4-6, family: alpha}}
families:
  alpha: {{endpoints: [messages]}}
channels:
  - name: chat-main
    format: chat
    base_url: http://127.0.0.1:9/v1
    models: [beta-5.4]
    accounts:
      - {{name: big, key: "${{NOT_SET}}", weight: 3}}
      - {{name: small, key: "${{NOT_SET}}"}}
      - {{name: later, key: "${{NOT_SET}}", priority: -1}}
  - name: messages-main
    format: messages
    base_url: http://127.0.0.1:9
    models: [alpha-sonnet-4-6]
    accounts:
      - {{name: main, key: "${{NOT_SET}}"}}
"""


def channels(upstream: FaultUpstream) -> list[dict[str, Any]]:
    accounts = [{"name": f"a{number}", "key": f"secret-key-{number}"} for number in range(4)]
    return [
        {
            "name": f"{format}-up",
            "format": format.value,
            "base_url": upstream.base_url(format),
            "models": {BETA: UPSTREAM_MODEL},
            "accounts": accounts if format is Format.CHAT else accounts[:1],
        }
        for format in (Format.CHAT, Format.MESSAGES)
    ]


@pytest.fixture
def gateway(shell: CommandRunner) -> Iterator[GatewayProcess]:
    with running_gateway(shell.state_dir, channels) as gateway:
        yield gateway


@pytest.fixture
def file(shell: CommandRunner, tmp_path: Path) -> str:
    path = tmp_path / "channels.yaml"
    path.write_text(CONFIG.format(state=shell.state_dir))
    return str(path)


def ask(model: str, format: str, *more: str) -> tuple[str, ...]:
    return ("route", "--model", model, "--format", format, *more)


def turns(told: dict[str, Any]) -> list[tuple[int | None, str]]:
    return [(stop["turn"], f"{stop['channel']}/{stop['account']}") for stop in told["candidates"]]


def test_the_order_of_the_running_gateway(shell: CommandRunner, gateway: GatewayProcess) -> None:
    told = shell.json(*ask(BETA, "chat", "--key", "tests"))
    assert (told["status"], told["model"], told["patterns"]) == (None, BETA, ["*"])
    assert told["decision"] == f"chat-up/a0 would be used, with {UPSTREAM_MODEL}."
    assert turns(told) == [
        (1, "chat-up/a0"),
        (2, "chat-up/a1"),
        (3, "chat-up/a2"),
        (4, "chat-up/a3"),
        (5, "messages-up/a0"),
    ]
    first, *_, last = told["candidates"]
    assert first["why"] == [
        "first: by weight",
        "native: same format (chat)",
        "gets 25% as one of 4 with rank 1",
    ]
    assert last["why"] == [
        "fallback: lower priority",
        "translated from chat to messages",
    ]
    assert gateway.upstream.calls == []


def test_who_is_closed_off_is_passed_over(shell: CommandRunner, gateway: GatewayProcess) -> None:
    shell("account", "disable", "chat-up/a0")
    told = shell.json(*ask(BETA, "chat", "--group", "default"))
    assert turns(told)[0] == (1, "chat-up/a1")
    assert turns(told)[-1] == (None, "chat-up/a0")
    assert told["candidates"][0]["why"][0] == "first: earlier candidates unavailable"
    assert told["candidates"][-1]["why"][0] == "skipped: disabled by hand"
    assert told["candidates"][-1]["state"] == "disabled"


def test_who_is_banned_is_passed_over_until(shell: CommandRunner, gateway: GatewayProcess) -> None:
    gateway.upstream.set_plan("refuse:401", key="secret-key-0")

    async def ask_it() -> None:
        for number in range(64):  # conversations, until one belongs to it
            turns = [{"role": "user", "content": f"Hello {number}"}]
            await gateway.running.post(Format.CHAT, messages=turns)
            if gateway.upstream.calls_of(key="secret-key-0"):
                return

    gateway.do(ask_it)
    told = shell.json(*ask(BETA, "chat"))
    assert turns(told)[-1] == (None, "chat-up/a0")
    why = told["candidates"][-1]["why"][0]
    assert why == "skipped: auth failed for another 30 min (key refused)"


def test_nobody_is_left(shell: CommandRunner, gateway: GatewayProcess) -> None:
    for name in ("chat-up/a0", "chat-up/a1", "chat-up/a2", "chat-up/a3", "messages-up/a0"):
        shell("account", "disable", name)
    result = shell(*ask(BETA, "chat"))
    assert result.exit_code == 1
    opening, *stops = result.stdout.splitlines()
    assert opening == (
        "No account would be used: all accounts with this model are unavailable or at capacity. "
        "The client would get 503: No available accounts"
    )
    assert any("disabled by hand" in line for line in stops)


def test_what_the_group_reaches_counts(shell: CommandRunner, gateway: GatewayProcess) -> None:
    shell("group", "add", "team", "--models", "alpha-*")
    minted = shell.mint("bob", group="team")
    result = shell(*ask(BETA, "chat", "--key", minted["id"]))
    assert result.exit_code == 1
    assert f"no pattern of the group matches {BETA}." in result.stdout
    assert "The client would get 503: model_not_found" in result.stdout
    assert f"chat-up: has {BETA}, which the group does not allow." in result.stdout
    result = shell(*ask(BETA, "responses", "--group", "team"))
    assert "The client would get 404: Invalid URL (POST /v1/responses)" in result.stdout
    shell("key", "set", "bob", "--probe", "--models", "alpha-x")
    result = shell(*ask(BETA, "chat", "--key", minted["id"]))
    assert ") is restricted to alpha-x; other models get a 403." in result.stderr
    assert ") is a health-check key: this request gets a 403." in result.stderr
    shell("key", "disable", "bob")
    assert "is disabled: its requests" in shell(*ask(BETA, "chat", "--key", "bob")).stderr
    shell("key", "revoke", "bob")
    result = shell(*ask(BETA, "chat", "--key", minted["id"]))
    assert result.exit_code == 1
    assert "is revoked: its requests get a 401." in result.stderr


@pytest.mark.parametrize(
    ("model", "format", "status", "why"),
    [
        ("beta-9", "chat", 503, "the catalog has no model beta-9"),
        ("beta-old", "chat", 503, "beta-old is retired"),
        (ALPHA, "chat", 500, "chat is closed to alpha models"),
    ],
)
def test_why_a_file_serves_nobody(
    shell: CommandRunner, file: str, model: str, format: str, status: int, why: str
) -> None:
    result = shell(*ask(model, format, "--config", file))
    assert result.exit_code == 1
    assert f"No account would be used: {why}. The client would get {status}: " in result.stdout


def test_a_file_is_asked_without_a_gateway_and_without_secrets(
    shell: CommandRunner, file: str
) -> None:
    told = shell.json(*ask("beta-5.4[1m]", "chat", "--config", file))
    assert (told["sent"], told["model"]) == ("beta-5.4[1m]", "beta-5.4")
    assert turns(told) == [(1, "chat-main/big"), (2, "chat-main/small"), (3, "chat-main/later")]
    assert [stop["share"] for stop in told["candidates"]] == [0.75, 0.25, 1]
    assert told["others"] == [{"channel": "messages-main", "why": "does not have beta-5.4"}]
    assert not shell.state_dir.exists()
    result = shell(*ask("beta-5.4", "messages", "--config", file))
    assert result.exit_code == 0
    assert result.stderr == f"From {file}, assuming that all accounts are healthy.\n"
    assert result.stdout.splitlines() == [
        "chat-main/big would be used, with beta-5.4.",
        "├── 1. chat-main/big for beta-5.4: first: by weight.",
        "│   ├── translated from messages to chat.",
        "│   └── gets 75% as one of 2 with rank 1.",
        "├── 2. chat-main/small for beta-5.4: fallback: next in order.",
        "│   ├── translated from messages to chat.",
        "│   └── gets 25% as one of 2 with rank 1.",
        "├── 3. chat-main/later for beta-5.4: fallback: lower priority.",
        "│   └── translated from messages to chat.",
        "└── -  messages-main: does not have beta-5.4.",
    ]


def test_the_group_of_a_key_counts_for_a_file(shell: CommandRunner, file: str) -> None:
    shell("group", "add", "team", "--models", "alpha-*")
    shell.mint("bob", group="team")
    result = shell(*ask("beta-5.4", "chat", "--key", "bob", "--config", file))
    assert result.exit_code == 1
    assert "no pattern of the group matches beta-5.4." in result.stdout


def test_without_a_gateway_and_without_a_file(shell: CommandRunner) -> None:
    shell.mint("alice")
    result = shell(*ask(BETA, "chat"))
    assert result.exit_code == 69
    assert f"No gateway runs on the state directory {shell.state_dir}." in result.stderr
    assert "--config" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (ask(BETA, "chat", "--key", "a", "--group", "b"), 2, "use either --key or --group"),
        (ask(BETA, "smoke"), 2, "Invalid value for '--format'"),
        (ask(BETA, "chat", "--group", "none"), 1, "There is no group none; the groups are: "),
        (ask(BETA, "chat", "--key", "none"), 1, "No key has the id or name none."),
    ],
)
def test_what_is_refused(
    shell: CommandRunner,
    gateway: GatewayProcess,
    arguments: tuple[str, ...],
    code: int,
    message: str,
) -> None:
    result = shell(*arguments)
    assert result.exit_code == code
    assert message in result.stderr
