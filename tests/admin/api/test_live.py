"""Accounts and route previews of a running gateway, over the admin socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest

from gateway.admin.socket_path import socket_path
from gateway.core.formats import Format
from gateway.routing.failure_policy import AccountPenalty, Blame, Failover, Verdict
from tests.resilience.faults.upstream import FaultUpstream, fault_upstream
from tests.support.gateway import BETA, RunningGateway, channel, run_gateway

KEYS = {"one": "one-secret-4471", "two": "two-secret-4472"}
ONE, TWO = ("chat-main", "one"), ("chat-main", "two")


@pytest.fixture
async def upstream() -> AsyncIterator[FaultUpstream]:
    async with fault_upstream() as upstream:
        yield upstream


@pytest.fixture
async def gateway(tmp_path: Path, upstream: FaultUpstream) -> AsyncIterator[RunningGateway]:
    accounts = [{"name": name, "key": key, "concurrency": 1} for name, key in KEYS.items()]
    address = upstream.base_url(Format.CHAT)
    chat = channel(Format.CHAT, "", base_url=address, accounts=accounts, models={BETA: "upstream"})
    async with run_gateway(tmp_path / "state", [chat]) as gateway:
        yield gateway


@pytest.fixture
async def client(gateway: RunningGateway, tmp_path: Path) -> AsyncIterator[aiohttp.ClientSession]:
    connector = aiohttp.UnixConnector(str(socket_path(tmp_path / "state")))
    async with aiohttp.ClientSession("http://gateway/admin/api/", connector=connector) as session:
        yield session


async def content_of(answer: aiohttp.ClientResponse) -> Any:
    assert answer.status == 200, await answer.text()
    return orjson.loads(await answer.read())


async def accounts(client: aiohttp.ClientSession) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = (await content_of(await client.get("accounts")))["accounts"]
    return rows


async def why(client: aiohttp.ClientSession) -> dict[str, str]:
    """The first reason of each candidate."""
    query = {"model": BETA, "format": "chat"}
    preview = await content_of(await client.get("route", params=query))
    return {stop["account"]: stop["why"][0] for stop in preview["candidates"]}


async def fail(gateway: RunningGateway, upstream: FaultUpstream, *names: str) -> None:
    """Bans the accounts: their keys are refused. Others answer."""
    for name in names:
        upstream.set_plan("refuse:401", key=KEYS[name])
    for number in range(64):
        if all(upstream.requests_of(key=KEYS[name]) for name in names):
            return
        turns = [{"role": "user", "content": f"Hello {number}"}]
        await gateway.post(Format.CHAT, messages=turns)


async def test_running_requests_use_the_account(
    gateway: RunningGateway, upstream: FaultUpstream, client: aiohttp.ClientSession
) -> None:
    upstream.set_plan("stall:text")
    asking = asyncio.ensure_future(gateway.post(Format.CHAT, stream=True))
    call = await upstream.wait_for_request()
    async with asyncio.timeout(5):
        while not any(row["under_way"] for row in await accounts(client)):
            await asyncio.sleep(0.01)
    busy = next(name for name, key in KEYS.items() if key == call.key)
    rows = {row["account"]: row["under_way"] for row in await accounts(client)}
    assert rows == {name: int(name == busy) for name in KEYS}
    assert (await why(client))[busy] == "skipped: at its maximum concurrency"
    result = await content_of(await client.post(f"accounts/chat-main/{busy}/try"))
    assert (result["ok"], result["status"]) == (False, None)
    assert "as many requests as it may have" in result["error"]
    asking.cancel()


async def test_half_of_the_accounts_stay_in_use(
    gateway: RunningGateway, upstream: FaultUpstream, client: aiohttp.ClientSession
) -> None:
    await fail(gateway, upstream, "one", "two")
    first, second = sorted((await why(client)).values())
    assert first.startswith("first: ")
    assert first.endswith(
        "auth failed for another 30 min (key refused), but half of the accounts always stay in use"
    )
    assert second == "skipped: auth failed for another 30 min (key refused)"


async def test_a_half_open_account_gets_one_request(
    gateway: RunningGateway, upstream: FaultUpstream, client: aiohttp.ClientSession
) -> None:
    await fail(gateway, upstream, "one")
    runtime, now = gateway.daemon.runtime, asyncio.get_running_loop().time()
    assert runtime.health.admit(ONE, BETA, now, (ONE, TWO)) is None
    verdict = Verdict(
        "spent", Blame.ACCOUNT, Failover.YES, AccountPenalty.AUTH_FAILED, penalty_seconds=0.01
    )
    await client.put("accounts/chat-main/one/reset")
    banned = runtime.health.admit(ONE, BETA, now, (ONE, TWO))
    assert banned is not None
    runtime.health.record_failure(banned, verdict, now, 0.0, "spent")
    await asyncio.sleep(0.02)
    assert (await accounts(client))[0]["state"] == "half_open"
    rested = "half-open: this request would test it"
    assert (await why(client))["one"].endswith(rested)
    later = asyncio.get_running_loop().time()
    assert runtime.health.admit(ONE, BETA, later, (ONE, TWO)) is not None
    other = "skipped: half-open: another request is testing it"
    assert (await why(client))["one"] == other


async def test_a_failed_try_changes_nothing(
    gateway: RunningGateway, upstream: FaultUpstream, client: aiohttp.ClientSession
) -> None:
    before = await accounts(client)
    upstream.set_plan("refuse:503")
    for _ in range(6):
        result = await content_of(await client.post("accounts/chat-main/one/try"))
        assert (result["ok"], result["status"], result["verdict"]) == (False, 503, "overloaded")
    assert await accounts(client) == before
    assert (await gateway.operations.list_requests()).rows == []


async def test_a_try_leaves_no_state(
    gateway: RunningGateway, upstream: FaultUpstream, client: aiohttp.ClientSession
) -> None:
    runtime = gateway.daemon.runtime
    result = await content_of(
        await client.post("accounts/chat-main/one/try", params={"model": BETA})
    )
    assert result["ok"]
    assert result["output_tokens"] > 0
    assert (runtime.current.active_requests, len(runtime.scheduler)) == (0, 0)
    assert not any(row["under_way"] for row in await accounts(client))
    (call,) = upstream.requests
    sent = orjson.loads(call.body)
    assert (sent["model"], sent["max_completion_tokens"]) == ("upstream", 64)


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("PUT", "accounts/chat-main/three/reset", 404, "account_not_found"),
        ("PUT", "accounts/other/one/disable", 404, "account_not_found"),
        ("POST", "accounts/chat-main/one/try?model=none", 404, "model_not_found"),
        ("POST", "accounts/chat-main/one/try?modell=x", 400, "invalid_request"),
        ("GET", "route?model=x&format=smoke", 400, "invalid_request"),
        ("GET", "route?model=x&format=chat&group=none", 404, "group_not_found"),
    ],
)
async def test_refusals(
    client: aiohttp.ClientSession, method: str, path: str, status: int, code: str
) -> None:
    answer = await client.request(method, path)
    refused = orjson.loads(await answer.read())
    assert (answer.status, refused["error"]["code"]) == (status, code)


async def test_no_key_gives_access_over_tcp(gateway: RunningGateway) -> None:
    for path in ("/admin/api/accounts", "/admin/api/route?model=x&format=chat"):
        assert (await gateway.get(path)).status == 401


async def test_clients_with_a_wrong_base_url(
    gateway: RunningGateway, client: aiohttp.ClientSession
) -> None:
    for agent in ("one/1", "two/1", "two/2"):
        await gateway.get("/models", **{"user-agent": agent})
    assert await content_of(await client.get("misdirected")) == {
        "misdirected": [
            {"path": "/models", "agent": "two", "count": 2},
            {"path": "/models", "agent": "one", "count": 1},
        ]
    }
