"""`gateway account`: output, exit codes and errors."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import Any

import pytest

from gateway.core.formats import Format
from tests.cli.cli_runner import CommandRunner
from tests.cli.running_gateway import GatewayProcess, running_gateway
from tests.resilience.faults.upstream import FaultUpstream
from tests.support.cases import in_one_test
from tests.support.gateway import ALPHA, BETA, UPSTREAM_MODEL

FIRST, SECOND = "first-secret-4471", "second-secret-4472"


def channels(upstream: FaultUpstream) -> list[dict[str, Any]]:
    """`main` is an account of two channels, `spare` of one."""
    models = {ALPHA: UPSTREAM_MODEL, BETA: UPSTREAM_MODEL}
    main, spare = {"name": "main", "key": FIRST}, {"name": "spare", "key": SECOND, "concurrency": 3}
    return [
        {
            "name": f"{format}-up",
            "format": format.value,
            "base_url": upstream.base_url(format),
            "models": models,
            "accounts": [main, spare] if format is Format.CHAT else [main],
        }
        for format in Format
    ]


@pytest.fixture
def gateway(shell: CommandRunner) -> Iterator[GatewayProcess]:
    with running_gateway(shell.state_dir, channels) as gateway:
        yield gateway


def disable_by_auth_failure(gateway: GatewayProcess) -> None:
    """The first account of chat is refused its key, and the other answers."""
    gateway.upstream.set_plan("refuse:401", key=FIRST)

    async def ask() -> None:
        for number in range(64):  # conversations, until one belongs to it
            turns = [{"role": "user", "content": f"Hello {number}"}]
            assert (await gateway.running.post(Format.CHAT, messages=turns)).status == 200
            if gateway.upstream.requests_of(key=FIRST):
                return

    gateway.do(ask)


def states(shell: CommandRunner) -> dict[str, str]:
    rows = shell.items("account", "list")
    return {f"{row['channel']}/{row['account']}": row["state"] for row in rows}


def test_all_accounts_are_listed(shell: CommandRunner, gateway: GatewayProcess) -> None:
    rows = shell.items("account", "list")
    assert [(row["channel"], row["account"]) for row in rows] == [
        ("chat-up", "main"),
        ("chat-up", "spare"),
        ("messages-up", "main"),
        ("responses-up", "main"),
    ]
    assert rows[1] == {
        "channel": "chat-up",
        "account": "spare",
        "model": None,
        "state": "healthy",
        "until": None,
        "reason": None,
        "error": None,
        "succeeded": 0,
        "failed": 0,
        "under_way": 0,
        "concurrency": 3,
        "disabled_at": None,
        "disabled_by": None,
        "failing_since": None,
        "refuses": [],
    }


def test_the_failures_of_an_account_are_listed(
    shell: CommandRunner, gateway: GatewayProcess
) -> None:
    disable_by_auth_failure(gateway)
    first, second, *_ = shell.items("account", "list")
    assert (first["model"], first["state"], first["reason"]) == (BETA, "auth_failed", "key refused")
    assert first["failed"] == 1
    assert first["error"]
    assert 1700e6 < first["until"] - time.time() * 1e6 < 1800e6
    assert (second["state"], second["failed"], second["until"]) == ("healthy", 0, None)
    assert second["succeeded"] >= 1
    titles, row, *_ = shell("account", "list").stdout.splitlines()
    assert " ".join(titles.split()) == (
        "Account Model State Until Reason Succeeded Failed In flight Last error"
    )
    assert row.split()[:3] == ["chat-up/main", BETA, "auth_failed"]


def test_a_reset_account_is_healthy(shell: CommandRunner, gateway: GatewayProcess) -> None:
    disable_by_auth_failure(gateway)
    result = shell("account", "reset", "chat-up/main")
    assert (result.exit_code, result.stderr) == (0, "chat-up/main is healthy.\n")
    assert set(states(shell).values()) == {"healthy"}


def test_a_disabled_account_gets_no_requests(shell: CommandRunner, gateway: GatewayProcess) -> None:
    assert shell("account", "disable", "spare").exit_code == 0
    assert states(shell)["chat-up/spare"] == "disabled"
    assert re.search(r"disabled .* by socket: \d+/", shell("account", "list").stdout)

    async def ask() -> None:
        for _ in range(5):
            await gateway.running.post(Format.CHAT)

    gateway.do(ask)
    assert len(gateway.upstream.requests_of(key=SECOND)) == 0
    assert "stays disabled" in shell("account", "reset", "spare").stderr
    assert states(shell)["chat-up/spare"] == "disabled"
    (row,) = shell.items("account", "enable", "spare")
    assert row["state"] == "healthy"


@in_one_test("format", Format)
def test_a_try_uses_the_format_of_the_channel(
    shell: CommandRunner, gateway: GatewayProcess, format: Format
) -> None:
    tried = shell.json("account", "try", f"{format}-up/main")
    assert (tried["ok"], tried["status"], tried["words"]) == (True, 200, "Hello, world!")
    assert tried["model"] == ALPHA
    assert (tried["upstream_model"], tried["format"]) == (UPSTREAM_MODEL, format.value)
    call = gateway.upstream.requests[-1]
    assert call.key == FIRST
    assert call.model == UPSTREAM_MODEL
    rows = shell.items("logs", "list")
    assert rows == []


def test_a_try_that_succeeds_resets_the_account(
    shell: CommandRunner, gateway: GatewayProcess
) -> None:
    disable_by_auth_failure(gateway)
    gateway.upstream.clear_plans()
    result = shell("account", "try", "chat-up/main", "--model", BETA)
    assert result.exit_code == 0
    fields = dict(line.split(maxsplit=1) for line in result.stdout.splitlines())
    assert fields["Account"] == "chat-up/main"
    assert fields["Reply"] == "Hello, world!"
    assert states(shell)["chat-up/main"] == "healthy"


@pytest.mark.parametrize("plan", ["whole_anyway", "stream_only"])
def test_a_try_accepts_a_body_or_a_stream(
    shell: CommandRunner, gateway: GatewayProcess, plan: str
) -> None:
    gateway.upstream.set_plan(plan)
    assert shell.json("account", "try", "spare")["words"] == "Hello, world!"


def test_a_failed_try_reports_the_upstream_error_and_changes_no_state(
    shell: CommandRunner, gateway: GatewayProcess
) -> None:
    gateway.upstream.set_plan("refuse:401")
    result = shell("account", "try", "spare")
    assert result.exit_code == 1
    assert "key refused (account)" in result.stdout
    assert "401" in result.stdout
    assert SECOND not in result.stdout
    assert states(shell)["chat-up/spare"] == "healthy"


def test_a_try_of_an_empty_reply(shell: CommandRunner, gateway: GatewayProcess) -> None:
    gateway.upstream.set_plan("empty")
    result = shell("account", "try", "spare", "--json")
    assert result.exit_code == 1
    assert '"ok": false' in result.stdout


@in_one_test(
    ("arguments", "message"),
    [
        (("reset", "main"), "3 channels have an account main; use one of\n  chat-up/main\n"),
        (("enable", "nobody"), "There is no account nobody; the accounts are\n  chat-up/main\n"),
        (("disable", "chat-up/nobody"), "There is no account chat-up/nobody"),
        (("try", "spare", "--model", "x?y&z"), "Channel chat-up has no model x?y&z; it has: alpha"),
    ],
)
def test_refusals(
    shell: CommandRunner, gateway: GatewayProcess, arguments: tuple[str, ...], message: str
) -> None:
    result = shell("account", *arguments)
    assert result.exit_code == 1
    assert message in result.stderr


@in_one_test("arguments", [("list",), ("reset", "main"), ("try", "main")])
def test_without_a_gateway(shell: CommandRunner, arguments: tuple[str, ...]) -> None:
    shell.state_dir.mkdir(exist_ok=True)
    result = shell("account", *arguments)
    assert result.exit_code == 69
    assert f"No gateway runs on the state directory {shell.state_dir}." in result.stderr
