"""The gateways, upstreams and clients that these tests share, and the matrix of what passed."""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI

from gateway.core.formats import Format
from gateway.routing.health import Health
from tests.conformance import matrix
from tests.conformance.clients.base import Conversation
from tests.conformance.pairs import PAIRS, Clients, Pair, clients_of, pair_config
from tests.conformance.validating_upstream import ValidatingUpstream, validating_upstream
from tests.support.gateway import channel, channels
from tests.support.simulator import run_simulator
from tests.support.upstream import ScriptedUpstream, scripted_upstream

session = pytest_asyncio.fixture(scope="session", loop_scope="session")


@pytest.fixture(scope="module", autouse=True)
def swept() -> Iterator[None]:
    """Streams that break leave generators in cycles. They must be closed in the thread of their
    loop, and not wherever the collector happens to start: the ledger has threads of its own."""
    gc.disable()
    yield
    gc.collect()
    gc.enable()


@pytest.fixture(params=PAIRS, ids=lambda pair: pair.id)
def pair(request: pytest.FixtureRequest) -> Pair:
    pair: Pair = request.param
    return pair


@session
async def strict_upstream() -> AsyncIterator[ValidatingUpstream]:
    async with validating_upstream() as upstream:
        yield upstream


@session
async def clients(
    strict_upstream: ValidatingUpstream, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Clients]:
    state_dir: Path = tmp_path_factory.mktemp("pairs")
    async with clients_of(state_dir, **pair_config(strict_upstream.address)) as clients:
        yield clients


@pytest.fixture
def vendor(strict_upstream: ValidatingUpstream) -> Iterator[ValidatingUpstream]:
    """The upstream, which at the end must have had nothing to complain of."""
    strict_upstream.play()
    yield strict_upstream
    assert strict_upstream.violations == []


@pytest.fixture
def conversation(pair: Pair, clients: Clients) -> Conversation:
    return clients.conversation(pair.client, pair.model)


@session
async def scripted() -> AsyncIterator[ScriptedUpstream]:
    async with scripted_upstream() as upstream:
        yield upstream


@session
async def scripted_clients(
    scripted: ScriptedUpstream, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Clients]:
    state_dir: Path = tmp_path_factory.mktemp("scripted")
    async with clients_of(state_dir, channels(scripted.address)) as clients:
        yield clients


@session
async def scripted_pairs(
    scripted: ScriptedUpstream, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Clients]:
    state_dir: Path = tmp_path_factory.mktemp("scripted-pairs")
    async with clients_of(state_dir, **pair_config(scripted.address)) as clients:
        yield clients


@pytest.fixture
def upstream(scripted: ScriptedUpstream, scripted_clients: Clients) -> ScriptedUpstream:
    """As if nobody had asked it before."""
    scripted_clients.gateway.daemon.runtime.health = Health()
    scripted.respond_with()
    scripted.requests.clear()
    return scripted


@pytest.fixture
def openai(scripted_clients: Clients) -> AsyncOpenAI:
    return scripted_clients.openai


@pytest.fixture
def anthropic(scripted_clients: Clients) -> AsyncAnthropic:
    return scripted_clients.anthropic


@session
async def simulator() -> AsyncIterator[str]:
    """The address of one that answers at once."""
    async with run_simulator() as address:
        yield address


@session
async def simulated(
    simulator: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Clients]:
    state_dir: Path = tmp_path_factory.mktemp("simulated")
    async with clients_of(state_dir, [channel(Format.CHAT, simulator)]) as clients:
        yield clients


@session
async def simulated_pairs(
    simulator: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Clients]:
    state_dir: Path = tmp_path_factory.mktemp("simulated-pairs")
    async with clients_of(state_dir, **pair_config(simulator)) as clients:
        yield clients


pytest_itemcollected = matrix.pytest_itemcollected
