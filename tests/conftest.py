"""What most tests stand on: a scripted upstream, a running gateway before it, the stock clients."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI

from gateway.simulator import build_simulator
from tests.conformance import matrix
from tests.support import hypothesis_profiles
from tests.support.gateway import RunningGateway, channels, run_gateway
from tests.support.kinds import mark_slow_kinds
from tests.support.upstream import ScriptedUpstream, scripted_upstream

hypothesis_profiles.register()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    mark_slow_kinds(items)


@pytest.fixture
async def upstream() -> AsyncIterator[ScriptedUpstream]:
    async with scripted_upstream() as upstream:
        yield upstream


@pytest.fixture
async def house(upstream: ScriptedUpstream, tmp_path: Path) -> AsyncIterator[RunningGateway]:
    """A gateway whose three channels lead to the scripted upstream."""
    async with run_gateway(tmp_path, channels(upstream.address)) as house:
        yield house


@pytest.fixture
async def simulated_house(tmp_path: Path) -> AsyncIterator[RunningGateway]:
    """A gateway whose three channels lead to the simulator."""
    runner = web.AppRunner(build_simulator(pace=0))
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        port = runner.addresses[0][1]
        async with run_gateway(tmp_path, channels(f"http://127.0.0.1:{port}")) as house:
            yield house
    finally:
        await runner.cleanup()


@pytest.fixture
async def openai(house: RunningGateway) -> AsyncIterator[AsyncOpenAI]:
    address = f"{house.address}/v1"
    async with AsyncOpenAI(base_url=address, api_key=house.key, max_retries=0) as client:
        yield client


@pytest.fixture
async def anthropic(house: RunningGateway) -> AsyncIterator[AsyncAnthropic]:
    async with AsyncAnthropic(base_url=house.address, api_key=house.key, max_retries=0) as client:
        yield client


pytest_terminal_summary = matrix.pytest_terminal_summary
