"""Stored and background responses of one replica, asked for at another."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from time import perf_counter
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI

from gateway.core.formats import Format
from gateway.server.stored.background import end_interrupted
from gateway.store.records import TokenState
from tests.server.stored.test_background import client_of, ended, follow, slow_stream, stalled
from tests.support.gateway import BETA, RunningGateway, channel
from tests.support.replicas import run_replicas
from tests.support.upstream import ScriptedUpstream, fixture_reply

pytestmark = pytest.mark.fleet


@asynccontextmanager
async def pair(
    upstream: ScriptedUpstream, folder: Path, **config: Any
) -> AsyncIterator[tuple[list[RunningGateway], AsyncOpenAI, AsyncOpenAI]]:
    """Two replicas, and a client of each with the first one's key."""
    lines = [channel(Format.RESPONSES, upstream.address)]
    async with asyncio.timeout(40), run_replicas(folder, 2, lines, **config) as gateways:
        a, b = gateways
        async with client_of(a) as client, client_of(b, a.key) as other:
            yield gateways, client, other


@pytest.mark.slow("starts replicas")
async def test_a_reply_is_continued_and_deleted_anywhere(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    upstream.respond_with(fixture_reply(Format.RESPONSES))
    async with pair(upstream, tmp_path) as (_, a, b):
        previous = None
        for number in range(20):  # at once, from replica to replica
            client = (a, b)[number % 2]
            reply = await client.responses.create(
                model=BETA, input=f"Turn {number}", previous_response_id=previous
            )
            previous = reply.id
        assert len(upstream.last_request.json["input"]) == 39
        assert (await b.responses.retrieve(reply.id)).id == reply.id
        items = await a.responses.input_items.list(reply.id, order="asc", limit=100)
        assert len(items.data) == 39
        await a.responses.delete(reply.id)
        with pytest.raises(openai.NotFoundError):
            await b.responses.retrieve(reply.id)


async def test_an_old_unknown_id_is_not_waited_for(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    async with pair(upstream, tmp_path) as (_, a, _b):
        started = perf_counter()
        with pytest.raises(openai.NotFoundError):
            await a.responses.retrieve("resp_0005f000000000aaaaaaaaaa")
        assert perf_counter() - started < 0.5


async def test_a_background_response_of_another_replica_is_polled_and_followed(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    upstream.respond_with(slow_stream(Format.RESPONSES, 0.15))
    async with pair(upstream, tmp_path) as (_, a, b):
        first: list[Any] = []
        stream = await a.responses.create(model=BETA, input="Hi", background=True, stream=True)
        async for event in stream:
            first.append(event)
            if len(first) == 3:
                break
        await stream.close()
        id = first[0].response.id
        seen = await b.responses.retrieve(id)
        assert (seen.status in ("queued", "in_progress"), seen.output) == (True, [])
        events = await follow(b, id, -1)
        assert [event.sequence_number for event in events] == list(range(12))
        rest = await follow(b, id, 4)
        assert [event.sequence_number for event in rest] == list(range(5, 12))
        assert (await ended(b, id)).output_text == "Hello, world!"


async def test_it_is_cancelled_from_another_replica_within_a_second(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    upstream.respond_with(stalled(Format.RESPONSES, 8))
    async with pair(upstream, tmp_path) as (gateways, a, b):
        created = await a.responses.create(model=BETA, input="Hi", background=True)
        async with asyncio.timeout(3):
            while (await b.responses.retrieve(created.id)).status != "in_progress":
                await asyncio.sleep(0.05)
        started = perf_counter()
        cancelled = await b.responses.cancel(created.id)
        seconds = perf_counter() - started
        assert cancelled.status == "cancelled"
        assert seconds < 1.5  # the cancel, the commit, and the next look at it
        assert (await a.responses.retrieve(created.id)).status == "cancelled"
        assert (await b.responses.cancel(created.id)).status == "cancelled"  # again: as it is
        assert gateways[0].daemon.runtime.active_requests == 0


async def test_a_key_that_is_revoked_at_another_replica_cancels_what_runs(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    upstream.respond_with(stalled(Format.RESPONSES, 8))
    async with pair(upstream, tmp_path) as ((first, second), a, _):
        created = await a.responses.create(model=BETA, input="Hi", background=True)
        request = await upstream.wait_for_request()
        changes = {"state": TokenState.DISABLED, "let_run": True}
        await second.operations.update_key(first.token.id, **changes)
        await asyncio.sleep(1)
        assert not request.disconnected.is_set()
        await second.operations.revoke_key(first.token.id)
        async with asyncio.timeout(2):
            await request.disconnected.wait()
            find = second.daemon.runtime.responses.find
            while (row := await find(first.token.id, created.id)) and row.status != "cancelled":
                await asyncio.sleep(0.05)


async def test_what_another_living_replica_runs_is_left_alone(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    upstream.respond_with(stalled(Format.RESPONSES, 8))
    async with pair(upstream, tmp_path) as (gateways, a, b):
        created = await a.responses.create(model=BETA, input="Hi", background=True)
        assert await end_interrupted(gateways[1].daemon.runtime.responses) == 0
        assert (await b.responses.retrieve(created.id)).status in ("queued", "in_progress")
        await a.responses.cancel(created.id)


async def test_the_limit_of_a_key_counts_all_replicas(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    upstream.respond_with(stalled(Format.RESPONSES, 8))
    limits = {"limits": {"background_per_key": 2}}
    async with pair(upstream, tmp_path, **limits) as (_, a, b):
        running = [
            await client.responses.create(model=BETA, input="Hi", background=True)
            for client in (a, b)
        ]
        for client in (a, b):
            with pytest.raises(openai.RateLimitError, match="background"):
                await client.responses.create(model=BETA, input="Hi", background=True)
        for response in running:
            await b.responses.cancel(response.id)
