"""What most tests stand on: a scripted upstream, a running gateway before it, the stock clients."""

from __future__ import annotations

import gc
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI

from gateway.core.formats import Format
from tests.conformance import matrix
from tests.support import hypothesis_profiles
from tests.support.gateway import RunningGateway, channel, channels, run_gateway
from tests.support.simulator import run_simulator
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
    """A gateway whose channel leads to the simulator."""
    async with (
        run_simulator() as address,
        run_gateway(tmp_path, [channel(Format.CHAT, address)]) as gateway,
    ):
        yield gateway


pytest_terminal_summary = matrix.pytest_terminal_summary
