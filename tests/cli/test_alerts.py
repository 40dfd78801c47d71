"""`gateway alerts`: output, exit codes and errors."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from gateway.core.formats import Format
from tests.cli.cli_runner import CommandRunner
from tests.cli.running_gateway import GatewayProcess, running_gateway
from tests.resilience.faults.upstream import FaultUpstream
from tests.support.gateway import channel
from tests.support.loop_thread import run_in_thread
from tests.support.upstream import ReceivedRequest, Response, json_response, scripted_upstream

STATUSES = {"/good": 204, "/bad": 500}


@pytest.fixture
def receiver() -> Iterator[str]:
    async def answer(request: ReceivedRequest) -> Response:
        return json_response(b"", STATUSES[request.path])

    with run_in_thread(scripted_upstream(answer)) as server:
        yield server.address


HELD_BACK = {"account_auth_failed": 2}


def channels(upstream: FaultUpstream) -> list[dict[str, Any]]:
    url = upstream.base_url(Format.MESSAGES, "refuse:401")
    return [channel(Format.MESSAGES, "", base_url=url)]


@pytest.fixture
def gateway(shell: CommandRunner, receiver: str) -> Iterator[GatewayProcess]:
    hook = {"allowed_networks": ["127.0.0.1/32"]}
    webhooks = [hook | {"name": path[1:], "url": receiver + path} for path in STATUSES]
    alerts = {"webhooks": webhooks, "check_every": 0.05}
    with running_gateway(shell.state_dir, channels, alerts=alerts) as gateway:
        yield gateway


def test_alerts_are_listed_with_their_deliveries(
    shell: CommandRunner, gateway: GatewayProcess
) -> None:
    result = shell("alerts", "list")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "No alert fires.\n")

    async def fail() -> None:
        await gateway.running.post(Format.MESSAGES)
        alerts = gateway.running.daemon.console.alerts
        async with asyncio.timeout(5):
            while not any("delivered" in x.deliveries.values() for x in alerts.firing() or ()):
                await asyncio.sleep(0.02)

    gateway.do(fail)
    answer = shell.json("alerts", "list")
    assert answer["configured"] is True
    assert answer["webhooks"] == ["good", "bad"]
    first, second = answer["items"]
    assert (first["alert"], second["alert"]) == ("account_auth_failed", "channel_down")
    assert first["deliveries"] == {"good": "delivered", "bad": "waiting"}
    titles, row, *_ = shell("alerts", "list").stdout.splitlines()
    assert " ".join(titles.split()) == "Since Severity Alert Summary Webhooks"
    assert "account_auth_failed" in row and "good: delivered, bad: waiting" in row
    assert answer["held_back"] == {}


def test_alerts_that_are_held_back_are_counted(
    shell: CommandRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.alerts.incidents.MAX_INCIDENTS", 1)

    def with_accounts(upstream: FaultUpstream) -> list[dict[str, Any]]:
        keys = [{"name": f"a{number}", "key": f"sk-{number}"} for number in range(3)]
        return [each | {"accounts": keys} for each in channels(upstream)]

    with running_gateway(shell.state_dir, with_accounts, alerts={"check_every": 0.05}) as gateway:

        async def fail() -> None:
            async with asyncio.timeout(5):
                while gateway.running.daemon.console.alerts.held_back() != HELD_BACK:
                    await gateway.running.post(Format.MESSAGES)
                    await asyncio.sleep(0.05)

        gateway.do(fail)
        assert shell.json("alerts", "list")["held_back"] == HELD_BACK
        result = shell("alerts", "list")
        assert "2 more of account_auth_failed, held back until others are over." in result.stderr


def test_webhooks_are_tested(shell: CommandRunner, gateway: GatewayProcess) -> None:
    result = shell("alerts", "test")
    assert result.exit_code == 1
    titles, good, bad = (line.split() for line in result.stdout.splitlines())
    assert titles == ["Webhook", "Result", "Seconds", "Error"]
    assert good[:2] == ["good", "ok"]
    assert (bad[:2], bad[3:]) == (["bad", "failed"], ["status", "500"])
    (row,) = shell.items("alerts", "test", "--webhook", "good")
    assert (row["webhook"], row["ok"], row["error"]) == ("good", True, None)
    result = shell("alerts", "test", "--webhook", "other")
    assert result.exit_code == 1
    assert "There is no webhook other; the configuration has good, bad." in result.stderr


def test_without_webhooks_and_without_a_gateway(shell: CommandRunner) -> None:
    with running_gateway(shell.state_dir, channels):
        assert "the configuration has no section alerts" in shell("alerts", "list").stderr
        result = shell("alerts", "test")
        assert result.exit_code == 1
        assert "The configuration has no webhooks: add them under alerts." in result.stderr
    result = shell("alerts", "list")
    assert result.exit_code == 69
    assert "No gateway runs" in result.stderr
