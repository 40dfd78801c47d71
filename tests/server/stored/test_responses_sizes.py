"""Responses that are larger than what one key may have stored."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import openai
import orjson
import pytest
from openai import AsyncOpenAI

from gateway.core.formats import Format
from gateway.server.stored.responses import NO_ROOM, TOO_LARGE
from gateway.store.records import ExchangeState, RequestRow
from tests.support.gateway import BETA, RunningGateway, channel, run_gateway
from tests.support.upstream import (
    ScriptedUpstream,
    event_stream,
    fixture_reply,
    fixture_stream,
    json_response,
)

LIMIT = 200_000
INCOMPRESSIBLE = secrets.token_hex(300_000)
"""Compressed, it has some 300,000 bytes."""


@asynccontextmanager
async def running(
    upstream: ScriptedUpstream, folder: Path
) -> AsyncIterator[tuple[RunningGateway, AsyncOpenAI]]:
    line = channel(Format.RESPONSES, upstream.address)
    async with run_gateway(folder, [line], responses={"max_per_key": LIMIT}) as gateway:
        address = f"{gateway.address}/v1"
        async with AsyncOpenAI(base_url=address, api_key=gateway.key, max_retries=0) as client:
            yield gateway, client


def large_reply() -> Any:
    reply = orjson.loads(fixture_reply(Format.RESPONSES, "text").body)
    reply["output"][0]["content"][0]["text"] = INCOMPRESSIBLE
    return json_response(reply)


def large_stream() -> Any:
    return event_stream(
        fixture_stream(Format.RESPONSES, "text").body.replace(
            b'"text":"Hello, world!"', b'"text":"%b"' % INCOMPRESSIBLE.encode()
        )
    )


async def created(gateway: RunningGateway) -> RequestRow:
    """The row of the request that created a response."""
    return next(row for row in await gateway.rows() if row.endpoint == "/v1/responses")


async def ended(client: AsyncOpenAI, id: str) -> Any:
    async with asyncio.timeout(10):
        while True:
            response = await client.responses.retrieve(id)
            if response.status not in ("queued", "in_progress"):
                return response
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_background_request_that_cannot_be_stored_is_rejected(
    upstream: ScriptedUpstream, tmp_path: Path, stream: bool
) -> None:
    async with running(upstream, tmp_path) as (gateway, client):
        with pytest.raises(openai.BadRequestError, match="200,000 bytes of stored responses"):
            await client.responses.create(
                model=BETA, input=INCOMPRESSIBLE, background=True, stream=stream
            )
        row = await created(gateway)
        assert (row.state, row.cost_micro, row.attempts) == (ExchangeState.REJECTED, 0, 0)
        assert gateway.daemon.runtime.active_requests == 0
        assert gateway.daemon.runtime.bodies.total == 0
    assert upstream.requests == []


async def test_what_is_small_once_it_is_compressed_is_stored(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    upstream.respond_with(fixture_stream(Format.RESPONSES, "text"))
    text = "x" * 3 * LIMIT
    async with running(upstream, tmp_path) as (gateway, client):
        response = await client.responses.create(model=BETA, input=text, background=True)
        assert (await ended(client, response.id)).status == "completed"
        reply = fixture_reply(Format.RESPONSES, "text")
        upstream.respond_with(reply)
        second = await client.responses.create(model=BETA, input=text)
        await gateway.daemon.runtime.responses.flush()
        assert (await client.responses.retrieve(second.id)).output_text == "Hello, world!"
        assert {row.notes for row in await gateway.rows(3)} == {None}


@pytest.mark.parametrize("stream", [False, True])
async def test_a_background_response_that_becomes_too_large_fails(
    upstream: ScriptedUpstream, tmp_path: Path, stream: bool
) -> None:
    upstream.respond_with(large_stream())
    async with running(upstream, tmp_path) as (gateway, client):
        reply: Any = await client.responses.create(
            model=BETA, input="Hello", background=True, stream=stream
        )
        id = [event async for event in reply][-1].response.id if stream else reply.id
        async with asyncio.timeout(10):
            while gateway.daemon.runtime.active_requests:
                await asyncio.sleep(0.01)
        await gateway.daemon.runtime.responses.flush()
        response = await ended(client, id)
        assert (response.status, response.output) == ("failed", [])
        assert response.error.message == "The response is too large to be stored."
        row = await created(gateway)
        assert row.notes == TOO_LARGE
        assert row.output_tokens


async def test_a_request_that_cannot_be_stored_is_answered_without(
    upstream: ScriptedUpstream, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    upstream.respond_with(fixture_reply(Format.RESPONSES, "text"))
    async with running(upstream, tmp_path) as (gateway, client):
        response = await client.responses.create(model=BETA, input=INCOMPRESSIBLE)
        assert response.store is False  # type: ignore[attr-defined]  # the library has no such field
        assert response.output_text == "Hello, world!"
        assert (await created(gateway)).notes == TOO_LARGE
        assert "is too large to be stored" in caplog.text
        with pytest.raises(openai.NotFoundError):
            await client.responses.retrieve(response.id)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_reply_that_cannot_be_stored_is_noted(
    upstream: ScriptedUpstream, tmp_path: Path, caplog: pytest.LogCaptureFixture, stream: bool
) -> None:
    upstream.respond_with(large_stream() if stream else large_reply())
    async with running(upstream, tmp_path) as (gateway, client):
        reply: Any = await client.responses.create(model=BETA, input="Hello", stream=stream)
        if stream:
            reply = [event async for event in reply][-1].response
        assert len(reply.output_text) == len(INCOMPRESSIBLE)
        row = await created(gateway)
        assert (row.state, row.notes) == (ExchangeState.OK, TOO_LARGE)
        await gateway.daemon.runtime.responses.flush()
        assert f"{reply.id} is too large to be stored" in caplog.text
        with pytest.raises(openai.NotFoundError):
            await client.responses.retrieve(reply.id)
        assert gateway.daemon.runtime.active_requests == 0


async def test_more_than_waits_to_be_written(
    upstream: ScriptedUpstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Background responses wait for others to be written; the rest is not stored, and noted."""
    monkeypatch.setattr("gateway.store.pending_responses.MAX_PENDING", 2000)
    upstream.respond_with(fixture_stream(Format.RESPONSES, "text"))
    async with running(upstream, tmp_path) as (gateway, client):
        many = await asyncio.gather(
            *(client.responses.create(model=BETA, input="Hello", background=True) for _ in range(8))
        )
        for response in many:
            assert (await ended(client, response.id)).status == "completed"
        upstream.respond_with(fixture_reply(Format.RESPONSES, "text"))
        await asyncio.gather(
            *(client.responses.create(model=BETA, input="Hello") for _ in range(8))
        )
        notes = {row.notes for row in await gateway.rows(16)}
    assert notes == {None, NO_ROOM}
