"""What most tests stand on: a scripted upstream, a running gateway before it, the stock clients."""

from __future__ import annotations

import gc
import signal
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
from tests.support.stock_clients import open_anthropic, open_openai
from tests.support.upstream import ScriptedUpstream, scripted_upstream

hypothesis_profiles.register()
pytest_plugins = [
    "tests.support.kinds",
    "tests.support.durations",
    "tests.support.compiled_statements",
    "tests.support.database_option",
    "tests.support.memory",
    "tests.support.shared_gateway",
]


def pytest_configure() -> None:
    """A shell that runs the tests in the background ignores SIGINT; their processes must not."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """Collections of garbage skip the collected tests, which stay until the end: they would take a
    second each."""
    gc.collect()
    gc.freeze()


@pytest.fixture
async def upstream_of_test() -> AsyncIterator[ScriptedUpstream]:
    async with scripted_upstream() as upstream:
        yield upstream


@pytest.fixture
async def gateway_of_test(
    upstream: ScriptedUpstream, tmp_path: Path
) -> AsyncIterator[RunningGateway]:
    async with run_gateway(tmp_path, channels(upstream.address)) as gateway:
        yield gateway


@pytest.fixture
async def openai_of_test(gateway: RunningGateway) -> AsyncIterator[AsyncOpenAI]:
    async with open_openai(gateway) as client:
        yield client


@pytest.fixture
async def anthropic_of_test(gateway: RunningGateway) -> AsyncIterator[AsyncAnthropic]:
    async with open_anthropic(gateway) as client:
        yield client


@pytest.fixture
async def simulated_gateway(tmp_path: Path) -> AsyncIterator[RunningGateway]:
    """A gateway whose three channels lead to the simulator."""
    runner = web.AppRunner(build_simulator(pace=0))
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        port = runner.addresses[0][1]
        async with run_gateway(tmp_path, channels(f"http://127.0.0.1:{port}")) as gateway:
            yield gateway
    finally:
        await runner.cleanup()


pytest_terminal_summary = matrix.pytest_terminal_summary
