"""Heads of requests: how large they may be, how slowly they may come, what is kept of them."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator

import orjson
import pytest
from aiohttp import StreamReader

from gateway.core.formats import Format
from gateway.server.http.request_head import MAX_HEAD, MAX_KEPT_HEAD, PIECE
from tests.support.gateway import PATHS, RunningGateway, request_body
from tests.support.raw_client import End, RawClient, Received, raw_client, request
from tests.support.shared_gateway import in_the_modules_loop
from tests.support.upstream import ScriptedUpstream, fixture_reply

pytestmark = pytest.mark.shared_gateway

HEALTH = b"GET /healthz HTTP/1.1\r\nhost: gateway\r\n"


@in_the_modules_loop()
async def client(gateway: RunningGateway) -> AsyncIterator[RawClient]:
    async with raw_client(gateway.address) as client:
        yield client


def headers(size: int) -> bytes:
    """Lines of about so many bytes together."""
    lines = [b"x-%d: %b\r\n" % (number, b"v" * 4000) for number in range(size // 4000)]
    return b"".join(lines)


def code(answer: Received) -> object:
    return orjson.loads(answer.body)["error"]["code"]


async def test_a_large_head_passes(client: RawClient) -> None:
    await client.send(HEALTH + headers(MAX_HEAD - 4000) + b"\r\n")
    assert (await client.answer()).status == 200


@pytest.mark.parametrize("size", [MAX_HEAD + 2 * PIECE, 400_000])
async def test_a_head_that_is_too_large(client: RawClient, size: int) -> None:
    await client.send(HEALTH + headers(size))
    refused = await client.answer()
    assert (refused.status, code(refused)) == (431, "request_headers_too_large")
    assert refused.headers["x-should-retry"] == "false"
    await client.receive_all()
    assert client.ended is not None


async def test_a_head_in_small_pieces_passes(client: RawClient) -> None:
    await client.drip(HEALTH + b"\r\n", 0.001)
    assert (await client.answer()).status == 200


class TestTimeout:
    @pytest.fixture(autouse=True)
    def short(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("gateway.server.http.request_head.HEAD_TIMEOUT", 0.3)

    async def test_a_head_that_never_ends(self, client: RawClient) -> None:
        await client.drip(HEALTH + b"x: " + b"y" * 1000, 0.02)
        refused = await client.answer()
        assert (refused.status, code(refused)) == (408, "request_timeout")
        await client.receive_all()
        assert client.ended is End.EOF

    async def test_a_connection_that_says_nothing_is_closed(self, client: RawClient) -> None:
        assert await client.receive_all() == b""
        assert client.ended is End.EOF

    async def test_the_second_head_of_a_connection(self, client: RawClient) -> None:
        await client.send(HEALTH + b"\r\n")
        assert (await client.answer()).status == 200
        await asyncio.sleep(0.4)  # an idle connection may be so for longer
        await client.drip(HEALTH + b"x: " + b"y" * 1000, 0.02)
        assert (await client.answer()).status == 408

    async def test_the_body_has_more_time(
        self, gateway: RunningGateway, upstream: ScriptedUpstream, client: RawClient
    ) -> None:
        upstream.respond_with(fixture_reply("chat"))
        sent = post(gateway, orjson.dumps(request_body(Format.CHAT)))
        await client.send(sent[:-10])
        await asyncio.sleep(0.5)
        await client.send(sent[-10:])
        assert (await client.answer()).status == 200


def post(gateway: RunningGateway, body: bytes) -> bytes:
    key = {"authorization": f"Bearer {gateway.key}", "content-type": "application/json"}
    return request(gateway.address, PATHS[Format.CHAT], body, key)


async def test_all_unfinished_heads_have_a_common_limit(
    gateway: RunningGateway, client: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It counts what has come of them, and nothing once they are complete or their connections are
    closed."""
    monkeypatch.setattr("gateway.server.http.request_head.MAX_UNFINISHED", 10_000)
    async with raw_client(gateway.address) as first:
        await first.send(HEALTH + headers(8000))
        await asyncio.sleep(0.05)
        await client.send(HEALTH + headers(8000))
        refused = await client.answer()
        assert (refused.status, code(refused)) == (503, "server_is_overloaded")
        await first.send(b"\r\n")
        assert (await first.answer()).status == 200
    for _ in range(3):
        async with raw_client(gateway.address) as next_one:
            await next_one.send(HEALTH + headers(8000))
            await asyncio.sleep(0.05)


async def test_a_body_of_any_size_is_no_head(
    gateway: RunningGateway, upstream: ScriptedUpstream, client: RawClient
) -> None:
    upstream.respond_with(fixture_reply("chat"))
    content = [{"role": "user", "content": "x" * 900_000}]
    body = orjson.dumps(request_body(Format.CHAT, messages=content))
    for _ in range(3):
        await client.send(post(gateway, body))
        answer = await client.answer()
        assert (answer.status, answer.end) == (200, End.OPEN)
    assert upstream.last_request.json["messages"] == content


async def test_what_is_sent_behind_a_request_is_not_collected(client: RawClient) -> None:
    """The first of many is answered, and then the connection is closed."""
    await client.send((HEALTH + headers(8000) + b"\r\n") * 50)
    assert (await client.answer()).status == 200
    await client.receive_all()
    assert client.ended is not None
    assert client.received.count(b"HTTP/1.1 200") <= 4


async def test_a_few_requests_at_once_are_answered(client: RawClient) -> None:
    await client.send((HEALTH + b"\r\n") * 20)
    for _ in range(20):
        assert (await client.answer()).status == 200


@pytest.mark.parametrize(("size", "is_kept"), [(4000, True), (3 * MAX_KEPT_HEAD, False)])
async def test_connections_with_large_heads_are_not_kept(
    client: RawClient, size: int, is_kept: bool
) -> None:
    """The parser keeps the last head of an idle connection."""
    await client.send(HEALTH + headers(size) + b"\r\n")
    answer = await client.answer()
    assert answer.status == 200
    assert (answer.headers.get("connection") != "close") == is_kept


@pytest.mark.slow("searches all objects for cycles")
@pytest.mark.large
async def test_a_rejected_head_leaves_no_cycle(gateway: RunningGateway) -> None:
    """What was read of it goes at once, not with the next garbage collection."""
    gc.collect()
    gc.disable()
    try:
        before = held_pieces()  # other tests have some
        for sent in (headers(100_000), b"\0" * 100_000):
            async with raw_client(gateway.address) as client:
                await client.send(HEALTH + sent)
                assert (await client.answer()).status in (400, 431)
        await asyncio.sleep(0.05)
        large = [each for each in gc.get_objects() if isinstance(each, StreamReader)]
        assert not [each for each in large if getattr(each, "_buffer", None)]  # some are empty
        assert held_pieces() <= before
    finally:
        gc.enable()


def held_pieces() -> set[bytes]:
    """Large bytes in lists and tuples."""
    held = [each for each in gc.get_objects() if isinstance(each, tuple | list)]
    pieces = (each for owner in held for each in owner if isinstance(each, bytes))
    return {piece for piece in pieces if len(piece) >= PIECE}
