"""A conversation that requests at several replicas read and extend."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import openai
import pytest
from openai import AsyncOpenAI

from gateway.core.formats import Format
from tests.server.stored.test_background import client_of
from tests.support.gateway import BETA, RunningGateway, channel
from tests.support.replicas import run_replicas
from tests.support.upstream import ScriptedUpstream, fixture_reply

pytestmark = pytest.mark.fleet


@asynccontextmanager
async def pair(
    upstream: ScriptedUpstream, folder: Path
) -> AsyncIterator[tuple[list[RunningGateway], AsyncOpenAI, AsyncOpenAI]]:
    lines = [channel(Format.RESPONSES, upstream.address)]
    async with asyncio.timeout(40), run_replicas(folder, 2, lines) as gateways:
        a, b = gateways
        async with client_of(a) as client, client_of(b, a.key) as other:
            yield gateways, client, other


async def test_turns_from_replica_to_replica(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    upstream.respond_with(fixture_reply(Format.RESPONSES))
    async with pair(upstream, tmp_path) as (_, a, b):
        conversation = await a.conversations.create()
        for number in range(10):
            client = (a, b)[number % 2]
            await client.responses.create(model=BETA, input="Hi", conversation=conversation.id)
        assert len(upstream.last_request.json["input"]) == 19
        await asyncio.sleep(0.2)
        items = await a.conversations.items.list(conversation.id, limit=100)
        assert len(items.data) == 20


async def test_one_request_at_a_time_extends_it(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    upstream.respond_with(fixture_reply(Format.RESPONSES).with_changes(delay=3))
    async with pair(upstream, tmp_path) as (_, a, b):
        conversation = await a.conversations.create()
        asked = {"model": BETA, "input": "Hi", "conversation": conversation.id}
        first = asyncio.ensure_future(a.responses.create(**asked))
        await upstream.wait_for_request()
        with pytest.raises(openai.ConflictError):
            await b.responses.create(**asked)
        await first
        upstream.respond_with(fixture_reply(Format.RESPONSES))
        await b.responses.create(**asked)


async def test_a_replica_that_lost_its_connection_takes_its_locks_again(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    upstream.respond_with(fixture_reply(Format.RESPONSES).with_changes(delay=3))
    async with pair(upstream, tmp_path) as (gateways, a, b):
        conversation, other = await a.conversations.create(), await a.conversations.create()
        asked = {"model": BETA, "input": "Hi", "conversation": conversation.id}
        first = asyncio.ensure_future(a.responses.create(**asked))
        await upstream.wait_for_request()
        locks = gateways[0].daemon.runtime.responses.database.locks
        assert locks is not None
        locks._connection.terminate()
        await a.conversations.items.create(
            other.id, items=[{"role": "user", "content": "It connects again."}]
        )
        with pytest.raises(openai.ConflictError):
            await b.responses.create(**asked)
        await first
