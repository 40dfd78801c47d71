"""The feed over HTTP: each ended request is one event; slow clients are disconnected."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import aiohttp
import orjson
import pytest

from gateway.admin.api import feed as api_feed
from gateway.admin.feed import MAX_SUBSCRIBERS, Feed
from gateway.admin.socket_path import socket_path
from gateway.core.formats import Format
from tests.admin.feed_client import follow_feed
from tests.store.sample_rows import settlement
from tests.support.gateway import RunningGateway, channels, run_gateway
from tests.support.upstream import (
    Ending,
    ScriptedUpstream,
    by_frame,
    fixture_reply,
    fixture_stream,
    json_response,
)

pytestmark = pytest.mark.timeout(60)

FEED = "requests/events"


@asynccontextmanager
async def on_socket(state_dir: Path) -> AsyncIterator[aiohttp.ClientSession]:
    connector = aiohttp.UnixConnector(str(socket_path(state_dir)), limit=0)
    async with aiohttp.ClientSession("http://gateway/admin/api/", connector=connector) as client:
        yield client


@pytest.fixture
async def client(gateway: RunningGateway, tmp_path: Path) -> AsyncIterator[aiohttp.ClientSession]:
    async with on_socket(tmp_path) as client:
        yield client


def feed_of(gateway: RunningGateway) -> Feed:
    return gateway.daemon.console.feed


async def ask(gateway: RunningGateway, upstream: ScriptedUpstream) -> None:
    upstream.respond_with(fixture_reply(Format.CHAT))
    assert (await gateway.post(Format.CHAT)).status == 200


async def none_follows(feed: Feed) -> None:
    async with asyncio.timeout(10):
        while feed.subscribers:
            await asyncio.sleep(0.01)


async def test_an_ended_request_is_an_event(
    gateway: RunningGateway, upstream: ScriptedUpstream, client: aiohttp.ClientSession
) -> None:
    async with follow_feed(client, FEED) as follower:
        assert follower.response.headers["cache-control"] == "no-store"
        await ask(gateway, upstream)
        event = await follower.next()
        assert event is not None
        async with client.get("requests") as answer:
            (row,) = orjson.loads(await answer.read())["requests"]
        assert (event.name, event.id, event.data) == ("message", row["id"], row)
        upstream.respond_with(json_response(b"no", 400))
        await gateway.post(Format.CHAT)
        event = await follower.next()
        assert event is not None
        assert event.data["state"] == "error"
    await none_follows(feed_of(gateway))


async def test_a_running_request_is_an_event_on_demand(
    gateway: RunningGateway, upstream: ScriptedUpstream, client: aiohttp.ClientSession
) -> None:
    frames = by_frame(fixture_stream(Format.CHAT))
    upstream.respond_with(frames.with_changes(chunks=frames.chunks[:2], ending=Ending.STALLED))
    async with (
        follow_feed(client, FEED) as ends,
        follow_feed(client, FEED, opened="true") as both,
    ):
        running = asyncio.ensure_future(gateway.post(Format.CHAT, stream=True))
        began = await both.next()
        assert began is not None
        assert (began.name, began.id, began.data["state"]) == ("opened", None, "running")
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        ended = await both.next()
        assert ended is not None
        assert (ended.name, ended.id) == ("message", began.data["id"])
        assert ended.data["state"] == "client_gone"
        assert await ends.next() == ended


async def test_filters_are_those_of_the_list(
    gateway: RunningGateway, upstream: ScriptedUpstream, client: aiohttp.ClientSession
) -> None:
    async with follow_feed(client, FEED, status="4xx", token_id=gateway.token.id) as follower:
        await ask(gateway, upstream)
        upstream.respond_with(json_response(b"no", 400))
        await gateway.post(Format.CHAT)
        event = await follower.next()
        assert event is not None
        assert event.data["status"] == 400
    for query in ({"status": "abc"}, {"limit": "3"}, {"opened": "perhaps"}):
        async with client.get(FEED, params=query) as answer:
            assert answer.status == 400
            assert orjson.loads(await answer.read())["error"]["code"] == "invalid_request"
    async with client.post(FEED) as answer:
        assert answer.status == 405


async def test_the_feed_resumes_after_the_last_event(
    gateway: RunningGateway, upstream: ScriptedUpstream, client: aiohttp.ClientSession
) -> None:
    async with follow_feed(client, FEED) as follower:
        await ask(gateway, upstream)
        first = await follower.next()
    assert first is not None
    for _ in range(3):
        await ask(gateway, upstream)
    missed = [row.id for row in (await gateway.rows(4))[1:]]
    async with follow_feed(client, FEED, after=first.id) as follower:
        assert [event.id for event in await follower.take(3)] == missed
        await ask(gateway, upstream)
        last = await follower.next()
    assert last is not None
    assert last.id == (await gateway.rows(5))[-1].id
    async with follow_feed(client, FEED, after="req_unknown") as follower:
        skipped, *rows = await follower.take(6)
    assert (skipped.name, skipped.id, skipped.data) == ("skipped", None, {"after": "req_unknown"})
    assert [event.id for event in rows] == [first.id, *missed, last.id]


async def test_the_feed_resumes_after_a_restart(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    async with run_gateway(tmp_path, channels(upstream.address)) as gateway:
        async with on_socket(tmp_path) as client, follow_feed(client, FEED) as follower:
            await ask(gateway, upstream)
            seen = await follower.next()
        await ask(gateway, upstream)
        missed = (await gateway.rows(2))[-1].id
    assert seen is not None
    async with run_gateway(tmp_path, channels(upstream.address)) as gateway:
        await ask(gateway, upstream)
        newest = (await gateway.rows(3))[-1].id
        async with (
            on_socket(tmp_path) as client,
            follow_feed(client, FEED, after=seen.id) as follower,
        ):
            assert [event.id for event in await follower.take(2)] == [missed, newest]


async def test_pings_fill_silence(
    gateway: RunningGateway, client: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_feed, "PING_SECONDS", 0.05)
    async with follow_feed(client, FEED) as follower:
        assert (await follower.comment()).startswith(":")


async def test_subscribers_are_limited(
    gateway: RunningGateway, upstream: ScriptedUpstream, client: aiohttp.ClientSession
) -> None:
    async with AsyncExitStack() as stack:
        followers = [
            await stack.enter_async_context(follow_feed(client, FEED))
            for _ in range(MAX_SUBSCRIBERS)
        ]
        async with client.get(FEED) as answer:
            assert answer.status == 503
            assert orjson.loads(await answer.read())["error"]["code"] == "too_many_subscribers"
        await ask(gateway, upstream)
        events = await asyncio.gather(*(follower.next() for follower in followers))
        assert len({event.id for event in events if event is not None}) == 1
    await none_follows(feed_of(gateway))
    async with follow_feed(client, FEED):
        pass


async def test_a_stalled_subscriber_is_disconnected(
    gateway: RunningGateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_feed, "SEND_TIMEOUT", 0.5)
    feed = feed_of(gateway)
    with socket.socket(socket.AF_UNIX) as stuck:
        stuck.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        stuck.connect(str(socket_path(tmp_path)))
        stuck.sendall(f"GET /admin/api/{FEED} HTTP/1.1\r\nhost: gateway\r\n\r\n".encode())
        async with asyncio.timeout(5):
            while not feed.subscribers:
                await asyncio.sleep(0.01)
        recorder = gateway.daemon.runtime.recorder
        for number in range(400):
            recorder.record_settlement(settlement(number, upstream_error="x" * 8000))
        await none_follows(feed)


async def test_the_feed_ends_after_the_last_request(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    """A stop waits for requests, and not for subscribers."""
    upstream.respond_with(fixture_reply(Format.CHAT).with_changes(delay=0.5))
    async with AsyncExitStack() as stack:
        async with run_gateway(tmp_path, channels(upstream.address)) as gateway:
            client = await stack.enter_async_context(on_socket(tmp_path))
            follower = await stack.enter_async_context(follow_feed(client, FEED))
            http = await stack.enter_async_context(aiohttp.ClientSession(gateway.address))
            running = asyncio.ensure_future(replace(gateway, http=http).post(Format.CHAT))
            await upstream.wait_for_request()
            began = asyncio.get_running_loop().time()
        assert asyncio.get_running_loop().time() - began < 3
        assert (await running).status == 200
        while (event := await follower.next()) is not None:
            assert event.data["state"] == "ok"
