"""How a wait in the queue ends otherwise: a revoked key, a stalled loop, a shutdown."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from gateway.core.formats import Format
from gateway.store.records import ExchangeState
from tests.server.key_limits import (
    cancel,
    gateway_with_queue,
    limit_key,
    read_error,
    shift_clock,
    start_request,
    use_quota,
    wait_all_released,
    wait_queued,
)
from tests.support.gateway import PATHS, RunningGateway, request_body
from tests.support.upstream import Ending, Response, ScriptedUpstream, fixture_reply

SILENT = Response(ending=Ending.STALLED)
NEVER = 30.0


async def disable(gateway: RunningGateway) -> None:
    await gateway.operations.update_key(gateway.token.id, state="disabled")


async def revoke(gateway: RunningGateway) -> None:
    await gateway.operations.revoke_key(gateway.token.id)


async def expire(gateway: RunningGateway) -> None:
    await gateway.operations.update_key(
        gateway.token.id, expires_at=gateway.daemon.runtime.now() + 10**6
    )
    shift_clock(gateway, 2)


async def rotate(gateway: RunningGateway) -> None:
    await gateway.operations.rotate_key(gateway.token.id, 0)


@pytest.mark.parametrize("void", [disable, revoke, expire, rotate])
async def test_a_key_that_is_revoked_while_queued_is_rejected(
    upstream: ScriptedUpstream, tmp_path: Path, void: Callable[[RunningGateway], Awaitable[None]]
) -> None:
    upstream.respond_with(SILENT, fixture_reply("chat"))
    async with gateway_with_queue(upstream, tmp_path) as gateway:
        limit_key(gateway, concurrent=1, tokens_per_minute=10_000, budget=10**12)
        running = start_request(gateway)
        await upstream.wait_for_request()
        waits = asyncio.ensure_future(gateway.post(Format.CHAT))
        await wait_queued(gateway)
        await void(gateway)
        await cancel(running)
        error = await read_error(await waits)
        assert (error.status, error.message) == (401, "Invalid token")
        await wait_all_released(gateway)
        row = (await gateway.rows(2))[-1]
        assert (row.state, row.status, row.cost_micro) == (ExchangeState.REJECTED, 401, 0)
    assert len(upstream.requests) == 1


async def test_a_key_that_is_rotated_while_queued_keeps_its_place(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    upstream.respond_with(SILENT, fixture_reply("chat"))
    async with gateway_with_queue(upstream, tmp_path) as gateway:
        limit_key(gateway, concurrent=1)
        running = start_request(gateway)
        await upstream.wait_for_request()
        waits = asyncio.ensure_future(gateway.post(Format.CHAT))
        await wait_queued(gateway)
        await gateway.operations.rotate_key(gateway.token.id, 3600 * 10**6)
        await cancel(running)
        assert (await waits).status == 200


async def test_a_request_with_two_keys_waits_for_one_of_them(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    """What the one has waited for is not the other's."""
    upstream.respond_with(SILENT)
    async with gateway_with_queue(upstream, tmp_path) as gateway:
        limit_key(gateway, concurrent=1)
        other = await gateway.key_for_models("*")
        running = start_request(gateway)
        await upstream.wait_for_request()
        bearer = {"authorization": f"Bearer {other}"}
        waits = asyncio.ensure_future(
            gateway.http.post(
                PATHS[Format.CHAT],
                json=request_body(Format.CHAT),
                headers={"x-api-key": gateway.key} | bearer,
            )
        )
        await wait_queued(gateway)
        await disable(gateway)
        await cancel(running)
        assert (await waits).status == 401
    assert len(upstream.requests) == 1


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_stalled_loop_rejects_requests_that_waited_too_long(
    upstream: ScriptedUpstream, tmp_path: Path, streamed: bool
) -> None:
    upstream.respond_with(SILENT)
    async with gateway_with_queue(upstream, tmp_path, 0.4) as gateway:
        limit_key(gateway, concurrent=1)
        running = start_request(gateway)
        await upstream.wait_for_request()
        waits = asyncio.ensure_future(gateway.post(Format.CHAT, stream=streamed))
        await wait_queued(gateway)
        time.sleep(1.6)
        error = await read_error(await waits)
        assert (error.status, error.code) == (429, "rate_limit_exceeded")
        assert "1 of 1 concurrent request" in error.message
        await cancel(running)


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_shutdown_that_can_wait_no_longer_ends_the_wait(
    upstream: ScriptedUpstream, tmp_path: Path, streamed: bool
) -> None:
    upstream.respond_with(SILENT)
    async with gateway_with_queue(upstream, tmp_path, NEVER) as gateway:
        limit_key(gateway, concurrent=1)
        running = start_request(gateway)
        await upstream.wait_for_request()
        waits = asyncio.ensure_future(gateway.post(Format.CHAT, stream=streamed))
        await wait_queued(gateway)
        gateway.daemon.abort()
        answer = await waits
        assert (await read_error(answer)).status == 503
        await cancel(running)
        await wait_queued(gateway, 0)
        await wait_all_released(gateway)


async def test_queued_requests_end_within_the_drain_time(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    upstream.respond_with(fixture_reply("chat"))
    server = {"drain_timeout": 2}
    async with gateway_with_queue(upstream, tmp_path, NEVER, server=server) as gateway:
        limit_key(gateway, requests_per_minute=1)
        use_quota(gateway, ago=59.5)
        waits = asyncio.ensure_future(gateway.post(Format.CHAT))
        await wait_queued(gateway)
        began = time.perf_counter()
        gateway.daemon.runtime.draining = True
        assert (await waits).status == 200
        assert time.perf_counter() - began < 2
