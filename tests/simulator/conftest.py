"""A simulator on a loopback port of its own, and the clients that talk to it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from aiohttp import ClientSession
from openai import AsyncOpenAI

from tests.support.simulator import run_simulator


@pytest.fixture
async def address() -> AsyncIterator[str]:
    async with run_simulator() as address:
        yield address


@pytest.fixture
async def openai(address: str) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(base_url=f"{address}/v1", api_key="sk-any", max_retries=0) as client:
        yield client


@pytest.fixture
async def http(address: str) -> AsyncIterator[ClientSession]:
    async with ClientSession(address) as session:
        yield session
