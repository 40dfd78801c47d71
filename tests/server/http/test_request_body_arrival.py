"""Bodies that arrive after their heads: which limits they use meanwhile, how much memory they may
take, and how slowly they may come.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import orjson
import pytest

from gateway.core.formats import Format
from tests.server.key_limits import NOTHING_IN_USE, in_use, limit_key
from tests.support.gateway import PATHS, RunningGateway, channels, request_body, run_gateway
from tests.support.raw_client import RawClient, Received, raw_client, request
from tests.support.upstream import ScriptedUpstream, fixture_reply

COUNT = "/v1/messages/count_tokens"
MAX_BODY = 64 * 1024


def head(gateway: RunningGateway, path: str, **headers: str) -> bytes:
    """Of a request whose body is not sent."""
    named = {"authorization": f"Bearer {gateway.key}", "anthropic-version": "2023-06-01"}
    named |= {name.replace("_", "-"): value for name, value in headers.items()}
    return request(gateway.address, path, b"", named)


def padded(format: Format, size: int) -> bytes:
    body = orjson.dumps(request_body(format, metadata={"pad": ""}))
    return body.replace(b'"pad":""', b'"pad":"%b"' % (b"x" * (size - len(body))))


async def wait_until_reading(gateway: RunningGateway, requests: int) -> None:
    async with asyncio.timeout(5):
        while gateway.daemon.runtime.active_requests != requests:
            await asyncio.sleep(0.005)


@pytest.fixture
async def small(upstream: ScriptedUpstream, tmp_path: Path) -> AsyncIterator[RunningGateway]:
    """A gateway with a pool of two bodies of `MAX_BODY`."""
    upstream.respond_with(fixture_reply("chat"))
    server = {"max_body": MAX_BODY, "max_bodies": 1}
    async with run_gateway(tmp_path, channels(upstream.address), server=server) as gateway:
        yield gateway


async def test_idle_sockets_with_a_declared_length_take_nothing_from_the_others(
    gateway: RunningGateway, upstream: ScriptedUpstream
) -> None:
    upstream.respond_with(fixture_reply("chat"))
    async with AsyncExitStack() as stack:
        for number in range(20):
            idle = await stack.enter_async_context(raw_client(gateway.address))
            declared = {"content_length": str(64 * 2**20), "content_type": "application/json"}
            await idle.send(head(gateway, PATHS[Format.CHAT], **declared))
            await wait_until_reading(gateway, number + 1)
        assert (await gateway.post(Format.CHAT)).status == 200
        assert gateway.daemon.runtime.bodies.total == 0


@pytest.mark.parametrize("path", [COUNT, PATHS[Format.CHAT], PATHS[Format.MESSAGES]])
async def test_a_key_with_one_concurrent_request_sends_one_body(
    gateway: RunningGateway, path: str
) -> None:
    limit_key(gateway, concurrent=1)
    declared = head(gateway, path, content_length="1000", content_type="application/json")
    async with raw_client(gateway.address) as first, raw_client(gateway.address) as second:
        await first.send(declared)
        await wait_until_reading(gateway, 1)
        await second.send(declared)
        refused = await second.answer()
        assert refused.status == 429
        assert b"1 of 1 concurrent request running" in refused.body
        assert (b'"type":"error"' in refused.body) == (path != PATHS[Format.CHAT])
        await first.send(b" " * 1000)
        assert (await first.answer()).status == 400
    assert in_use(gateway) == NOTHING_IN_USE


async def test_what_a_rejected_body_has_used_is_given_back(
    gateway: RunningGateway, upstream: ScriptedUpstream
) -> None:
    """As for a body that comes with its head: only what passes counts."""
    limit_key(gateway, requests_per_minute=1)
    upstream.respond_with(fixture_reply("chat"))
    assert (await send_slowly(gateway, b"[" * 2000)).status == 400
    assert (await send_slowly(gateway, padded(Format.CHAT, 2000))).status == 200
    assert (await send_slowly(gateway, padded(Format.CHAT, 2000))).status == 429


async def send_slowly(gateway: RunningGateway, body: bytes) -> Received:
    """The answer to a body that comes after its head."""
    length = {"content_length": str(len(body)), "content_type": "application/json"}
    async with raw_client(gateway.address) as client:
        await client.send(head(gateway, PATHS[Format.CHAT], **length))
        await asyncio.sleep(0.02)
        await client.send(body)
        return await client.answer()


async def test_the_limits_are_taken_once(
    gateway: RunningGateway, upstream: ScriptedUpstream
) -> None:
    limit_key(gateway, requests_per_minute=2, concurrent=1)
    upstream.respond_with(fixture_reply("chat"))
    for _ in range(2):
        assert (await send_slowly(gateway, padded(Format.CHAT, 2000))).status == 200
    assert (await send_slowly(gateway, padded(Format.CHAT, 2000))).status == 429


async def test_with_a_queue_a_body_is_read_before_it_waits(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    """Streams get pings while they wait, so it has to be known whether it is one."""
    upstream.respond_with(fixture_reply("chat").with_changes(delay=0.3), fixture_reply("chat"))
    limits = {"concurrent": 1, "max_wait": 10}
    async with run_gateway(tmp_path, channels(upstream.address), limits=limits) as gateway:
        answers = [
            asyncio.ensure_future(send_slowly(gateway, padded(Format.CHAT, 2000))) for _ in range(3)
        ]
        assert [answer.status for answer in await asyncio.gather(*answers)] == [200, 200, 200]
        assert in_use(gateway) == NOTHING_IN_USE


@pytest.mark.parametrize("format", Format)
@pytest.mark.parametrize("is_chunked", [False, True])
async def test_a_key_gets_its_share_of_the_memory(
    small: RunningGateway, format: Format, is_chunked: bool
) -> None:
    """Of two bodies in flight that exceed it together, the second is refused."""
    path = PATHS[format]
    framing = {"transfer_encoding": "chunked"} if is_chunked else {"content_length": "60000"}
    declared = head(small, path, content_type="application/json", **framing)
    if is_chunked:
        declared = declared.replace(b"content-length: 0\r\n", b"")
    piece = b"c350\r\n" + b" " * 50_000 if is_chunked else b" " * 50_000
    async with raw_client(small.address) as first, raw_client(small.address) as second:
        await first.send(declared + piece)
        async with asyncio.timeout(5):
            while small.daemon.runtime.bodies.total < 50_000:
                await asyncio.sleep(0.005)
        await second.send(declared + piece)
        refused = await second.answer()
        assert (refused.status, refused.headers["retry-after"]) == (429, "1")
        assert b"this key: request bodies in flight have 50,000 of 65,536 bytes" in refused.body
        assert (b'"type":"error"' in refused.body) == (format is Format.MESSAGES)
    await wait_until_reading(small, 0)
    assert small.daemon.runtime.bodies.total == 0
    if format is Format.CHAT:
        assert (await small.post(format, padded(format, 60_000))).status == 200


async def test_the_memory_is_held_until_the_reply_has_ended(
    small: RunningGateway, upstream: ScriptedUpstream
) -> None:
    upstream.respond_with(fixture_reply("chat").with_changes(delay=0.3), fixture_reply("chat"))
    body = padded(Format.CHAT, 40_000)
    first = asyncio.ensure_future(small.post(Format.CHAT, body))
    await upstream.wait_for_request(1)
    assert (await small.post(Format.CHAT, body)).status == 429
    assert (await first).status == 200
    assert (await small.post(Format.CHAT, body)).status == 200
    assert small.daemon.runtime.bodies.total == 0


async def test_all_keys_and_addresses_share_the_pool(small: RunningGateway) -> None:
    pool = small.daemon.runtime.bodies
    for number in range(3):
        pool.add(f"key {number}", f"192.0.2.{number}", 40_000)
    refused = await small.post(Format.CHAT, padded(Format.CHAT, 20_000))
    assert (refused.status, refused.headers["retry-after"]) == (503, "5")


class TestRate:
    """A body has to come at some rate, however long it is."""

    @pytest.fixture(autouse=True)
    def short_window(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("gateway.server.http.request_body.UPLOAD_WINDOW", 0.2)

    @pytest.fixture
    async def demanding(
        self, upstream: ScriptedUpstream, tmp_path: Path
    ) -> AsyncIterator[RunningGateway]:
        upstream.respond_with(fixture_reply("chat"))
        server: dict[str, Any] = {"min_upload_rate": 20_000}
        async with run_gateway(tmp_path, channels(upstream.address), server=server) as gateway:
            yield gateway

    async def test_a_body_that_is_never_sent(self, demanding: RunningGateway) -> None:
        async with raw_client(demanding.address) as client:
            await client.send(self._head(demanding, 1000))
            assert (await client.answer()).status == 408

    async def test_a_trickle(self, demanding: RunningGateway) -> None:
        """As much as is demanded would be 4,000 bytes in each window."""
        async with raw_client(demanding.address) as client:
            await client.send(self._head(demanding, 60_000))
            assert await client.drip(b" " * 60_000, 0.05, size=500) < 10_000
            assert (await client.answer()).status == 408

    async def test_a_long_body_that_comes_at_that_rate(self, demanding: RunningGateway) -> None:
        body = padded(Format.CHAT, 60_000)
        async with raw_client(demanding.address) as client:
            await client.send(self._head(demanding, len(body)))
            loop = asyncio.get_running_loop()
            started = loop.time()
            await self._send_all(client, body)
            assert loop.time() - started > 0.4
            assert (await client.answer()).status == 200

    async def _send_all(self, client: RawClient, body: bytes) -> None:
        for start in range(0, len(body), 4_000):
            await client.send(body[start : start + 4_000])
            await asyncio.sleep(0.04)

    def _head(self, gateway: RunningGateway, length: int) -> bytes:
        declared = {"content_length": str(length), "content_type": "application/json"}
        return head(gateway, PATHS[Format.CHAT], **declared)
