"""One gateway for all tests of a module that only send requests: to start one takes 60 ms.

A module says so with `pytestmark = pytest.mark.shared_gateway`; its tests run in one loop, and
their fixtures `upstream`, `gateway`, `openai` and `anthropic` are then those of this file. Whatever
a gateway learns from requests, it forgets before each test, which has an upstream, a key and
connections of its own. A test that changes more than that fails, and needs
`@pytest.mark.own_gateway`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import fields, replace
from functools import partial
from typing import Any, Final

import orjson
import pytest
import pytest_asyncio
from aiohttp import ClientSession
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI

from gateway.config.load import parse_config
from gateway.runtime import Runtime
from tests.support.gateway import RunningGateway, channels, gateway_config, run_gateway
from tests.support.stock_clients import open_anthropic, open_openai
from tests.support.timing import SLACK
from tests.support.upstream import ScriptedUpstream, scripted_upstream

LEARNED: Final = (
    *("health", "latency", "affinity_index", "retry_budget", "stream_only"),
    *("plain_reasoning", "refusals", "distinct_values"),
    *("input_estimates", "output_estimates", "bad_paths"),
)
"""Fields of a runtime that are made anew for each test."""
CHANGING: Final = (
    *("current", "metrics", "observers", "_permits", "_permits_version"),
    *("active_requests", "open_streams", "begin_trace"),
)
"""Those that come with the configuration, which each test has for itself; of what runs; and who
observes it, which is nobody at first."""

in_the_modules_loop = partial(pytest_asyncio.fixture, loop_scope="module")


def is_shared(test: pytest.Item) -> bool:
    own = test.get_closest_marker("own_gateway")
    return own is None and test.get_closest_marker("shared_gateway") is not None


def pytest_itemcollected(item: pytest.Item) -> None:
    in_a_loop = item.get_closest_marker("asyncio")
    if is_shared(item) and in_a_loop is not None and not in_a_loop.kwargs:
        item.add_marker(pytest.mark.asyncio(loop_scope="module"), append=False)


@pytest.fixture
def upstream(request: pytest.FixtureRequest) -> ScriptedUpstream:
    return _of(request, "upstream_of_shared", "upstream_of_test")


@pytest.fixture
def gateway(request: pytest.FixtureRequest) -> RunningGateway:
    """A gateway whose three channels lead to the scripted upstream."""
    return _of(request, "shared_gateway", "gateway_of_test")


@pytest.fixture
def openai(request: pytest.FixtureRequest) -> AsyncOpenAI:
    return _of(request, "openai_of_shared", "openai_of_test")


@pytest.fixture
def anthropic(request: pytest.FixtureRequest) -> AsyncAnthropic:
    return _of(request, "anthropic_of_shared", "anthropic_of_test")


def _of(request: pytest.FixtureRequest, shared: str, own: str) -> Any:
    return request.getfixturevalue(shared if is_shared(request.node) else own)


@in_the_modules_loop()
async def upstream_of_shared() -> AsyncIterator[ScriptedUpstream]:
    async with scripted_upstream() as upstream:
        yield upstream


@in_the_modules_loop(scope="module")
async def gateway_of_module(
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[RunningGateway]:
    async with run_gateway(tmp_path_factory.mktemp("gateway"), []) as gateway:
        yield gateway


@in_the_modules_loop()
async def shared_gateway(
    gateway_of_module: RunningGateway, upstream_of_shared: ScriptedUpstream
) -> AsyncIterator[RunningGateway]:
    async with as_new(gateway_of_module, channels(upstream_of_shared.address)) as gateway:
        yield gateway


@in_the_modules_loop()
async def openai_of_shared(shared_gateway: RunningGateway) -> AsyncIterator[AsyncOpenAI]:
    async with open_openai(shared_gateway) as client:
        yield client


@in_the_modules_loop()
async def anthropic_of_shared(shared_gateway: RunningGateway) -> AsyncIterator[AsyncAnthropic]:
    async with open_anthropic(shared_gateway) as client:
        yield client


@asynccontextmanager
async def as_new(
    gateway: RunningGateway, channels: list[dict[str, Any]], **config: Any
) -> AsyncIterator[RunningGateway]:
    """The gateway as if it had just started with this configuration, and with a new key."""
    runtime, operations = gateway.daemon.runtime, gateway.operations
    await _until_idle(runtime)
    _forget(runtime)
    config = gateway_config(runtime.config.state_dir, channels, **config)
    runtime.replace_config(parse_config(orjson.dumps(config).decode()))
    token, key = await operations.create_key("tests", "default")
    before = _kept(runtime)
    async with ClientSession(gateway.address) as http:
        first_id = f"req_{runtime.now():014x}"
        yield replace(gateway, token=token, key=key, http=http, first_id=first_id)
    after = _kept(runtime)
    changed = [name for name in before if after[name] is not before[name]]
    assert not changed, f"a test that changes {changed} needs a gateway of its own"


async def _until_idle(runtime: Runtime) -> None:
    """Requests of an earlier test end with its upstream."""
    async with asyncio.timeout(SLACK):
        while runtime.active_requests or runtime.background_drains:
            await asyncio.sleep(0.002)


def _forget(runtime: Runtime) -> None:
    fresh = {each.name: each.default_factory for each in fields(runtime)}
    for name in LEARNED:
        setattr(runtime, name, fresh[name]())  # type: ignore[operator]  # all of them have one
    runtime.metrics, runtime.begin_trace, runtime.observers = None, None, ()


def _kept(runtime: Runtime) -> dict[str, Any]:
    """What no request changes: the objects that the gateway's parts share, its groups too."""
    names = (each.name for each in fields(runtime))
    objects = {name: getattr(runtime, name) for name in names if name not in CHANGING}
    return objects | {"the default group": runtime.registry.group("default")}
