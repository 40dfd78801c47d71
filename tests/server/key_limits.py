"""Shared by tests of limits: keys with limits, expected errors, and what is in use."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from aiohttp import ClientResponse

from gateway.core.formats import Format
from gateway.core.limits import Cost, Limits
from gateway.quota.limits import HolderKind, ResourceRequest
from gateway.runtime import unix_microseconds
from gateway.store.records import Token
from tests.support.gateway import PATHS, RunningGateway, channels, request_body, run_gateway
from tests.support.upstream import ScriptedUpstream

GROUP = "default"


@dataclass(frozen=True, slots=True)
class ErrorReply:
    """An error as a client of any format reads it; `code` is None on messages, which has none."""

    status: int
    type: str
    message: str
    code: str | None = None


async def read_error(answer: ClientResponse) -> ErrorReply:
    body = await answer.json()
    error = body["error"]
    if body.get("type") == "error":
        assert body["request_id"] == answer.headers["request-id"]
        return ErrorReply(answer.status, error["type"], error["message"])
    assert set(body) == {"error"}
    assert set(error) == {"message", "type", "param", "code"}
    return ErrorReply(answer.status, error["type"], error["message"], error["code"])


def expected_error(
    format: Format, status: int, types: tuple[str, str], message: str, code: str
) -> Any:
    """`types` are that of messages and that of the others."""
    if format is Format.MESSAGES:
        return ErrorReply(status, types[0], message)
    return ErrorReply(status, types[1], message, code)


def limit_key(gateway: RunningGateway, **limits: int) -> None:
    """The gateway's key has these limits from the next request on."""
    registry = gateway.daemon.runtime.registry
    token = registry.token(gateway.token.id)
    assert token is not None
    registry.put_token(replace(token, limits=Limits(**limits)))


def limit_group(gateway: RunningGateway, **limits: int) -> None:
    """The same for the group of the gateway's key."""
    registry = gateway.daemon.runtime.registry
    group = registry.group(GROUP)
    assert group is not None
    registry.put_group(replace(group, limits=Limits(**limits)))


def use_quota(
    gateway: RunningGateway,
    *,
    ago: float,
    tokens: int = 0,
    micro: int = 0,
    token: Token | None = None,
) -> None:
    """The gateway's key has made a request of so many tokens, `ago` seconds before now."""
    runtime = gateway.daemon.runtime
    now = asyncio.get_running_loop().time() - ago
    permit = runtime.permit(runtime.registry.token((token or gateway.token).id) or gateway.token)
    request = ResourceRequest(permit.holders, runtime.now(), tokens, Cost(micro))
    reservation = runtime.quota.acquire(request, now)
    reservation.settle(tokens, Cost(micro))


def shift_clock(gateway: RunningGateway, seconds: float) -> None:
    """From now on it is so much later than it is."""
    gateway.daemon.runtime.now = lambda: unix_microseconds() + int(seconds * 1e6)


def in_use(gateway: RunningGateway) -> list[tuple[int, int]]:
    """How many running requests the key, its group and the gateway have, and how much money is
    reserved for them."""
    quota = gateway.daemon.runtime.quota
    tallies = [
        quota._usages.get(holder)
        for holder in (
            (HolderKind.KEY, gateway.token.id),
            (HolderKind.GROUP, GROUP),
            (HolderKind.GATEWAY, ""),
        )
    ]
    return [(tally.running, tally.budgets[0].reserved) if tally else (0, 0) for tally in tallies]


NOTHING_IN_USE = [(0, 0)] * 3


async def wait_all_released(gateway: RunningGateway) -> None:
    """Waits until nothing is in hand any more."""
    async with asyncio.timeout(2):
        while in_use(gateway) != NOTHING_IN_USE:
            await asyncio.sleep(0.005)


def start_request(
    gateway: RunningGateway, format: Format = Format.CHAT, **fields: Any
) -> asyncio.Task[Any]:
    """A request of which nothing is read: it runs until its upstream or its client ends it."""
    return asyncio.ensure_future(
        gateway.http.post(
            PATHS[format],
            json=request_body(format, **fields),
            headers={"x-api-key": gateway.key, "anthropic-version": "2023-06-01"},
        )
    )


async def cancel(task: asyncio.Task[Any]) -> None:
    task.cancel()
    await asyncio.wait({task})


@asynccontextmanager
async def gateway_with_queue(
    upstream: ScriptedUpstream, state: Path, wait: float = 5, **config: Any
) -> AsyncIterator[RunningGateway]:
    """A gateway in which requests wait for their turn, for so many seconds at most."""
    limits = {"max_wait": wait} | config.pop("limits", {})
    async with run_gateway(state, channels(upstream.address), limits=limits, **config) as gateway:
        yield gateway


async def wait_queued(gateway: RunningGateway, count: int = 1) -> None:
    """Waits until this many requests are queued."""
    async with asyncio.timeout(2):
        while gateway.daemon.runtime.admission.waiting != count:
            await asyncio.sleep(0.005)
