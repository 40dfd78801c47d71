"""A simulator on a loopback port of its own, and the stock client libraries that talk to it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from aiohttp import ClientSession, web
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI

from gateway.simulator import build_simulator


@pytest.fixture
async def address() -> AsyncIterator[str]:
    runner = web.AppRunner(build_simulator(pace=0))
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        yield f"http://{host}:{port}"
    finally:
        await runner.cleanup()


@pytest.fixture
async def openai(address: str) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(base_url=f"{address}/v1", api_key="sk-any", max_retries=0) as client:
        yield client


@pytest.fixture
async def anthropic(address: str) -> AsyncIterator[AsyncAnthropic]:
    async with AsyncAnthropic(base_url=address, api_key="sk-any", max_retries=0) as client:
        yield client


@pytest.fixture
async def http(address: str) -> AsyncIterator[ClientSession]:
    async with ClientSession(address) as session:
        yield session
