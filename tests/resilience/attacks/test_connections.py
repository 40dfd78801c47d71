"""Connections without a key, and clients that do not read, take little from the others."""

from __future__ import annotations

import asyncio

import pytest

from gateway.core.formats import Format
from tests.resilience.attacks.attackers import connections, head, post
from tests.resilience.attacks.target import HOSTILE, MIB, Target, attack
from tests.support.upstream import event_stream, fixture_stream

pytestmark = pytest.mark.asyncio(loop_scope="package")


@attack
async def test_partial_heads_with_many_headers(target: Target) -> None:
    """400 sockets that never end their 120 headers of 8 KB."""
    before = target.rss()
    unfinished = head(target).removesuffix(b"\r\n")
    headers = b"".join(b"x-%d: %b\r\n" % (n, b"v" * 8_000) for n in range(120))
    async with connections(target, 400) as sockets:
        await asyncio.gather(*(socket.send(unfinished + headers) for socket in sockets))
        await asyncio.sleep(2)
        assert target.rss() - before <= 100 * MIB


@attack
async def test_partial_heads_end_within_ten_seconds(target: Target) -> None:
    async with connections(target, 5) as sockets:
        for socket in sockets:
            await socket.send(head(target)[:-2])
        ends = (socket.receive_until_closed(13) for socket in sockets)
        answers = await asyncio.gather(*ends)
    assert all(answer == b"" or answer.startswith(b"HTTP/1.1 408") for answer in answers)


@attack
async def test_requests_with_many_headers_one_behind_another(target: Target) -> None:
    """200 clients that read no answer to what they send, and keep their connections."""
    before = target.rss()
    headers = b"".join(b"x-%d: %b\r\n" % (n, b"v" * 7_000) for n in range(4))
    requests = (head(target, path="/nothing").removesuffix(b"\r\n") + headers + b"\r\n") * 20
    async with connections(target, 200) as sockets:
        for _ in range(3):
            await asyncio.gather(*(socket.send(requests) for socket in sockets))
        await asyncio.sleep(1)
        assert target.rss() - before <= 100 * MIB


@attack
async def test_more_connections_than_one_address_may_have(target: Target) -> None:
    async with connections(target, 2500) as sockets:
        await asyncio.sleep(1)
        ends = (socket.receive_until_closed(15) for socket in sockets)
        answers = await asyncio.gather(*ends)
    assert any(answer.startswith(b"HTTP/1.1 429") for answer in answers)


@attack
async def test_many_wrong_keys(target: Target) -> None:
    statuses = await post(target, Format.CHAT, b"{}", key="sk-wrong", times=1000)
    assert set(statuses) <= {401, 429, 0}


@attack
async def test_garbage(target: Target) -> None:
    async with connections(target, 200) as sockets:
        await asyncio.gather(*(socket.send(b"\x00\xff" * 50_000) for socket in sockets))
        await asyncio.sleep(1)


@attack
async def test_clients_that_never_read(target: Target) -> None:
    """200 clients, each with a reply of 8 MB that it does not read: memory comes back."""
    before = target.rss()
    text = fixture_stream("chat").body
    first, rest = text.split(b"\n\n", 1)
    word = b'data: {"choices":[{"index":0,"delta":{"content":"%b"}}]}\n\n' % (b"w" * 4000)
    script = event_stream(first + b"\n\n" + word * 2000 + rest)
    target.hostile.respond_with(script)
    model = HOSTILE.format(Format.CHAT)
    body = b'{"model":"%b","stream":true,"messages":[{"role":"user","content":"x"}]}'
    asked = body % model.encode()
    async with connections(target, 200) as sockets:
        for socket in sockets:
            request = head(target, f"content-length: {len(asked)}", key=target.key) + asked
            await socket.send(request)
        await asyncio.sleep(5)
        held = target.rss() - before
    await asyncio.sleep(3)
    assert held <= 200 * MIB
    assert target.rss() - before <= 60 * MIB
    target.hostile.requests.clear()
