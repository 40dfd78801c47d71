"""What operators and monitoring see of two replicas."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from gateway.admin.api.replicas import usual_hash
from gateway.cli import main
from gateway.console.guard import cookie_name
from gateway.fleet.valkey import session
from gateway.store.postgresql.replicas import ListedReplica, ReplicaRow
from tests.fleet.replicas import changes_of, cluster_of
from tests.support.gateway import RunningGateway, channels, run_gateway
from tests.support.postgres import new_database_url
from tests.support.timing import SLACK, until_within
from tests.support.upstream import ScriptedUpstream
from tests.support.valkey import ValkeyServer, valkey_server

PASSWORD = "correct horse battery staple"


@pytest.fixture
async def gateways(
    upstream: ScriptedUpstream, tmp_path: Path
) -> AsyncIterator[list[RunningGateway]]:
    """Three, the last one with other limits."""
    url = await new_database_url()
    async with AsyncExitStack() as stack:
        running = []
        for number in range(3):
            config: dict[str, Any] = {
                "database": {"url": url, "connections": 2},
                "shared": {"url": valkey_server().url, "prefix": "seen"},
                "replica": {"name": f"r{number}"},
                "limits": {"concurrent": 900 if number == 2 else 1000},
            }
            gateway = run_gateway(tmp_path / f"r{number}", channels(upstream.address), **config)
            running.append(await stack.enter_async_context(gateway))
        await until_within(SLACK, lambda: all(serving_of(each) == 3 for each in running))
        yield running


def serving_of(gateway: RunningGateway) -> int:
    """How many replicas it knows to serve, itself included."""
    return len(cluster_of(gateway)._own.serving)


async def call(gateway: RunningGateway, *arguments: str) -> str:
    state_dir = str(gateway.daemon.runtime.config.state_dir)
    run = CliRunner().invoke
    result = await asyncio.to_thread(run, main, [*arguments, "--state-dir", state_dir])
    assert result.exit_code == 0, result.output
    return result.output


async def test_the_command_lists_all_and_marks_other_configurations(
    gateways: list[RunningGateway],
) -> None:
    answer = json.loads(await call(gateways[1], "replicas", "--json"))
    by_name = {each["name"]: each for each in answer["items"]}
    assert {name: each["state"] for name, each in by_name.items()} == dict.fromkeys(
        ("r0", "r1", "r2"), "serving"
    )
    assert [name for name, each in by_name.items() if each["is_self"]] == ["r1"]
    assert [name for name, each in by_name.items() if each["is_leader"]] == ["r0"]
    assert [name for name, each in by_name.items() if each["config_differs"]] == ["r2"]
    assert all(abs(each["clock_offset"]) < 0.5 for each in by_name.values())
    assert by_name["r0"]["address"] == gateways[0].address
    table = await call(gateways[1], "replicas")
    assert "differs" in table
    assert "r1 (self)" in table.replace("\n", " ")


async def test_readiness_names_replica_and_servers(gateways: list[RunningGateway]) -> None:
    answer = await gateways[0].get("/readyz")
    status = await answer.json()
    assert answer.status == 200
    assert status["replica"] == {"name": "r0", "registered": True}
    assert (status["database"], status["shared"]) == ("ok", "ok")
    for task in changes_of(gateways[0])._tasks:
        task.cancel()
    await asyncio.sleep(2.3)
    answer = await gateways[0].get("/readyz")
    status = await answer.json()
    assert answer.status == 503
    assert "changed" in status["reason"]
    assert (status["database"], status["shared"]) == ("out of contact", "out of contact")
    assert (await gateways[0].get("/healthz")).status == 200


async def test_metrics(gateways: list[RunningGateway]) -> None:
    text = await (await gateways[0].get("/metrics")).text()
    for line in (
        'gateway_replicas{state="living"} 3',
        'gateway_replicas{state="lost"} 0',
        'gateway_replicas{state="absent"} 0',
        "gateway_replica_is_leader 1",
        "gateway_database_up 1",
        "gateway_shared_up 1",
        "gateway_key_changes_confirmed 1",
    ):
        assert line in text
    assert "gateway_replica_is_leader 0" in await (await gateways[1].get("/metrics")).text()


async def test_a_shared_server_that_answers_but_decides_nothing(
    upstream: ScriptedUpstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is full, or begins to evict entries, which is looked for now and then."""
    monkeypatch.setattr(session, "RENEW_INTERVAL", 0.05)
    monkeypatch.setattr(session, "CHECK_EVERY", 2)
    url = await new_database_url()
    folder = tmp_path / "valkey"
    folder.mkdir()
    server = ValkeyServer(folder)
    try:
        config = {"database": url, "shared": server.url}
        async with run_gateway(tmp_path / "r", channels(upstream.address), **config) as gateway:

            async def becomes(shared: str, up: int) -> None:
                async with asyncio.timeout(SLACK):
                    while (await _readiness(gateway))["shared"] != shared:
                        await asyncio.sleep(0.02)
                text = await (await gateway.get("/metrics")).text()
                assert f"gateway_shared_up {up}" in text

            await becomes("ok", 1)
            for name, wrong, right in (
                ("maxmemory-policy", "allkeys-lru", "noeviction"),
                ("maxmemory", "1", "0"),
            ):
                server.command("CONFIG", "SET", name, wrong)
                await becomes("limits are not shared", 0)
                assert (await gateway.get("/readyz")).status == 200
                server.command("CONFIG", "SET", name, right)
                await becomes("ok", 1)
    finally:
        server.stop()


async def _readiness(gateway: RunningGateway) -> dict[str, Any]:
    status: dict[str, Any] = await (await gateway.get("/readyz")).json()
    return status


async def test_the_console_has_a_page(gateways: list[RunningGateway]) -> None:
    first = gateways[0]
    await first.daemon.console.access.admins.set_password(PASSWORD)
    session = await first.daemon.console.access.sessions.sign_in("admin", PASSWORD, "", "")
    cookie = f"{cookie_name(first.daemon.console)}={session}"
    answer = await first.http.get("/console/replicas", headers={"cookie": cookie})
    page = await answer.text()
    for name in ("r0", "r1", "r2"):
        assert name in page
    assert page.count("differs") == 1
    assert "Configurations differ" in page


def test_the_usual_configuration_is_that_of_most() -> None:
    def replica(hash: str, age: float = 0) -> ListedReplica:
        row = ReplicaRow("n", 1, "b", "s", "serving", "", "", 1, hash, 0, 0, 60_000_000, "{}")
        return ListedReplica(row, age)

    assert usual_hash([]) is None
    assert usual_hash([replica("a")]) == "a"
    assert usual_hash([replica("a"), replica("b")]) is None
    assert usual_hash([replica("a"), replica("b"), replica("b")]) == "b"
    assert usual_hash([replica("a"), replica("b"), replica("b", age=9)]) is None
