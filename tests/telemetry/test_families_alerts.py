"""The alert rules against a real Prometheus and real incidents: each alert fires, and clears."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml
from aiohttp import ClientSession

from gateway.admin.reload import ConfigSource
from gateway.config.load import load_config
from gateway.core.formats import Format
from gateway.core.limits import MICRO_PER_UNIT
from gateway.daemon import run_daemon
from gateway.store.sqlite.lock import DATABASE_NAME
from tests.support.databases import locked
from tests.support.gateway import RunningGateway
from tests.support.paths import ROOT
from tests.support.programs import find_program
from tests.support.prometheus import Prometheus, free_port, run_prometheus, shortened
from tests.support.upstream import (
    Response,
    ScriptedUpstream,
    fixture_reply,
    fixture_stream,
    json_response,
    scripted_upstream,
)

pytestmark = pytest.mark.processes

RULES = ROOT / "docs" / "monitoring" / "prometheus-rules.yml"
SCRAPES = ROOT / "docs" / "monitoring" / "prometheus.yml"
WINDOW = 3
"""Seconds."""
PATIENCE = 30.0
SLOW = 8.6
"""Seconds until the first token, more than the rule accepts."""
MODELS = ("rejected", "failing", "slow", "good")
NOT_PROVOKED = {
    *("GatewayRestarts", "GatewayBodiesFull", "GatewayFilesNearlyExhausted"),
    "GatewayMetricsFolded",
}
"""`test_families_rules` has them."""


def error(status: int) -> Response:
    return json_response({"error": {"message": "no", "type": "error"}}, status)


@dataclass
class Incidents:
    """A gateway with an upstream for each of `MODELS`, which serves the model of that name."""

    file: Path
    port: int
    upstreams: dict[str, ScriptedUpstream]

    def config(self) -> dict[str, Any]:
        return {
            "state_dir": str(self.file.parent / "state"),
            "server": {"port": self.port, "drain_timeout": 1},
            "models": [{"id": name, "family": "beta"} for name in MODELS],
            "channels": [
                {
                    "name": name,
                    "format": "chat",
                    "base_url": f"{upstream.address}/v1",
                    "models": [name],
                    "accounts": [{"name": "a1", "key": "sk-upstream-2231"}],
                }
                for name, upstream in self.upstreams.items()
            ],
        }

    @asynccontextmanager
    async def gateway(self) -> AsyncIterator[RunningGateway]:
        self.file.write_bytes(orjson.dumps(self.config()))
        self.file.chmod(0o600)
        source = ConfigSource(self.file, lambda: load_config(self.file), poll_interval=0.1)
        async with run_daemon(source.read(), source) as daemon:
            token, key = await daemon.operations.create_key(f"k{time.monotonic_ns()}", "default")
            async with ClientSession(daemon.address) as http:
                yield RunningGateway(daemon, token, key, http)


@asynccontextmanager
async def incidents(folder: Path) -> AsyncIterator[Incidents]:
    async with AsyncExitStack() as stack:
        upstreams = {name: await stack.enter_async_context(scripted_upstream()) for name in MODELS}
        yield Incidents(folder / "channels.json", free_port(), upstreams)


@asynccontextmanager
async def repeating(work: Callable[[], Awaitable[object]], pause: float) -> AsyncIterator[None]:
    """Meanwhile the work is done again and again."""

    async def run() -> None:
        while True:
            await work()
            await asyncio.sleep(pause)

    task = asyncio.ensure_future(run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})


async def wait_firing(prometheus: Prometheus, *names: str) -> None:
    """Until each has fired."""
    missing = set(names)
    try:
        async with asyncio.timeout(PATIENCE):
            while missing:
                missing -= await prometheus.firing()
                await asyncio.sleep(0.1)
    except TimeoutError:
        pytest.fail(f"these alerts do not fire: {sorted(missing)}")


async def wait_clear(prometheus: Prometheus) -> None:
    firing: set[str] = {"unknown"}
    try:
        async with asyncio.timeout(PATIENCE):
            while firing:
                firing = await prometheus.firing()
                await asyncio.sleep(0.1)
    except TimeoutError:
        pytest.fail(f"these alerts do not clear: {sorted(firing)}")


@pytest.mark.slow("provokes every alert and waits until it is over")
async def test_every_alert_fires_and_clears(tmp_path: Path) -> None:
    find_program("prometheus")
    rules = tmp_path / "rules.yml"
    rules.write_text(shortened(RULES.read_text(), WINDOW))
    fired: set[str] = set()
    async with incidents(tmp_path) as each:
        scrape = yaml.safe_load(SCRAPES.read_text())
        scrape["rule_files"] = [str(rules)]
        scrape["scrape_configs"][0]["static_configs"][0]["targets"] = [f"127.0.0.1:{each.port}"]
        async with run_prometheus(tmp_path, scrape) as prometheus:
            async with each.gateway() as gateway:
                await wait_clear(prometheus)
                for provoke in (upstreams_fail, budgets_end, file_is_broken, database_is_locked):
                    fired |= await provoke(gateway, each, prometheus)
                    await wait_clear(prometheus)
                fired |= await loop_stalls(prometheus)
                await wait_clear(prometheus)
            await wait_firing(prometheus, "GatewayDown")
            fired.add("GatewayDown")
            async with each.gateway():
                await wait_clear(prometheus)
    rule_names = {
        rule["alert"]
        for group in yaml.safe_load(RULES.read_text())["groups"]
        for rule in group["rules"]
    }
    assert fired == rule_names - NOT_PROVOKED


async def upstreams_fail(
    gateway: RunningGateway, each: Incidents, prometheus: Prometheus
) -> set[str]:
    each.upstreams["rejected"].respond_with(error(401))
    each.upstreams["failing"].respond_with(error(500))
    stream = fixture_stream("chat")
    # The first one makes the series: a rate needs two values.
    each.upstreams["slow"].respond_with(stream, stream.with_changes(delay=SLOW))
    await gateway.post(Format.CHAT, model="slow", stream=True)
    names = {"GatewayAccountAuthFailed", "GatewayChannelDown", "GatewayAccountCircuitOpen"}
    names |= {"GatewayErrorRate", "GatewaySlowFirstToken"}

    async def load() -> None:
        for model in ("rejected", "failing"):
            await gateway.post(Format.CHAT, model=model)

    async def wait_for_stream(after: float) -> None:
        await asyncio.sleep(after)
        await gateway.post(Format.CHAT, model="slow", stream=True)

    slow = asyncio.gather(*(wait_for_stream(after) for after in (0.0, 0.5, 1.0, 1.5, 2.0)))
    async with repeating(load, 0.1):
        await wait_firing(prometheus, *names)
    await slow
    for name in ("rejected", "failing"):
        each.upstreams[name].respond_with(fixture_reply("chat"))
        gateway.daemon.runtime.health.reset((name, "a1"))  # as `gateway account reset`
    assert (await gateway.post(Format.CHAT, model="failing")).status == 200
    return names


async def budgets_end(gateway: RunningGateway, each: Incidents, prometheus: Prometheus) -> set[str]:
    reply = orjson.loads(fixture_reply("chat").body)
    reply["usage"] = {"prompt_tokens": 10, "completion_tokens": 8990, "total_tokens": 9000}
    each.upstreams["good"].respond_with(json_response(reply))
    operations = gateway.operations
    for name, units in (("nearly", 10_000), ("spent", 9_000)):
        await operations.create_group(name, ["*"], limits={"budget": units * MICRO_PER_UNIT})
        _, key = await operations.create_key(name, name)
        answer = await gateway.post(Format.CHAT, key=key, model="good")
        assert answer.status == 200
    names = {"GatewayBudgetNearlySpent", "GatewayBudgetSpent"}
    await wait_firing(prometheus, *names)
    for name in ("nearly", "spent"):
        await operations.update_group(name, limits={"budget": 10**6 * MICRO_PER_UNIT})
    return names


async def file_is_broken(
    gateway: RunningGateway, each: Incidents, prometheus: Prometheus
) -> set[str]:
    valid = each.file.read_bytes()
    each.file.write_text("channels: nonsense\n")
    await wait_firing(prometheus, "GatewayConfigInvalid")
    each.file.write_bytes(valid)
    return {"GatewayConfigInvalid"}


async def database_is_locked(
    gateway: RunningGateway, each: Incidents, prometheus: Prometheus
) -> set[str]:
    with locked(each.file.parent / "state" / DATABASE_NAME):
        assert (await gateway.post(Format.CHAT, model="good")).status == 200
        await wait_firing(prometheus, "GatewayLogUnwritten")
    return {"GatewayLogUnwritten"}


async def loop_stalls(prometheus: Prometheus) -> set[str]:
    async def stall() -> None:
        time.sleep(0.3)  # as some code would that must not

    async with repeating(stall, 0.3):
        await wait_firing(prometheus, "GatewayLoopLag")
    return {"GatewayLoopLag"}
