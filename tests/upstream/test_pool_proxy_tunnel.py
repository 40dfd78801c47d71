"""What a proxy may answer where it is asked for a tunnel."""

from __future__ import annotations

import asyncio

import pytest

from gateway.core.events import FailureKind
from gateway.upstream.connection import Origin
from gateway.upstream.pool import MAX_HEAD
from tests.upstream.certificates import Authority
from tests.upstream.raw_upstream import RawUpstream, ask, echo, open_pool, raw_upstream, wait_until
from tests.upstream.test_pool import kind_of

ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"
REFUSALS = {
    "407": b"HTTP/1.1 407 Authentication Required\r\ncontent-length: 0\r\n\r\n",
    "502": b"HTTP/1.0 502 Bad Gateway\r\n\r\n<html>",
    "redirect": b"HTTP/1.1 302 Found\r\nlocation: /\r\n\r\n",
    "interim": b"HTTP/1.1 100 Continue\r\n\r\n",
    "four digits": b"HTTP/1.1 2000 OK\r\n\r\n",
    "HTTP/2": b"HTTP/2 200\r\n\r\n",
    "garbage": b"\0\xff\r\n\r\n",
    "page": b"<html>" + b"x" * 1000 + b"\r\n\r\n",
    "huge": b"HTTP/1.1 200 OK\r\nx: " + b"x" * MAX_HEAD,
    "huge, then done": b"HTTP/1.1 200 OK\r\nx: " + b"x" * MAX_HEAD + b"\r\n\r\n",
    "nothing": b"",
    "half": ESTABLISHED[:-2],
    "more behind": ESTABLISHED + b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nno",
}


def tunnelled(proxy: RawUpstream, port: int = 443) -> Origin:
    return Origin("localhost", port, tls=True, proxy=("127.0.0.1", proxy.origin.port))


@pytest.mark.parametrize("answer", REFUSALS.values(), ids=REFUSALS)
async def test_no_tunnel(answer: bytes) -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)

    async with raw_upstream(refuse) as proxy, open_pool() as pool:
        assert await kind_of(pool, tunnelled(proxy)) is FailureKind.CONNECT
        assert not pool._open
        await wait_until(lambda: not proxy.open)


@pytest.mark.parametrize("answer", [b"", ESTABLISHED[:-1], ESTABLISHED], ids=["", "half", "200"])
async def test_a_proxy_that_is_silent(answer: bytes) -> None:
    """Before its answer, within it, or behind it."""

    async def say(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await reader.read()

    async with raw_upstream(say) as proxy, open_pool() as pool:
        assert await kind_of(pool, tunnelled(proxy), 0.2) is FailureKind.CONNECT
        await wait_until(lambda: not proxy.open)


async def test_a_proxy_that_closes_immediately() -> None:
    async def leave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()

    async with raw_upstream(leave) as proxy, open_pool() as pool:
        for _ in range(5):
            assert await kind_of(pool, tunnelled(proxy)) is FailureKind.CONNECT


async def test_a_proxy_that_sends_before_the_request() -> None:
    async def send_early(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail ready\r\n\r\n")
        await reader.read()

    async with raw_upstream(send_early) as proxy, open_pool() as pool:
        assert await kind_of(pool, tunnelled(proxy)) is FailureKind.CONNECT
        await wait_until(lambda: not proxy.open)


@pytest.mark.parametrize("cut", [1, 9, 12, len(ESTABLISHED) - 3, len(ESTABLISHED) - 1])
async def test_an_answer_in_two_reads(trusted: Authority, cut: int) -> None:
    """The tunnel is one that leads back to the same port, where TLS is spoken next."""

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(ESTABLISHED[:cut])
        await asyncio.sleep(0.01)
        writer.write(ESTABLISHED[cut:])
        await writer.start_tls(trusted.server())
        await echo(reader, writer)

    async with raw_upstream(converse) as proxy, open_pool() as pool:
        assert await ask(pool, tunnelled(proxy), b"hello") == b"hello"
