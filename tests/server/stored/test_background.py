"""Background responses: polled, followed, cut and resumed, cancelled, limited."""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import openai
import orjson
import pytest
from openai import AsyncOpenAI

from gateway.core.formats import Format
from gateway.store.records import ExchangeState, TokenState
from tests.support.gateway import BETA, RunningGateway, channel, run_gateway
from tests.support.upstream import (
    Ending,
    Response,
    ScriptedUpstream,
    by_frame,
    fixture_reply,
    fixture_stream,
)

FORMATS = [Format.RESPONSES, Format.CHAT, Format.MESSAGES]
"""Of the upstream: both lanes."""


def slow_stream(format: Format, pause: float = 0.02, **changes: Any) -> Response:
    return by_frame(fixture_stream(format, **changes)).with_changes(pause=pause)


def stalled(format: Format, frames: int) -> Response:
    """A stream that stops after some frames."""
    script = by_frame(fixture_stream(format, ending=Ending.STALLED))
    return script.with_changes(chunks=script.chunks[:frames])


@asynccontextmanager
async def running(
    upstream: ScriptedUpstream, state_dir: Path, format: Format, **config: Any
) -> AsyncIterator[tuple[RunningGateway, AsyncOpenAI]]:
    line = channel(format, upstream.address) | config.pop("line", {})
    async with run_gateway(state_dir, [line], **config) as gateway, client_of(gateway) as client:
        yield gateway, client


def client_of(gateway: RunningGateway, key: str | None = None) -> AsyncOpenAI:
    address = f"{gateway.address}/v1"
    return AsyncOpenAI(base_url=address, api_key=key or gateway.key, max_retries=0)


async def ended(client: AsyncOpenAI, id: str) -> Any:
    """The response once it has ended, polled as clients do."""
    async with asyncio.timeout(10):
        while True:
            response = await client.responses.retrieve(id)
            if response.status not in ("queued", "in_progress"):
                return response
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("format", FORMATS)
async def test_polling(upstream: ScriptedUpstream, tmp_path: Path, format: Format) -> None:
    upstream.respond_with(slow_stream(format))
    async with running(upstream, tmp_path, format) as (gateway, client):
        created = await client.responses.create(model=BETA, input="Hello", background=True)
        assert (created.status, created.background, created.output) == ("queued", True, [])
        assert created.model == BETA
        seen = await client.responses.retrieve(created.id)
        assert seen.status in ("queued", "in_progress")
        assert seen.id == created.id
        response = await ended(client, created.id)
        assert (response.status, response.id) == ("completed", created.id)
        assert response.output_text == "Hello, world!"
        assert response.background is True
        assert response.created_at == created.created_at
        assert response.usage is not None
        sent = upstream.requests[0].json
        assert sent["stream"] is True
        assert "background" not in sent
        row = next(row for row in await gateway.rows(2) if row.endpoint == "/v1/responses")
        assert (row.state, row.status, row.end_reason) == (ExchangeState.OK, 200, "complete")
        assert row.output_tokens == response.usage.output_tokens
        assert gateway.daemon.runtime.active_requests == 0


@pytest.mark.parametrize("format", FORMATS)
async def test_a_stream_that_is_cut_goes_on(
    upstream: ScriptedUpstream, tmp_path: Path, format: Format
) -> None:
    """Every event exactly once, from memory and afterwards from the database."""
    upstream.respond_with(slow_stream(format))
    async with running(upstream, tmp_path, format) as (gateway, client):
        first: list[Any] = []
        async with await client.responses.create(
            model=BETA, input="Hello", background=True, stream=True
        ) as stream:
            async for event in stream:
                first.append(event)
                if len(first) == 5:
                    break
        id = first[0].response.id
        assert [event.type for event in first[:2]] == ["response.created", "response.queued"]
        rest = await follow(client, id, first[-1].sequence_number)
        cut = [event.to_dict() for event in [*first, *rest]]
        assert [event["sequence_number"] for event in cut] == list(range(len(cut)))
        assert cut[-1]["type"] == "response.completed"
        assert (await ended(client, id)).to_dict() == cut[-1]["response"]
        row = next(row for row in await gateway.rows(3) if row.endpoint == "/v1/responses")
        assert (row.state, row.stream) == (ExchangeState.OK, True)  # although its client has left
        for after in (-1, 0, 4, len(cut) - 2, len(cut) - 1, len(cut) + 5):
            again = [event.to_dict() for event in await follow(client, id, after)]
            assert again == cut[after + 1 :]


async def follow(client: AsyncOpenAI, id: str, after: int) -> list[Any]:
    kwargs: dict[str, Any] = {} if after < 0 else {"starting_after": after}
    async with await client.responses.retrieve(id, stream=True, **kwargs) as stream:
        return [event async for event in stream]


async def test_the_stream_helper_of_the_library(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    """It puts the response together from all its events, and shows those after the cut."""
    upstream.respond_with(slow_stream(Format.RESPONSES))
    async with running(upstream, tmp_path, Format.RESPONSES) as (_, client):
        first: list[Any] = []
        async with client.responses.stream(model=BETA, input="Hello", background=True) as stream:
            async for event in stream:
                first.append(event)
                if len(first) == 6:
                    break
        id, after = first[0].response.id, first[-1].sequence_number
        async with client.responses.stream(response_id=id, starting_after=after) as again:
            rest = [event async for event in again]
            final = await again.get_final_response()
        assert [event.sequence_number for event in [*first, *rest]] == list(range(12))
        assert (final.id, final.output_text) == (id, "Hello, world!")


async def test_several_clients_follow_one_response(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    upstream.respond_with(slow_stream(Format.CHAT))
    async with running(upstream, tmp_path, Format.CHAT) as (_, client):
        async with await client.responses.create(
            model=BETA, input="Hello", background=True, stream=True
        ) as stream:
            opening = await anext(aiter(stream))
        logs = await asyncio.gather(*(follow(client, opening.response.id, -1) for _ in range(3)))
        assert logs[0] == logs[1] == logs[2]
        assert logs[0][0] == opening


async def test_only_background_streams_can_be_followed(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    upstream.respond_with(slow_stream(Format.CHAT))
    async with running(upstream, tmp_path, Format.CHAT) as (_, client):
        created = await client.responses.create(model=BETA, input="Hello", background=True)
        for _ in range(2):
            with pytest.raises(openai.BadRequestError, match="has no events to follow"):
                await follow(client, created.id, -1)
            await ended(client, created.id)
            await asyncio.sleep(0.2)


@pytest.mark.parametrize("format", FORMATS)
async def test_cancel(upstream: ScriptedUpstream, tmp_path: Path, format: Format) -> None:
    upstream.respond_with(stalled(format, 6))
    async with running(upstream, tmp_path, format) as (gateway, client):
        created = await client.responses.create(model=BETA, input="Hello", background=True)
        request = await upstream.wait_for_request()
        await asyncio.sleep(0.1)
        cancelled = await client.responses.cancel(created.id)
        assert (cancelled.id, cancelled.status) == (created.id, "cancelled")
        assert "Hello, world!".startswith(cancelled.output_text or "-")
        assert cancelled.output[-1].status == "incomplete"
        assert cancelled == await client.responses.retrieve(created.id)
        async with asyncio.timeout(1):
            await request.disconnected.wait()
        assert (await client.responses.cancel(created.id)).status == "cancelled"
        assert (await client.responses.retrieve(created.id)).status == "cancelled"
        rows = await gateway.rows(4)
        row = next(row for row in rows if row.endpoint == "/v1/responses")
        assert row.state is ExchangeState.CLIENT_GONE
        assert row.output_tokens or row.input_tokens
        usage = cancelled.usage
        assert (usage.input_tokens, usage.output_tokens) == (row.input_tokens, row.output_tokens)
        with pytest.raises(openai.BadRequestError):
            await client.responses.create(model=BETA, input="And?", previous_response_id=created.id)


@pytest.mark.parametrize("end", ["revoke", "disable"])
async def test_a_key_that_ends_cancels_what_runs(
    upstream: ScriptedUpstream, tmp_path: Path, end: str
) -> None:
    upstream.respond_with(stalled(Format.CHAT, 6))
    async with running(upstream, tmp_path, Format.CHAT) as (gateway, client):
        _, key = await gateway.operations.create_key("other", "default")
        async with client_of(gateway, key) as other:
            kept = await other.responses.create(model=BETA, input="Hello", background=True)
        for _ in range(3):
            created = await client.responses.create(model=BETA, input="Hello", background=True)
        async with asyncio.timeout(2):
            while len(upstream.requests) < 4:
                await asyncio.sleep(0.02)
        if end == "revoke":
            await gateway.operations.revoke_key(gateway.token.id)
        else:
            await gateway.operations.update_key(gateway.token.id, state=TokenState.DISABLED)
        async with asyncio.timeout(2):
            for request in upstream.requests[1:]:
                await request.disconnected.wait()
        async with client_of(gateway, key) as other:
            assert (await other.responses.retrieve(kept.id)).status == "in_progress"
            await other.responses.cancel(kept.id)
        rows = await gateway.rows(4)
        row = next(row for row in rows if row.id.endswith(created.id[5:]))
        assert (row.state, row.status) == (ExchangeState.CLIENT_GONE, 200)
        assert row.notes == "cancelled, as its key is no longer active"
        stored = await gateway.daemon.runtime.responses.find(gateway.token.id, created.id)
        assert stored is not None
        assert stored.status == "cancelled"


async def test_what_runs_may_end_by_itself(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    upstream.respond_with(slow_stream(Format.CHAT, 0.05), stalled(Format.CHAT, 3))
    async with running(upstream, tmp_path, Format.CHAT) as (gateway, client):
        id = gateway.token.id
        created = await client.responses.create(model=BETA, input="Hello", background=True)
        changes = {"state": TokenState.DISABLED, "let_run": True}
        await gateway.operations.update_key(id, **changes)
        replies = gateway.daemon.runtime.responses
        async with asyncio.timeout(5):
            while (row := await replies.find(id, created.id)) and row.status != "completed":
                await asyncio.sleep(0.02)
        await gateway.operations.update_key(id, state=TokenState.ACTIVE)
        await client.responses.create(model=BETA, input="Hello", background=True)
        request = await upstream.wait_for_request(2)
        await gateway.operations.revoke_key(id, let_run=True)
        assert not request.disconnected.is_set()
        revoked = await gateway.operations.revoke_key(id)  # not even that any more
        assert not revoked.let_run
        async with asyncio.timeout(2):
            await request.disconnected.wait()


async def test_cancel_where_replies_are_drained(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    upstream.respond_with(stalled(Format.CHAT, 3))
    line = {"on_disconnect": "drain"}
    async with running(upstream, tmp_path, Format.CHAT, line=line) as (_, client):
        created = await client.responses.create(model=BETA, input="Hello", background=True)
        request = await upstream.wait_for_request()
        await client.responses.cancel(created.id)
        async with asyncio.timeout(1):
            await request.disconnected.wait()


async def test_cancel_ends_the_streams_that_follow(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    upstream.respond_with(stalled(Format.CHAT, 3))
    async with running(upstream, tmp_path, Format.CHAT) as (_, client):
        async with await client.responses.create(
            model=BETA, input="Hello", background=True, stream=True
        ) as stream:
            events = aiter(stream)
            id = (await anext(events)).response.id
            while (await anext(events)).type != "response.output_text.delta":
                pass
            await client.responses.cancel(id)
            async with asyncio.timeout(2):
                last = [event async for event in stream][-1]
        assert (last.type, last.response.status) == ("response.failed", "cancelled")
        assert last.response.output_text
        assert last.response.usage.total_tokens


async def test_a_reply_can_be_continued(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    upstream.respond_with(slow_stream(Format.CHAT, 0), fixture_stream(Format.CHAT))
    async with running(upstream, tmp_path, Format.CHAT) as (_, client):
        created = await client.responses.create(model=BETA, input="Hello", background=True)
        await ended(client, created.id)
        second = await client.responses.create(
            model=BETA, input="And?", previous_response_id=created.id, background=True
        )
        assert second.previous_response_id == created.id
        assert (await ended(client, second.id)).previous_response_id == created.id
        texts = [message["content"] for message in upstream.requests[1].json["messages"]]
        assert texts == ["Hello", "Hello, world!", "And?"]


async def test_upstream_failures_end_in_the_response(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    upstream.respond_with(Response(status=400, chunks=(b'{"error":{"message":"no such thing"}}',)))
    async with running(upstream, tmp_path, Format.CHAT) as (gateway, client):
        created = await client.responses.create(model=BETA, input="Hello", background=True)
        response = await ended(client, created.id)
        assert response.status == "failed"
        assert response.error is not None
        assert "no such thing" in response.error.message
        row = next(row for row in await gateway.rows(2) if row.endpoint == "/v1/responses")
        assert row.state is ExchangeState.ERROR


async def test_what_is_wrong_by_itself_is_rejected(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    async with running(upstream, tmp_path, Format.CHAT) as (gateway, client):
        with pytest.raises(openai.BadRequestError, match="prompt"):
            await client.responses.create(
                model=BETA, input="Hello", background=True, prompt={"id": "pmpt_1"}
            )
        with pytest.raises(openai.BadRequestError, match="store"):
            await client.responses.create(model=BETA, input="Hello", background=True, store=False)
        assert gateway.daemon.runtime.active_requests == 0
        assert upstream.requests == []


async def test_limits(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    upstream.respond_with(stalled(Format.CHAT, 3))
    limits = {"background": 3, "background_per_key": 2}
    async with running(upstream, tmp_path, Format.CHAT, limits=limits) as (gateway, client):
        _, key = await gateway.operations.create_key("other", "default")

        async def create(client: AsyncOpenAI) -> Any:
            return await client.responses.create(model=BETA, input="Hello", background=True)

        first = await create(client)
        await create(client)
        with pytest.raises(openai.RateLimitError, match="2 background responses of this key"):
            await create(client)
        async with client_of(gateway, key) as other:
            await create(other)
            with pytest.raises(openai.RateLimitError, match="3 background responses run"):
                await create(other)
            with pytest.raises(openai.NotFoundError):
                await other.responses.retrieve(first.id)
            with pytest.raises(openai.NotFoundError):
                await other.responses.cancel(first.id)
        await client.responses.cancel(first.id)
        await create(client)


async def test_it_counts_as_a_running_request(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    upstream.respond_with(stalled(Format.CHAT, 3))
    async with running(upstream, tmp_path, Format.CHAT, limits={"concurrent": 1}) as (_, client):
        created = await client.responses.create(model=BETA, input="Hello", background=True)
        for background in (False, True):
            with pytest.raises(openai.RateLimitError):
                await client.responses.create(model=BETA, input="Hello", background=background)
        await client.responses.cancel(created.id)
        upstream.respond_with(fixture_stream(Format.CHAT))
        again = await client.responses.create(model=BETA, input="Hello", background=True)
        assert (await ended(client, again.id)).status == "completed"


async def test_a_graceful_stop(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    upstream.respond_with(stalled(Format.CHAT, 3))
    server = {"drain_timeout": 0.2}
    async with running(upstream, tmp_path, Format.CHAT, server=server) as (gateway, client):
        created = await client.responses.create(model=BETA, input="Hello", background=True)
        await upstream.wait_for_request()
        key = gateway.key
    async with running(upstream, tmp_path, Format.CHAT) as (_, client):
        client.api_key = key
        response = await client.responses.retrieve(created.id)
    assert response.status == "failed"
    assert response.error is not None


@pytest.mark.parametrize("stream", [False, True])
async def test_after_a_kill(upstream: ScriptedUpstream, tmp_path: Path, stream: bool) -> None:
    upstream.respond_with(stalled(Format.CHAT, 3))
    before, after = tmp_path / "before", tmp_path / "after"
    async with running(upstream, before, Format.CHAT) as (gateway, client):
        reply = await client.responses.create(
            model=BETA, input="Hello", background=True, stream=stream
        )
        if stream:
            async with reply as events:
                id = (await anext(aiter(events))).response.id
        else:
            id = reply.id
        key = gateway.key
        await upstream.wait_for_request()
        after.mkdir()
        for file in before.glob("*"):  # as a killed process leaves them
            if file.is_file() and not file.name.endswith(".lock"):
                shutil.copy(file, after)
        await client.responses.cancel(id)
    async with running(upstream, after, Format.CHAT) as (_, client):
        client.api_key = key
        response = await client.responses.retrieve(id)
        assert response.status == "failed"
        assert response.error is not None
        assert response.error.code == "server_error"
        assert "restart" in response.error.message
        if stream:
            (event,) = await follow(client, id, 7)
            assert (event.type, event.sequence_number) == ("response.failed", 8)
        with pytest.raises(openai.BadRequestError):
            await client.responses.create(model=BETA, input="x", previous_response_id=id)


async def test_a_deleted_response_stops(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    upstream.respond_with(stalled(Format.CHAT, 3))
    async with running(upstream, tmp_path, Format.CHAT) as (_, client):
        created = await client.responses.create(model=BETA, input="Hello", background=True)
        request = await upstream.wait_for_request()
        await client.responses.delete(created.id)
        async with asyncio.timeout(1):
            await request.disconnected.wait()
        with pytest.raises(openai.NotFoundError):
            await client.responses.retrieve(created.id)


@pytest.mark.slow("relays a reply of many megabytes")
@pytest.mark.large
async def test_a_reply_that_is_longer_than_the_log(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    """Of its events the latest are kept; the response has all of it."""
    text = "x" * 100_000
    chunk = {"index": 0, "delta": {"content": text}, "finish_reason": None}
    body = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    frame = b"data: %b\n\n" % orjson.dumps(body | {"choices": [chunk]})
    end = chunk | {"delta": {}, "finish_reason": "stop"}
    last = b"data: %b\n\ndata: [DONE]\n\n" % orjson.dumps(body | {"choices": [end]})
    script = fixture_stream(Format.CHAT).with_changes(chunks=(*[frame] * 150, last))
    upstream.respond_with(script)
    async with running(upstream, tmp_path, Format.CHAT) as (_, client):
        async with await client.responses.create(
            model=BETA, input="Hello", background=True, stream=True
        ) as stream:
            id = (await anext(aiter(stream))).response.id
        response = await ended(client, id)
        assert len(response.output_text) == 150 * len(text)
        with pytest.raises(openai.BadRequestError, match="no longer kept") as caught:
            await follow(client, id, 0)
        assert caught.value.param == "starting_after"
        (dropped,) = re.findall(r"up to (\d+) are", caught.value.message)
        events = await follow(client, id, int(dropped))
        assert events[0].sequence_number == int(dropped) + 1
        assert events[-1].response.output_text == response.output_text


async def test_an_upstream_that_does_not_stream(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    reply = fixture_reply(Format.CHAT)
    long = "world, " * 100_000
    body = reply.body.replace(b"world", long.encode())
    upstream.respond_with(reply.with_changes(chunks=(body,)))
    async with running(upstream, tmp_path, Format.CHAT) as (_, client):
        async with await client.responses.create(
            model=BETA, input="Hello", background=True, stream=True
        ) as stream:
            events = [event async for event in stream]
        assert [event.sequence_number for event in events] == list(range(len(events)))
        assert events[-1].response.output_text == f"Hello, {long}!"


async def test_without_storing(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    responses = {"store": False}
    async with running(upstream, tmp_path, Format.CHAT, responses=responses) as (_, client):
        with pytest.raises(openai.BadRequestError, match="this key does not have"):
            await client.responses.create(model=BETA, input="Hello", background=True)
        with pytest.raises(openai.BadRequestError, match="not stored for this key"):
            await client.conversations.create()
    assert upstream.requests == []


@pytest.mark.parametrize("after", ["x", "-1", "1.5", "9" * 20])
async def test_malformed_positions(upstream: ScriptedUpstream, tmp_path: Path, after: str) -> None:
    upstream.respond_with(slow_stream(Format.CHAT, 0))
    async with running(upstream, tmp_path, Format.CHAT) as (gateway, client):
        async with await client.responses.create(
            model=BETA, input="Hello", background=True, stream=True
        ) as stream:
            id = (await anext(aiter(stream))).response.id
        await ended(client, id)
        path = f"/v1/responses/{id}?stream=true&starting_after={after}"
        answer = await gateway.get(path)
        assert answer.status == 400
        assert (await answer.json())["error"]["param"] == "starting_after"
