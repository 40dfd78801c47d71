"""Clients that ask for large stored bodies, and read them or not."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import orjson
import pytest
from openai import AsyncOpenAI

from gateway.core.formats import Format
from gateway.store.records import ExchangeState
from tests.support.gateway import BETA, RunningGateway, channels, run_gateway
from tests.support.raw_client import RawClient, raw_client, request
from tests.support.timing import until_within
from tests.support.upstream import ScriptedUpstream, fixture_reply, json_response

MIB = 2**20
POOL = 24 * MIB
"""Of which one key can have a half."""
READERS = 12
SMALL = 4096
"""Bytes that the kernel keeps for a client, which it doubles."""
CREATED = 3
"""Requests of `stored`."""


async def stored(gateway: RunningGateway, upstream: ScriptedUpstream) -> list[str]:
    """The paths of bodies of some 3 MiB."""
    reply = orjson.loads(fixture_reply(Format.RESPONSES, "text").body)
    reply["output"][0]["content"][0]["text"] = "y" * (3 * MIB)
    upstream.respond_with(json_response(reply))
    text, address = "x" * (3 * MIB), f"{gateway.address}/v1"
    async with AsyncOpenAI(base_url=address, api_key=gateway.key, max_retries=0) as client:
        response = await client.responses.create(model=BETA, input=text)
        item: Any = {"role": "user", "content": text}
        conversation = await client.conversations.create(items=[item])
        items = await client.conversations.items.list(conversation.id)
    of_conversation = f"/v1/conversations/{conversation.id}/items"
    return [
        f"/v1/responses/{response.id}",
        f"/v1/responses/{response.id}/input_items",
        of_conversation,
        f"{of_conversation}/{items.data[0].id}",
    ]


async def ask(gateway: RunningGateway, client: RawClient, path: str) -> None:
    key = {"authorization": f"Bearer {gateway.key}"}
    await client.send(request(gateway.address, path, headers=key, method="GET"))


@pytest.mark.large
@pytest.mark.parametrize("which", range(4))
async def test_bodies_that_nobody_reads_are_memory(
    upstream: ScriptedUpstream, tmp_path: Path, which: int
) -> None:
    limits = {"max_body": 8 * MIB, "max_bodies": POOL}
    async with (
        run_gateway(tmp_path, channels(upstream.address), server=limits) as gateway,
        AsyncExitStack() as stack,
    ):
        path = (await stored(gateway, upstream))[which]
        pool = gateway.daemon.runtime.bodies
        assert pool.total == 0
        statuses = []
        for _ in range(READERS):
            client = await stack.enter_async_context(raw_client(gateway.address, room=SMALL))
            await ask(gateway, client, path)
            head = await client.receive_bytes(12)
            statuses.append(int(head.split(b" ")[1]))
            assert pool.total <= POOL
        assert set(statuses) == {200, 429}
        assert pool.total > statuses.count(200) * 2 * MIB
        await stack.aclose()  # they leave
        async with asyncio.timeout(5):
            while pool.total:
                await asyncio.sleep(0.01)
        rows = await gateway.rows(CREATED + READERS)
        assert all(row.state is not ExchangeState.OK for row in rows[-READERS:])


@pytest.mark.parametrize("which", range(4))
async def test_a_body_that_is_read_arrives_whole(
    upstream: ScriptedUpstream, tmp_path: Path, which: int
) -> None:
    async with run_gateway(tmp_path, channels(upstream.address)) as gateway:
        path = (await stored(gateway, upstream))[which]
        for _ in range(2):
            answer = await gateway.get(path)
            assert answer.status == 200
            body = orjson.loads(await answer.read())
            assert len(orjson.dumps(body)) > 3 * MIB
            assert answer.headers["x-request-id"].startswith("req_")
            assert answer.headers["content-type"] == "application/json"
        await until_within(1, lambda: gateway.daemon.runtime.bodies.total == 0)
        assert {row.state for row in (await gateway.rows(CREATED + 2))[-2:]} == {ExchangeState.OK}


async def test_a_client_that_does_not_read_is_cut_off(
    upstream: ScriptedUpstream,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with run_gateway(tmp_path, channels(upstream.address)) as gateway:
        path = (await stored(gateway, upstream))[0]
        monkeypatch.setattr("gateway.server.http.client_stream.Timeouts", ShortTimeouts)
        async with raw_client(gateway.address, room=SMALL) as client:
            await ask(gateway, client, path)
            pool = gateway.daemon.runtime.bodies
            async with asyncio.timeout(5):
                while not pool.total:
                    await asyncio.sleep(0.01)
                while pool.total:
                    await asyncio.sleep(0.01)
        assert (await gateway.rows(CREATED + 1))[-1].state is ExchangeState.CLIENT_SLOW
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == []


class ShortTimeouts:
    write = 0.3
