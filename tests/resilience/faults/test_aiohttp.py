"""What the client library that the gateway is built on makes of each fault.

A change of these answers, in a new version of it, is a change of what the gateway must handle.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import aiohttp
import pytest

from gateway.core.formats import Format
from tests.resilience.faults import sample_replies
from tests.resilience.faults.sample_replies import Place
from tests.resilience.faults.upstream import FaultUpstream

BODY = {"model": "upstream-model", "stream": True}


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=5, sock_read=5)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        yield session


async def posted(
    http: aiohttp.ClientSession, upstream: FaultUpstream, plan: str, *, redirected: bool = False
) -> bytes:
    url = f"{upstream.base_url(Format.MESSAGES, plan)}/v1/messages"
    async with http.post(url, json=BODY, allow_redirects=redirected) as answer:
        return await answer.read()


@pytest.mark.parametrize(
    ("plan", "error"),
    [
        ("hangup", aiohttp.ServerDisconnectedError),
        ("hangup:head", aiohttp.ServerDisconnectedError),
        ("hangup:reset", aiohttp.ClientOSError),
        ("cut:text:chunked", aiohttp.ClientPayloadError),
        ("cut:text:length", aiohttp.ClientPayloadError),
        ("cut:text:reset", aiohttp.ClientPayloadError),
        ("cut:text:reset_length", aiohttp.ClientPayloadError),
        ("encoded:bad", aiohttp.ClientPayloadError),
        ("headers:20000", aiohttp.ClientResponseError),
        ("headers:8:300", aiohttp.ClientResponseError),
        ("violate:status", aiohttp.ClientResponseError),
        ("violate:header", aiohttp.ClientResponseError),
        ("violate:chunk", aiohttp.ClientResponseError),
        ("violate:banner", aiohttp.ClientResponseError),
        ("violate:lengths", aiohttp.ClientResponseError),
        ("violate:both", aiohttp.ClientResponseError),
    ],
)
async def test_raised_errors(
    http: aiohttp.ClientSession, upstream: FaultUpstream, plan: str, error: type[Exception]
) -> None:
    with pytest.raises(error):
        await posted(http, upstream, plan)


@pytest.mark.parametrize("plan", ["stall:head", "stall:start", "stall:text"])
async def test_a_stall_ends_with_the_timeout(upstream: FaultUpstream, plan: str) -> None:
    timeout = aiohttp.ClientTimeout(sock_read=0.1)
    async with aiohttp.ClientSession(timeout=timeout) as http:
        with pytest.raises(aiohttp.SocketTimeoutError):
            await posted(http, upstream, plan)


async def test_an_invalid_chunk_may_go_undetected(
    http: aiohttp.ClientSession, upstream: FaultUpstream
) -> None:
    """The parser in C closes the connection and says nothing to whoever waits for the body, and
    `sock_read` does not count any more: only a deadline of one's own ends it. Who begins to wait
    after that gets a `RuntimeError`."""
    with pytest.raises((TimeoutError, RuntimeError, aiohttp.ClientPayloadError)):
        async with asyncio.timeout(0.3):
            await posted(http, upstream, "cut:text:garbled")


@pytest.mark.parametrize("plan", ["cut:text:fin", "cut:text:reset_close"])
async def test_a_cut_without_framing_looks_complete(
    http: aiohttp.ClientSession, upstream: FaultUpstream, plan: str
) -> None:
    begun = sample_replies.reply(Format.MESSAGES, True).until(Place.TEXT)
    assert await posted(http, upstream, plan) == b"".join(begun)


@pytest.mark.parametrize(
    "plan",
    ["ok", "ok:text:byte", "slow:0.05", "pings:0.01:3", "early", "encoded:gzip", "encoded:deflate"],
)
async def test_undetected_faults(
    http: aiohttp.ClientSession, upstream: FaultUpstream, plan: str
) -> None:
    answer = await posted(http, upstream, plan)
    assert answer.replace(b'event: ping\ndata: {"type":"ping"}\n\n', b"") == b"".join(
        sample_replies.stream_frames(Format.MESSAGES)
    )


@pytest.mark.parametrize("how", ["next", "reset"])
async def test_a_stale_connection_is_not_replaced(
    http: aiohttp.ClientSession, upstream: FaultUpstream, how: str
) -> None:
    await posted(http, upstream, f"stale:{how}")
    with pytest.raises((aiohttp.ServerDisconnectedError, aiohttp.ClientOSError)):
        await posted(http, upstream, f"stale:{how}")
    assert [(call.connection, call.nth) for call in upstream.requests] == [(1, 1), (1, 2)]


async def test_a_compression_bomb_expands_when_read(
    http: aiohttp.ClientSession, upstream: FaultUpstream
) -> None:
    assert len(await posted(http, upstream, "bomb:10_000_000")) > 10_000_000


async def test_redirects_are_followed_by_default(
    http: aiohttp.ClientSession, upstream: FaultUpstream
) -> None:
    assert await posted(http, upstream, "redirect") == b""
    assert [call.path for call in upstream.requests] == ["/v1/messages"]
    await posted(http, upstream, "redirect", redirected=True)
    assert upstream.requests[-1].path == "/elsewhere"
