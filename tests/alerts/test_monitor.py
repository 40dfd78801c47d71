"""Each condition, provoked for real: its alert fires once, clears once, and survives a restart."""

from __future__ import annotations

import asyncio
import json
import logging
import shutil
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.admin.units import format_units, format_usd
from gateway.alerts.error_rate import ErrorCounter
from gateway.alerts.monitor import AlertMonitor
from gateway.config.cluster import DatabaseServer
from gateway.config.document import ConfigError
from gateway.core.formats import Format
from gateway.core.limits import BUDGETS, MICRO_PER_UNIT, Currency
from gateway.replicas import Fleet
from gateway.routing.circuit_breaker import HealthState
from gateway.store.postgresql.database import PostgresqlDatabase
from gateway.store.sqlite.lock import DATABASE_NAME
from tests.admin.config_follower import follow_config
from tests.alerts.receiver import OK, Receiver
from tests.support.databases import allow, forbid, locked
from tests.support.gateway import ACCOUNT, UPSTREAM_KEY, RunningGateway, channel, run_gateway
from tests.support.server_process import free_port
from tests.support.upstream import ScriptedUpstream, fixture_reply, json_response

NAME = f"messages-main/{ACCOUNT}"
REFUSED = json_response({"type": "error", "error": {"type": "authentication_error"}}, 401)
BROKEN = json_response({"type": "error", "error": {"type": "api_error", "message": "oops"}}, 500)
FINE = fixture_reply("messages")
SETTLE = 0.4
"""Seconds for several checks, in which nothing more must happen."""


@asynccontextmanager
async def watched(
    tmp_path: Path, upstream: ScriptedUpstream, receiver: Receiver, **options: Any
) -> AsyncIterator[RunningGateway]:
    """A gateway with one messages channel, whose alerts go to the receiver."""
    channels = [channel(Format.MESSAGES, upstream.address)]
    alerts = receiver.alerts(**options)
    async with run_gateway(tmp_path, channels, alerts=alerts) as gateway:
        yield gateway


async def try_account(gateway: RunningGateway) -> None:
    """A small request, which a healthy upstream answers: the account is healthy again."""
    reference = ("messages-main", ACCOUNT)
    assert (await gateway.daemon.console.accounts.probe(reference, None))["ok"]


async def test_a_rejected_credential(
    tmp_path: Path, upstream: ScriptedUpstream, receiver: Receiver
) -> None:
    upstream.respond_with(REFUSED)
    async with watched(tmp_path, upstream, receiver) as gateway:
        for _ in range(3):
            await gateway.post(Format.MESSAGES)
        await receiver.until(lambda: len(receiver.messages) == 2)
        by_alert = {each["alert"]: each for each in receiver.messages}
        assert set(by_alert) == {"account_auth_failed", "channel_down"}
        message = by_alert["account_auth_failed"]
        assert (message["status"], message["severity"]) == ("firing", "critical")
        assert message["subject"] == f"account {NAME}"
        assert message["details"]["reason"] == "key refused"
        delivered = [{"receiver": "delivered"}] * 2
        alerts = gateway.daemon.console.alerts
        await receiver.until(lambda: [x.deliveries for x in alerts.firing() or ()] == delivered)
        upstream.respond_with(FINE)
        await try_account(gateway)
        await receiver.until(lambda: len(receiver.messages) == 4)
        await asyncio.sleep(SETTLE)
        assert gateway.daemon.console.alerts.firing() == []
    assert receiver.of("account_auth_failed") == [
        ("firing", f"account {NAME}"),
        ("resolved", f"account {NAME}"),
    ]
    assert receiver.of("channel_down") == [
        ("firing", "channel messages-main"),
        ("resolved", "channel messages-main"),
    ]
    ids = [each["id"] for each in receiver.messages]
    assert len(set(ids)) == 4
    assert len({each["incident"] for each in receiver.messages}) == 2


async def test_a_restart_repeats_nothing_and_clears_later(
    tmp_path: Path, upstream: ScriptedUpstream, receiver: Receiver
) -> None:
    upstream.respond_with(REFUSED)
    async with watched(tmp_path, upstream, receiver) as gateway:
        await gateway.post(Format.MESSAGES)
        await receiver.until(lambda: len(receiver.messages) == 2)
    async with watched(tmp_path, upstream, receiver) as gateway:
        await asyncio.sleep(SETTLE)  # nothing is known of the account: no end
        assert len(receiver.messages) == 2
        await gateway.post(Format.MESSAGES)  # it fails again: no beginning
        await asyncio.sleep(SETTLE)
        assert len(receiver.messages) == 2
        firing = gateway.daemon.console.alerts.firing()
        assert firing is not None and len(firing) == 2
        upstream.respond_with(FINE)
        await try_account(gateway)
        await receiver.until(lambda: len(receiver.messages) == 4)
    assert [each["status"] for each in receiver.messages[2:]] == ["resolved"] * 2


async def test_what_was_not_delivered_is_delivered_after_a_restart(
    tmp_path: Path, upstream: ScriptedUpstream, receiver: Receiver
) -> None:
    upstream.respond_with(REFUSED)
    receiver.server.respond_with(json_response({}, 503))
    async with watched(tmp_path, upstream, receiver) as gateway:
        await gateway.post(Format.MESSAGES)
        await receiver.until(lambda: receiver.messages)
    tried = receiver.messages[0]
    receiver.requests.clear()
    receiver.server.respond_with(OK)
    async with watched(tmp_path, upstream, receiver):
        await receiver.until(lambda: len(receiver.messages) == 2)
        await asyncio.sleep(SETTLE)
    assert len(receiver.messages) == 2
    assert receiver.messages[0] == tried


async def test_an_upstream_that_is_down(
    tmp_path: Path, upstream: ScriptedUpstream, receiver: Receiver
) -> None:
    async with watched(tmp_path, upstream, receiver) as gateway:
        upstream.respond_with(BROKEN)
        for _ in range(6):
            await gateway.post(Format.MESSAGES)
        await receiver.until(lambda: len(receiver.messages) == 2)
        (message,) = [x for x in receiver.messages if x["alert"] == "account_circuit_open"]
        assert message["severity"] == "warning"
        assert message["details"]["models"] == ["alpha-sonnet-4-6"]
        assert receiver.of("channel_down") == [("firing", "channel messages-main")]
        upstream.respond_with(FINE)
        await try_account(gateway)
        await receiver.until(lambda: len(receiver.messages) == 4)
    assert "127.0.0.1" not in str(receiver.messages).replace(receiver.url, "")


async def test_a_receiver_that_hangs_does_not_hold_up_the_end(
    tmp_path: Path, upstream: ScriptedUpstream, receiver: Receiver
) -> None:
    upstream.respond_with(REFUSED)
    receiver.server.respond_with(OK.with_changes(delay=60))
    loop = asyncio.get_running_loop()
    async with watched(tmp_path, upstream, receiver) as gateway:
        await gateway.post(Format.MESSAGES)
        await receiver.until(lambda: receiver.requests)
        assert (await gateway.post(Format.MESSAGES)).status >= 500  # nobody waits for it
        started = loop.time()
    assert loop.time() - started < 8
    receiver.server.respond_with(OK)
    async with watched(tmp_path, upstream, receiver):
        await receiver.until(lambda: len(receiver.messages) == 3)
    assert receiver.messages[0] == receiver.messages[1]


async def test_nobody_listens_at_the_upstream(tmp_path: Path, receiver: Receiver) -> None:
    with socket.socket() as unused:  # bound, and refusing
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        main = channel(Format.MESSAGES, f"http://127.0.0.1:{port}")
        async with run_gateway(tmp_path, [main], alerts=receiver.alerts()) as gateway:
            for _ in range(6):
                assert (await gateway.post(Format.MESSAGES)).status >= 500
            await receiver.until(lambda: len(receiver.messages) == 2)
            assert {each["alert"] for each in receiver.messages} == {
                *("account_circuit_open", "channel_down")
            }
            gateway.daemon.console.accounts.reset(("messages-main", ACCOUNT))
            await receiver.until(lambda: len(receiver.messages) == 4)
    assert str(port) not in "".join(request.body.decode() for request in receiver.requests)


async def test_messages_have_no_secret_address_or_prompt(
    tmp_path: Path, upstream: ScriptedUpstream, receiver: Receiver
) -> None:
    """The upstream repeats all that it got."""
    canary, prompt = "canary-header-5512aa", "canary-prompt-9921bb"
    seen = f"key {UPSTREAM_KEY} at {upstream.address}/v1 with {canary}\n\x1b[31m"
    body = {"type": "error", "error": {"type": "permission_error", "message": seen}}
    upstream.respond_with(json_response(json.dumps(body).encode(), 401))
    main = channel(Format.MESSAGES, upstream.address, headers={"x-tenant": canary})
    webhooks = [receiver.webhook(secret="canary-secret-1177cc", headers={"x-t": "canary-t-3388dd"})]
    alerts = receiver.alerts(webhooks=webhooks)
    async with run_gateway(tmp_path, [main], alerts=alerts) as gateway:
        messages = [{"role": "user", "content": prompt}]
        await gateway.post(Format.MESSAGES, messages=messages)
        await receiver.until(lambda: len(receiver.messages) == 2)
        key = gateway.key
    (error,) = [
        each["details"]["error"] for each in receiver.messages if "error" in each["details"]
    ]
    assert error.startswith("key [redacted] at [address]")
    assert error.isprintable()
    text = "".join(request.body.decode() for request in receiver.requests)
    hidden = (canary, prompt, UPSTREAM_KEY, str(upstream.port), "canary", key)
    assert [each for each in hidden if each in text] == []


async def test_an_account_that_was_disabled_by_hand_is_no_alert(
    tmp_path: Path, upstream: ScriptedUpstream, receiver: Receiver
) -> None:
    async with watched(tmp_path, upstream, receiver) as gateway:
        await gateway.daemon.console.accounts.disable(("messages-main", ACCOUNT))
        health = gateway.daemon.runtime.health
        now = asyncio.get_running_loop().time()
        status = health.status(("messages-main", ACCOUNT), "", now)
        assert status.state is HealthState.DISABLED
        await asyncio.sleep(SETTLE)
        assert receiver.messages == []


async def test_budgets_at_80_and_100_percent(
    tmp_path: Path, upstream: ScriptedUpstream, receiver: Receiver
) -> None:
    upstream.respond_with(FINE)
    async with watched(tmp_path, upstream, receiver) as gateway:
        await gateway.post(Format.MESSAGES)
        cost = (await gateway.row()).cost_micro
        assert cost
        token = gateway.token

        async def set_budget(micro: int) -> None:
            await gateway.operations.update_key(token.id, limits={"budget_day": micro})

        await set_budget(cost * 2)  # 50 %
        await asyncio.sleep(SETTLE)
        assert receiver.messages == []
        await set_budget(cost * 10 // 9)  # 90 %
        await receiver.until(lambda: len(receiver.messages) == 1)
        await set_budget(cost)
        await receiver.until(lambda: len(receiver.messages) == 2)
        await asyncio.sleep(SETTLE)
        first, second = receiver.messages
        assert first["details"]["threshold_percent"] == 80
        assert first["details"]["used_percent"] == pytest.approx(90, abs=0.2)
        assert second["details"] == {
            "key": token.id,
            "budget": "budget_day",
            "threshold_percent": 100,
            "used_percent": 100.0,
            "spent_units": cost / MICRO_PER_UNIT,
            "limit_units": cost / MICRO_PER_UNIT,
            "resets_at": second["details"]["resets_at"],
        }
        assert second["subject"] == "key tests, budget_day"
        await set_budget(cost * 100 // 78)  # 78 %: between the thresholds of the first
        await receiver.until(lambda: len(receiver.messages) == 3)
        await asyncio.sleep(SETTLE)
        assert receiver.messages[2]["id"] == second["incident"] + "-resolved"
        await set_budget(cost * 2)
        await receiver.until(lambda: len(receiver.messages) == 4)
        assert receiver.messages[3]["id"] == first["incident"] + "-resolved"
        await set_budget(cost)  # both at once: one message
        await receiver.until(lambda: len(receiver.messages) == 5)
        await asyncio.sleep(SETTLE)
        assert len(receiver.messages) == 5
        assert receiver.messages[4]["details"]["threshold_percent"] == 100
        await set_budget(cost * 10 // 9)  # what is left of it is told
        await receiver.until(lambda: len(receiver.messages) == 7)
        assert sorted(
            (each["status"], each["details"]["threshold_percent"]) for each in receiver.messages[5:]
        ) == [("firing", 80), ("resolved", 100)]
    assert gateway.key not in str(receiver.messages)


async def test_the_budget_of_a_group(
    tmp_path: Path, upstream: ScriptedUpstream, receiver: Receiver
) -> None:
    upstream.respond_with(FINE)
    async with watched(tmp_path, upstream, receiver) as gateway:
        await gateway.post(Format.MESSAGES)
        cost = (await gateway.row()).cost_micro
        await gateway.operations.update_group("default", limits={"budget": cost})
        await receiver.until(lambda: receiver.messages)
    assert {each["subject"] for each in receiver.messages} == {"group default, budget"}
    assert receiver.messages[0]["details"]["resets_at"] is None


async def test_budgets_of_every_window_and_currency(
    tmp_path: Path, upstream: ScriptedUpstream, receiver: Receiver
) -> None:
    upstream.respond_with(FINE)
    money = {"unit_price": 0.001}
    main, alerts = channel(Format.MESSAGES, upstream.address), receiver.alerts(budget=[100])
    async with run_gateway(tmp_path, [main], alerts=alerts, money=money) as gateway:
        await gateway.post(Format.MESSAGES)
        row = await gateway.row()
        spent = {Currency.UNITS: row.cost_micro, Currency.USD: row.usd_micro}
        assert all(spent.values())
        limits = {name: spent[kind.currency] for name, kind in BUDGETS.items()}
        await gateway.operations.update_key(gateway.token.id, limits=limits)
        await receiver.until(lambda: len(receiver.messages) == len(BUDGETS))
        await asyncio.sleep(SETTLE)
    found = {each["details"]["budget"]: each for each in receiver.messages}
    assert set(found) == set(BUDGETS)
    assert all(each["details"]["used_percent"] == 100 for each in found.values())
    text = format_usd(row.usd_micro)
    assert f" 100 %: {text} of {text}; " in found["budget_usd_week"]["summary"]
    text = format_units(row.cost_micro)
    assert f" 100 %: {text} of {text} units" in found["budget"]["summary"]
    assert found["budget_5h"]["details"]["resets_at"] is not None


async def test_the_error_rate(
    tmp_path: Path, upstream: ScriptedUpstream, receiver: Receiver
) -> None:
    rate = {"above": 0.5, "window": 60, "min_requests": 4}
    async with watched(
        tmp_path,
        upstream,
        receiver,
        error_rate=rate,
        webhooks=[receiver.webhook(events=["error_rate"])],
    ) as gateway:
        upstream.respond_with(FINE)
        for _ in range(3):
            assert (await gateway.post(Format.MESSAGES)).status == 200
        for _ in range(8):  # of the client: they do not count
            assert (await gateway.post(Format.MESSAGES, b"no JSON")).status == 400
            assert (await gateway.post(Format.MESSAGES, model="mistyped")).status == 503
            assert (await gateway.get("/readyz")).status == 200
        upstream.respond_with(BROKEN)
        for _ in range(2):
            assert (await gateway.post(Format.MESSAGES)).status >= 500
        await asyncio.sleep(SETTLE)
        assert receiver.messages == []
        assert counts_errors(gateway)
        assert (await gateway.post(Format.MESSAGES)).status >= 500
        await receiver.until(lambda: receiver.messages)
        message = receiver.messages[0]
        assert message["details"] == {
            "requests": 6,
            "failed": 3,
            "share": 0.5,
            "window_seconds": 60.0,
        }
        upstream.respond_with(FINE)
        await gateway.post(Format.MESSAGES)  # 3 of 7: more than the second threshold
        await asyncio.sleep(SETTLE)
        assert len(receiver.messages) == 1
        for _ in range(2):
            await gateway.post(Format.MESSAGES)
        await receiver.until(lambda: len(receiver.messages) == 2)
    assert receiver.of("error_rate") == [("firing", "requests"), ("resolved", "requests")]
    assert receiver.messages[1]["details"]["share"] == round(3 / 9, 4)
    assert receiver.messages[1]["summary"].startswith("3 of 9 requests ")
    assert not counts_errors(gateway)


def counts_errors(gateway: RunningGateway) -> bool:
    observers = gateway.daemon.runtime.observers
    return any(getattr(each, "__func__", None) is ErrorCounter.observe for each in observers)


async def test_requests_without_a_usable_account_count_as_failed(
    tmp_path: Path, upstream: ScriptedUpstream, receiver: Receiver
) -> None:
    rate = {"above": 0.5, "window": 60, "min_requests": 4}
    hook = receiver.webhook(events=["error_rate"])
    async with watched(tmp_path, upstream, receiver, error_rate=rate, webhooks=[hook]) as gateway:
        await gateway.daemon.console.accounts.disable(("messages-main", ACCOUNT))
        for _ in range(4):
            assert (await gateway.post(Format.MESSAGES)).status == 503
        await receiver.until(lambda: receiver.messages)
        rows = await gateway.rows(4)
    assert {(row.attempts, row.error_code) for row in rows} == {(0, "no_available_accounts")}
    assert receiver.messages[0]["details"]["failed"] == 4


async def test_a_state_that_cannot_be_stored_is_one_line(
    tmp_path: Path,
    upstream: ScriptedUpstream,
    receiver: Receiver,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def lines() -> list[tuple[str, object]]:
        return [
            (each.getMessage(), each.exc_info)
            for each in caplog.records
            if "state of alerts" in each.getMessage()
        ]

    async with watched(tmp_path, upstream, receiver) as gateway:
        path = tmp_path / DATABASE_NAME
        forbid(path, "INSERT", "settings", "disk is full", "new.name = 'alerts'")
        upstream.respond_with(REFUSED)
        with caplog.at_level(logging.INFO):
            await gateway.post(Format.MESSAGES)
            await receiver.until(lambda: len(receiver.messages) == 2)
            await asyncio.sleep(SETTLE)
            ((text, traceback),) = lines()
            assert "disk is full" in text and "INSERT" not in text
            assert not traceback
            allow(path, "settings")
            await receiver.until(lambda: len(lines()) == 2)
            await asyncio.sleep(SETTLE)
        assert [each[0] for each in lines()[1:]] == ["the state of alerts is stored again"]


async def test_an_invalid_configuration(tmp_path: Path, receiver: Receiver) -> None:
    main = channel(Format.MESSAGES, "http://127.0.0.1:9")
    async with follow_config(tmp_path, main, alerts=receiver.alerts()) as it:
        it.write("channels: [{name: sk-secret-secret-1}]\n")
        with pytest.raises(ConfigError):
            await it.reloader.reload()
        await receiver.until(lambda: receiver.messages)
        (message,) = receiver.messages
        assert message["summary"] == (
            "The configuration file is invalid, the earlier one stays active: channels.yaml:1: "
            "4 errors, see the process log."
        )
        await it.reload(main, alerts=receiver.alerts())
        await receiver.until(lambda: len(receiver.messages) == 2)
    assert receiver.of("config_invalid") == [
        ("firing", "configuration file"),
        ("resolved", "configuration file"),
    ]
    assert "sk-secret" not in str(receiver.messages)


async def test_a_disk_with_less_space_than_wanted(tmp_path: Path, receiver: Receiver) -> None:
    main = channel(Format.MESSAGES, "http://127.0.0.1:9")
    space = shutil.disk_usage(tmp_path)

    def alerts(needed: int) -> dict[str, Any]:
        return receiver.alerts(disk_free={"percent": 0, "bytes": needed})

    async with follow_config(tmp_path, main, alerts=alerts(space.free + 2**30)) as it:
        await receiver.until(lambda: receiver.messages)
        (message,) = receiver.messages
        assert message["details"]["total_bytes"] == space.total
        await it.reload(main, alerts=alerts(int(space.free * 0.97)))  # between the thresholds
        await asyncio.sleep(SETTLE)
        assert len(receiver.messages) == 1
        await it.reload(main, alerts=alerts(space.free // 2))
        await receiver.until(lambda: len(receiver.messages) == 2)
    assert [status for status, _ in receiver.of("disk_low")] == ["firing", "resolved"]


async def test_a_request_log_that_cannot_be_written(
    tmp_path: Path,
    upstream: ScriptedUpstream,
    receiver: Receiver,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gateway.alerts.conditions.WRITE_DELAY", 0.2)
    upstream.respond_with(FINE)
    async with watched(tmp_path, upstream, receiver) as gateway:
        with locked(tmp_path / DATABASE_NAME):
            assert (await gateway.post(Format.MESSAGES)).status == 200
            await receiver.until(lambda: receiver.messages)
        await receiver.until(lambda: len(receiver.messages) == 2)
        await gateway.rows(1)
    assert [status for status, _ in receiver.of("log_unwritable")] == ["firing", "resolved"]


async def test_a_key_used_by_a_new_client_is_an_event(
    tmp_path: Path, upstream: ScriptedUpstream, receiver: Receiver
) -> None:
    upstream.respond_with(FINE)
    async with watched(tmp_path, upstream, receiver) as gateway:
        await gateway.post(Format.MESSAGES, headers={"user-agent": "first/1.0"})
        await gateway.post(Format.MESSAGES, headers={"user-agent": "first/2.0"})
        await asyncio.sleep(SETTLE)
        assert receiver.messages == []
        for _ in range(2):
            await gateway.post(Format.MESSAGES, headers={"user-agent": "other/1.0"})
        await receiver.until(lambda: receiver.messages)
        await asyncio.sleep(SETTLE)
        (message,) = receiver.messages
        assert (message["alert"], message["status"]) == ("key_new_client", "event")
        assert message["details"] == {
            "key": gateway.token.id,
            "client": "client other, first first",
        }
        assert gateway.daemon.console.alerts.firing() == []
        await gateway.post(Format.MESSAGES, headers={"user-agent": "third/1.0"})
        await receiver.until(lambda: len(receiver.messages) == 2)
        key = gateway.key
    async with watched(tmp_path, upstream, receiver) as gateway:  # they are known
        for agent in ("other", "first", "third"):
            await gateway.post(Format.MESSAGES, headers={"user-agent": agent}, key=key)
        await asyncio.sleep(SETTLE)
    assert len(receiver.messages) == 2
    assert key not in str(receiver.messages)


async def test_webhooks_get_the_events_that_they_list(
    tmp_path: Path, upstream: ScriptedUpstream, receiver: Receiver
) -> None:
    upstream.respond_with(REFUSED)
    webhooks = [receiver.webhook(events=["channel_down", "budget_used"])]
    async with watched(tmp_path, upstream, receiver, webhooks=webhooks) as gateway:
        await gateway.post(Format.MESSAGES)
        await receiver.until(lambda: receiver.messages)
        await asyncio.sleep(SETTLE)
        firing = gateway.daemon.console.alerts.firing()
        assert firing is not None
        assert [(each.alert, each.deliveries) for each in firing] == [
            ("account_auth_failed", {}),
            ("channel_down", {"receiver": "delivered"}),
        ]
    assert [each["alert"] for each in receiver.messages] == ["channel_down"]


async def test_a_reload_changes_the_webhooks_and_switches_alerts_off(
    tmp_path: Path, upstream: ScriptedUpstream, receiver: Receiver
) -> None:
    upstream.respond_with(REFUSED)
    main = channel(Format.MESSAGES, upstream.address)
    unused = receiver.webhook(name="old", url="http://127.0.0.1:9/")
    async with follow_config(tmp_path, main, alerts=receiver.alerts(webhooks=[unused])) as it:
        await it.gateway.post(Format.MESSAGES)
        alerts = it.gateway.daemon.console.alerts
        await it.until(lambda: len(alerts.firing() or ()) == 2)
        result = await it.reload(main, alerts=receiver.alerts(budget=[50]))
        assert result.changes.changed == ("alerts",)
        await asyncio.sleep(SETTLE)
        assert receiver.messages == []  # announced before: to the webhooks of that time
        it.runtime.health.reset(("messages-main", ACCOUNT))
        await receiver.until(lambda: len(receiver.messages) == 2)
        await it.reload(main)
        await it.until(lambda: alerts.firing() is None)
        assert alerts.webhooks() == []


async def test_without_the_section_nothing_is_watched(gateway: RunningGateway) -> None:
    assert gateway.daemon.console.alerts.firing() is None
    assert not counts_errors(gateway)


class Replica(Fleet):
    is_replica = True


async def test_a_database_server_that_cannot_be_reached_is_one_line(
    gateway: RunningGateway, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    url = f"postgresql://gw@127.0.0.1:{free_port()}/gw"
    database = PostgresqlDatabase(DatabaseServer.model_validate({"url": url}))
    runtime = gateway.daemon.runtime
    monkeypatch.setattr(runtime, "fleet", Replica())
    monkeypatch.setattr("gateway.alerts.monitor._IDLE", 0.01)
    monitor = AlertMonitor(runtime, database)
    rounds, check = 0, monitor.check

    async def counted() -> None:
        nonlocal rounds
        rounds += 1
        await check()

    monkeypatch.setattr(monitor, "check", counted)
    task = asyncio.ensure_future(monitor.run())
    async with asyncio.timeout(10):
        while rounds < 3:
            await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.wait({task})
    await database.close()
    (line,) = [each for each in caplog.records if "alerts" in each.getMessage()]
    assert "the connection was refused" in line.getMessage()
    assert not line.exc_info
