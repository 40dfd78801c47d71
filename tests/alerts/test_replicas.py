"""Alerts of two replicas: announced once, also what only the other one sees."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from gateway.core.formats import Format
from tests.alerts.receiver import Receiver
from tests.alerts.test_monitor import REFUSED
from tests.support.gateway import channel
from tests.support.replicas import run_replicas
from tests.support.upstream import ScriptedUpstream

pytestmark = pytest.mark.fleet


async def test_one_replica_announces_what_all_see(
    tmp_path: Path, upstream: ScriptedUpstream, receiver: Receiver
) -> None:
    upstream.respond_with(REFUSED)
    lines = [channel(Format.MESSAGES, upstream.address)]
    alerts = receiver.alerts()
    async with asyncio.timeout(60), run_replicas(tmp_path, 2, lines, alerts=alerts) as gateways:
        runtimes = [each.daemon.runtime for each in gateways]
        async with asyncio.timeout(20):
            while sum(each.fleet.is_leader for each in runtimes) != 1:
                await asyncio.sleep(0.05)
        other = next(each for each in gateways if not each.daemon.runtime.fleet.is_leader)
        await other.post(Format.MESSAGES)  # the account is rejected
        other.daemon.runtime.config_error = "line 3: no such option"
        await receiver.until(lambda: len(receiver.messages) >= 3)
        await receiver.until(lambda: len(other.daemon.console.alerts.firing() or ()) == 3)
        found = {each["alert"]: each for each in receiver.messages}
        assert set(found) == {"account_auth_failed", "channel_down", "config_invalid"}
        assert len(receiver.messages) == 3
        name = other.daemon.runtime.config.replica.name
        assert found["config_invalid"]["subject"] == f"configuration file of replica {name}"
        firing = other.daemon.console.alerts.firing()
        assert firing is not None
        assert {each.alert for each in firing} == set(found)
