"""`gateway route`: output, exit codes and errors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.core.formats import Format
from tests.cli.cli_runner import CommandRunner
from tests.cli.running_gateway import GatewayProcess, running_gateway
from tests.resilience.faults.upstream import FaultUpstream
from tests.support.cases import in_one_test
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


def route_args(model: str, format: str, *more: str) -> tuple[str, ...]:
    return ("route", "--model", model, "--format", format, *more)


def order(preview: dict[str, Any]) -> list[tuple[int | None, str]]:
    return [
        (candidate["turn"], f"{candidate['channel']}/{candidate['account']}")
        for candidate in preview["candidates"]
    ]


def test_the_order_of_the_running_gateway(shell: CommandRunner, gateway: GatewayProcess) -> None:
    preview = shell.json(*route_args(BETA, "chat", "--key", "tests"))
    assert (preview["status"], preview["model"], preview["patterns"]) == (None, BETA, ["*"])
    assert preview["decision"] == f"chat-up/a0 would be used, with {UPSTREAM_MODEL}."
    assert order(preview) == [
        (1, "chat-up/a0"),
        (2, "chat-up/a1"),
        (3, "chat-up/a2"),
        (4, "chat-up/a3"),
        (5, "messages-up/a0"),
    ]
    first, *_, last = preview["candidates"]
    assert first["why"] == [
        "first: by weight",
        "native: same format (chat)",
        "gets 25% as one of 4 with rank 1",
    ]
    assert last["why"] == [
        "fallback: lower priority",
        "translated from chat to messages",
    ]
    assert gateway.upstream.requests == []


def test_a_disabled_account_is_skipped(shell: CommandRunner, gateway: GatewayProcess) -> None:
    shell("account", "disable", "chat-up/a0")
    preview = shell.json(*route_args(BETA, "chat", "--group", "default"))
    assert order(preview)[0] == (1, "chat-up/a1")
    assert order(preview)[-1] == (None, "chat-up/a0")
    assert preview["candidates"][0]["why"][0] == "first: earlier candidates unavailable"
    assert preview["candidates"][-1]["why"][0] == "skipped: disabled by hand"
    assert preview["candidates"][-1]["state"] == "disabled"


def test_an_account_with_failed_auth_is_skipped(
    shell: CommandRunner, gateway: GatewayProcess
) -> None:
    gateway.upstream.set_plan("refuse:401", key="secret-key-0")

    async def ask_it() -> None:
        for number in range(64):  # conversations, until one belongs to it
            turns = [{"role": "user", "content": f"Hello {number}"}]
            await gateway.running.post(Format.CHAT, messages=turns)
            if gateway.upstream.requests_of(key="secret-key-0"):
                return

    gateway.do(ask_it)
    preview = shell.json(*route_args(BETA, "chat"))
    assert order(preview)[-1] == (None, "chat-up/a0")
    why = preview["candidates"][-1]["why"][0]
    assert why == "skipped: auth failed for another 30 min (key refused)"


def test_no_account_is_available(shell: CommandRunner, gateway: GatewayProcess) -> None:
    for name in ("chat-up/a0", "chat-up/a1", "chat-up/a2", "chat-up/a3", "messages-up/a0"):
        shell("account", "disable", name)
    result = shell(*route_args(BETA, "chat"))
    assert result.exit_code == 1
    headline, *candidates = result.stdout.splitlines()
    assert headline == (
        "No account would be used: all accounts with this model are unavailable or at capacity. "
        "The client would get 503: No available accounts"
    )
    assert any("disabled by hand" in line for line in candidates)


def test_the_models_of_the_group_apply(shell: CommandRunner, gateway: GatewayProcess) -> None:
    shell("group", "add", "team", "--models", "alpha-*")
    created = shell.create_key("bob", group="team")
    result = shell(*route_args(BETA, "chat", "--key", created["id"]))
    assert result.exit_code == 1
    assert f"no pattern of the group matches {BETA}." in result.stdout
    assert "The client would get 503: model_not_found" in result.stdout
    assert f"chat-up: has {BETA}, which the group does not allow." in result.stdout
    result = shell(*route_args(BETA, "responses", "--group", "team"))
    assert "The client would get 404: Invalid URL (POST /v1/responses)" in result.stdout
    shell("key", "set", "bob", "--probe", "--models", "alpha-x")
    result = shell(*route_args(BETA, "chat", "--key", created["id"]))
    assert ") is restricted to alpha-x; other models get a 403." in result.stderr
    assert ") is a health-check key: this request gets a 403." in result.stderr
    shell("key", "disable", "bob")
    assert "is disabled: its requests" in shell(*route_args(BETA, "chat", "--key", "bob")).stderr
    shell("key", "revoke", "bob")
    result = shell(*route_args(BETA, "chat", "--key", created["id"]))
    assert result.exit_code == 1
    assert "is revoked: its requests get a 401." in result.stderr


@in_one_test(
    ("model", "format", "status", "why"),
    [
        ("beta-9", "chat", 503, "the catalog has no model beta-9"),
        ("beta-old", "chat", 503, "beta-old is retired"),
        (ALPHA, "chat", 500, "chat is closed to alpha models"),
    ],
)
def test_why_a_file_has_no_candidates(
    shell: CommandRunner, file: str, model: str, format: str, status: int, why: str
) -> None:
    result = shell(*route_args(model, format, "--config", file))
    assert result.exit_code == 1
    assert f"No account would be used: {why}. The client would get {status}: " in result.stdout


def test_a_file_needs_no_gateway_and_no_secrets(shell: CommandRunner, file: str) -> None:
    preview = shell.json(*route_args("beta-5.4[1m]", "chat", "--config", file))
    assert (preview["sent"], preview["model"]) == ("beta-5.4[1m]", "beta-5.4")
    assert order(preview) == [(1, "chat-main/big"), (2, "chat-main/small"), (3, "chat-main/later")]
    assert [candidate["share"] for candidate in preview["candidates"]] == [0.75, 0.25, 1]
    assert preview["others"] == [{"channel": "messages-main", "why": "does not have beta-5.4"}]
    assert not shell.state_dir.exists()
    result = shell(*route_args("beta-5.4", "messages", "--config", file))
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


def test_the_group_of_a_key_applies_to_a_file(shell: CommandRunner, file: str) -> None:
    shell("group", "add", "team", "--models", "alpha-*")
    shell.create_key("bob", group="team")
    result = shell(*route_args("beta-5.4", "chat", "--key", "bob", "--config", file))
    assert result.exit_code == 1
    assert "no pattern of the group matches beta-5.4." in result.stdout


def test_without_a_gateway_and_without_a_file(shell: CommandRunner) -> None:
    shell.create_key("alice")
    result = shell(*route_args(BETA, "chat"))
    assert result.exit_code == 69
    assert f"No gateway runs on the state directory {shell.state_dir}." in result.stderr
    assert "--config" in result.stderr


@in_one_test(
    ("arguments", "code", "message"),
    [
        (route_args(BETA, "chat", "--key", "a", "--group", "b"), 2, "use either --key or --group"),
        (route_args(BETA, "smoke"), 2, "Invalid value for '--format'"),
        (
            route_args(BETA, "chat", "--group", "none"),
            1,
            "There is no group none; the groups are: ",
        ),
        (route_args(BETA, "chat", "--key", "none"), 1, "No key has the id or name none."),
    ],
)
def test_refusals(
    shell: CommandRunner,
    gateway: GatewayProcess,
    arguments: tuple[str, ...],
    code: int,
    message: str,
) -> None:
    result = shell(*arguments)
    assert result.exit_code == code
    assert message in result.stderr
