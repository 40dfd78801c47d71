"""Starts of background responses that fail: no answer with an error has status 200, nothing is sent
to an upstream, billed or stored."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import orjson
import pytest
from aiohttp import ClientResponse

from gateway.core.formats import Format
from gateway.server.stored import background
from gateway.store import responses as replies_module
from gateway.store.records import ExchangeState, RequestRow, TokenState
from gateway.store.response_rows import page
from gateway.store.sqlite.lock import DATABASE_NAME
from tests.server.stored.test_background import running, slow_stream
from tests.support.databases import forbid, locked
from tests.support.gateway import RunningGateway, request_body
from tests.support.upstream import ScriptedUpstream, fixture_reply

BODY = request_body(Format.RESPONSES, background=True)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "SAVE_TIMEOUT", 0.3)
    monkeypatch.setattr(replies_module, "_RETRY_DELAY", 0.05)


async def check_nothing_is_left(
    gateway: RunningGateway, upstream: ScriptedUpstream, answer: ClientResponse, status: int
) -> None:
    assert answer.status == status
    assert "error" in orjson.loads(await answer.read())
    row = await check_row(gateway, upstream)
    assert (row.state, row.status) == (ExchangeState.REJECTED, status)


async def check_row(gateway: RunningGateway, upstream: ScriptedUpstream) -> RequestRow:
    runtime = gateway.daemon.runtime
    async with asyncio.timeout(10):
        await runtime.responses.flush()
        while await page(gateway.operations.database):  # withdrawn while it was written
            await asyncio.sleep(0.01)
    assert upstream.requests == []
    row = await gateway.row()
    assert (row.cost_micro, row.usd_micro, row.input_tokens, row.output_tokens) == (0, 0, 0, 0)
    assert row.attempts == 0
    assert runtime.active_requests == 0
    return row


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("stream", [False, True])
async def test_a_database_that_cannot_be_written(
    upstream: ScriptedUpstream, tmp_path: Path, stream: bool
) -> None:
    upstream.respond_with(fixture_reply(Format.CHAT))
    async with running(upstream, tmp_path, Format.CHAT) as (gateway, _):
        with locked(tmp_path / DATABASE_NAME):
            answer = await gateway.post(Format.RESPONSES, BODY | {"stream": stream})
        await check_nothing_is_left(gateway, upstream, answer, 503)


async def test_a_row_that_the_database_does_not_accept(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    async with running(upstream, tmp_path, Format.CHAT) as (gateway, _):
        forbid(tmp_path / DATABASE_NAME, "INSERT", "stored_replies")
        answer = await gateway.post(Format.RESPONSES, BODY)
        await check_nothing_is_left(gateway, upstream, answer, 503)


async def test_no_memory_for_what_waits(
    upstream: ScriptedUpstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    upstream.respond_with(fixture_reply(Format.CHAT))
    monkeypatch.setattr(replies_module, "_RETRY_DELAY", 0.05)
    async with running(upstream, tmp_path, Format.CHAT) as (gateway, _):
        _, other = await gateway.operations.create_key("other", "default")
        with locked(tmp_path / DATABASE_NAME):
            await gateway.post(Format.RESPONSES, key=other)  # it waits to be written
            monkeypatch.setattr("gateway.store.pending_responses.MAX_PENDING", 0)
            answer = await gateway.post(Format.RESPONSES, BODY)
        assert answer.status == 503
        assert len(upstream.requests) == 1
        rows = await gateway.rows(2)
        assert [(row.state, row.status) for row in rows if row.token_id == gateway.token.id] == [
            (ExchangeState.REJECTED, 503)
        ]


@pytest.mark.usefixtures("quick")
async def test_a_client_that_leaves_meanwhile(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    async with running(upstream, tmp_path, Format.CHAT) as (gateway, _):
        with locked(tmp_path / DATABASE_NAME):
            posting = asyncio.ensure_future(gateway.post(Format.RESPONSES, BODY))
            await asyncio.sleep(0.15)
            posting.cancel()
            await asyncio.wait({posting})
            await asyncio.sleep(0.1)
        row = await check_row(gateway, upstream)
        assert (row.state, row.status) == (ExchangeState.CLIENT_GONE, 499)


async def test_a_key_that_is_disabled_while_the_request_arrives(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    async with running(upstream, tmp_path, Format.CHAT) as (gateway, _):
        text = orjson.dumps(BODY)

        async def parts() -> AsyncIterator[bytes]:
            yield text[:10]
            await asyncio.sleep(0.1)
            await gateway.operations.update_key(gateway.token.id, state=TokenState.DISABLED)
            yield text[10:]

        headers = {"authorization": f"Bearer {gateway.key}", "content-type": "application/json"}
        answer = await gateway.http.post("/v1/responses", data=parts(), headers=headers)
        await check_nothing_is_left(gateway, upstream, answer, 401)


@pytest.mark.usefixtures("quick")
async def test_a_key_that_is_disabled_while_the_response_is_saved(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    async with running(upstream, tmp_path, Format.CHAT) as (gateway, _):
        background.SAVE_TIMEOUT = 5.0  # undone with the fixture
        registry, replies = gateway.daemon.runtime.registry, gateway.daemon.runtime.responses
        with locked(tmp_path / DATABASE_NAME):
            posting = asyncio.ensure_future(gateway.post(Format.RESPONSES, BODY))
            await asyncio.sleep(0.15)
            registry.put_token(replace(gateway.token, state=TokenState.DISABLED))
        answer = await posting
        assert answer.status == 200
        async with asyncio.timeout(5):
            while (
                row := await replies.find(gateway.token.id, (await answer.json())["id"])
            ) is None:
                await asyncio.sleep(0.02)
            while row is not None and row.status != "cancelled":
                row = await replies.find(gateway.token.id, row.id)
                await asyncio.sleep(0.02)
        assert upstream.requests == []


async def test_an_upstream_that_fails_after_the_start(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    """The client was told 200, whether it has left or not; the row says what became of it."""
    script = slow_stream(Format.CHAT, 0.05)
    upstream.respond_with(script.with_changes(chunks=script.chunks[:4]))
    async with running(upstream, tmp_path, Format.CHAT) as (gateway, client):
        async with await client.responses.create(
            model="beta-5.4", input="Hello", background=True, stream=True
        ) as stream:
            await anext(aiter(stream))
        row = await gateway.row()
        assert (row.state, row.status) == (ExchangeState.UPSTREAM_CUT, 200)
