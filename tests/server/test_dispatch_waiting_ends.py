"""What ends a wait in line but room: a key that is void by then, a stall, a shutdown."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from gateway.core.formats import Format
from gateway.store.records import ExchangeState
from tests.house import PATHS, House, prompt
from tests.scripted import Ending, Script, ScriptedUpstream, reply
from tests.server.limiting import (
    all_given_back,
    ask_and_wait,
    end,
    limit_key,
    patient,
    refused,
    shift_clock,
    spend,
    waiting,
)

SILENT = Script(ending=Ending.SILENT)
NEVER = 30.0


async def disable(house: House) -> None:
    await house.desk.change_key(house.token.id, state="disabled")


async def revoke(house: House) -> None:
    await house.desk.revoke_key(house.token.id)


async def expire(house: House) -> None:
    await house.desk.change_key(house.token.id, expires_at=house.daemon.runtime.now() + 10**6)
    shift_clock(house, 2)


async def rotate(house: House) -> None:
    await house.desk.rotate_key(house.token.id, 0)


@pytest.mark.parametrize("void", [disable, revoke, expire, rotate])
async def test_a_key_that_is_void_when_the_turn_comes_is_refused(
    upstream: ScriptedUpstream, tmp_path: Path, void: Callable[[House], Awaitable[None]]
) -> None:
    upstream.play(SILENT, reply("chat"))
    async with patient(upstream, tmp_path) as house:
        limit_key(house, concurrent=1, tokens_per_minute=10_000, budget=10**12)
        running = ask_and_wait(house)
        await upstream.asked()
        waits = asyncio.ensure_future(house.ask(Format.CHAT))
        await waiting(house)
        await void(house)
        await end(running)
        told = await refused(await waits)
        assert (told.status, told.message) == (401, "Invalid token")
        await all_given_back(house)
        row = (await house.rows(2))[-1]
        assert (row.state, row.status, row.cost_micro) == (ExchangeState.REJECTED, 401, 0)
    assert len(upstream.seen) == 1


async def test_a_key_that_is_rotated_in_time_keeps_its_place(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    upstream.play(SILENT, reply("chat"))
    async with patient(upstream, tmp_path) as house:
        limit_key(house, concurrent=1)
        running = ask_and_wait(house)
        await upstream.asked()
        waits = asyncio.ensure_future(house.ask(Format.CHAT))
        await waiting(house)
        await house.desk.rotate_key(house.token.id, 3600 * 10**6)
        await end(running)
        assert (await waits).status == 200


async def test_a_request_with_two_keys_waits_for_one_of_them(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    """What the one has waited for is not the other's."""
    upstream.play(SILENT)
    async with patient(upstream, tmp_path) as house:
        limit_key(house, concurrent=1)
        other = await house.key_of("*")
        running = ask_and_wait(house)
        await upstream.asked()
        bearer = {"authorization": f"Bearer {other}"}
        waits = asyncio.ensure_future(
            house.http.post(
                PATHS[Format.CHAT],
                json=prompt(Format.CHAT),
                headers={"x-api-key": house.key} | bearer,
            )
        )
        await waiting(house)
        await disable(house)
        await end(running)
        assert (await waits).status == 401
    assert len(upstream.seen) == 1


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_loop_that_stalls_refuses_who_has_waited_too_long(
    upstream: ScriptedUpstream, tmp_path: Path, streamed: bool
) -> None:
    upstream.play(SILENT)
    async with patient(upstream, tmp_path, 0.4) as house:
        limit_key(house, concurrent=1)
        running = ask_and_wait(house)
        await upstream.asked()
        waits = asyncio.ensure_future(house.ask(Format.CHAT, stream=streamed))
        await waiting(house)
        time.sleep(1.6)
        told = await refused(await waits)
        assert (told.status, told.code) == (429, "rate_limit_exceeded")
        assert "1 request at once" in told.message
        await end(running)


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_shutdown_that_can_wait_no_longer_ends_the_wait(
    upstream: ScriptedUpstream, tmp_path: Path, streamed: bool
) -> None:
    upstream.play(SILENT)
    async with patient(upstream, tmp_path, NEVER) as house:
        limit_key(house, concurrent=1)
        running = ask_and_wait(house)
        await upstream.asked()
        waits = asyncio.ensure_future(house.ask(Format.CHAT, stream=streamed))
        await waiting(house)
        house.daemon.abort()
        answer = await waits
        assert (await refused(answer)).status == 503
        await end(running)
        await waiting(house, 0)
        await all_given_back(house)


async def test_a_shutdown_lets_who_waits_have_the_drain_time(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    upstream.play(reply("chat"))
    server = {"drain_timeout": 30}
    async with patient(upstream, tmp_path, NEVER, server=server) as house:
        limit_key(house, requests_per_minute=1)
        spend(house, ago=59.5)
        waits = asyncio.ensure_future(house.ask(Format.CHAT))
        await waiting(house)
        house.daemon.runtime.draining = True
        assert (await house.ask(Format.CHAT)).status == 503, "nobody new gets in line"
        assert (await waits).status == 200
