"""Requests as they leave: large ones wait for the upstream, and one of which not everything left is
the last one of its connection."""

from __future__ import annotations

import asyncio
import socket

import pytest

from gateway.core.events import FailureKind
from gateway.upstream.connection import WRITE_SIZE
from tests.support.timing import SLACK
from tests.upstream.raw_upstream import (
    HELLO,
    OK,
    ask,
    echo,
    open_connection,
    open_pool,
    raw_upstream,
    read_all,
    request_head,
    run_loop,
    send,
    wait_until,
)

LARGE = bytes(32 * 2**20)
"""More than all buffers of a connection hold; zeros take no memory."""

TOO_LARGE = b"HTTP/1.1 413 Too Large\r\ncontent-length: 9\r\n\r\ntoo large"


@pytest.mark.parametrize("size", [0, 1, WRITE_SIZE, WRITE_SIZE + 1, 2 * WRITE_SIZE, 900_001])
async def test_a_body_is_sent(size: int) -> None:
    body = bytes(range(251)) * (size // 251 + 1)
    async with raw_upstream(echo) as upstream, open_pool() as pool:
        for _ in range(2):
            assert await ask(pool, upstream.origin, body[:size]) == body[:size]
        assert upstream.connections == 1


async def test_other_tasks_run_between_writes() -> None:
    """Also where the upstream takes everything at once."""
    async with raw_upstream(echo) as upstream, open_pool() as pool:
        await ask(pool, upstream.origin)
        request = asyncio.ensure_future(ask(pool, upstream.origin, bytes(4 * WRITE_SIZE)))
        seen: set[int] = set()
        while not request.done():
            await run_loop(1)
            (connection,) = pool._open
            if connection._transport is not None:
                seen.add(connection._transport.get_write_buffer_size())
        await request
        assert max(seen) <= 2 * WRITE_SIZE


async def test_an_upstream_that_reads_slowly() -> None:
    """What waits to be sent is bounded, and the loop stays free."""
    most = size = 0

    async def read_slowly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal most, size
        await reader.readuntil(b"\r\n\r\n")
        (connection,) = pool._open
        transport = connection._transport
        assert transport is not None
        await wait_until(transport.get_write_buffer_size)
        while size < len(LARGE):
            most = max(most, transport.get_write_buffer_size())
            await asyncio.sleep(0.001)
            size += len(await reader.read(2**20))
        writer.write(HELLO)
        await writer.drain()
        await reader.read()

    async with raw_upstream(read_slowly) as upstream, open_pool() as pool:
        assert await ask(pool, upstream.origin, LARGE) == b"hello"
        assert size == len(LARGE)
        assert 0 < most <= 2 * WRITE_SIZE


@pytest.mark.parametrize("reads_on", [True, False])
@pytest.mark.parametrize("answer", [TOO_LARGE, HELLO], ids=["413", "200"])
async def test_an_upstream_that_answers_before_it_has_read_everything(
    answer: bytes, reads_on: bool
) -> None:
    """The rest of the body never leaves, so the next request takes another connection."""
    got = b""

    async def answer_early(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal got
        await reader.readuntil(b"\r\n\r\n")
        await asyncio.sleep(0.01)
        writer.write(answer)
        await writer.drain()
        while reads_on and (data := await reader.read(2**20)):
            got = data[-100:]
        await asyncio.sleep(0 if reads_on else 10)

    async with raw_upstream(answer_early) as upstream, open_pool() as pool:
        for asked in (1, 2):
            async with asyncio.timeout(5), await send(pool, upstream.origin, LARGE) as response:
                body, kind = await read_all(response)
            assert (body, kind) == (answer.partition(b"\r\n\r\n")[2], None)
            assert upstream.connections == asked
        assert b"POST" not in got


@pytest.mark.parametrize("framing", [b"content-length: 5\r\n", b""], ids=["length", "end"])
async def test_an_upstream_that_answers_early_and_ends(framing: bytes) -> None:
    """Its end is seen although it never reads what still waits to be sent."""

    async def answer_early(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 Too Large\r\n" + framing + b"\r\nhello")
        writer.write_eof()
        await asyncio.sleep(60)

    async with (
        raw_upstream(answer_early) as upstream,
        open_pool() as pool,
        asyncio.timeout(SLACK),
        await send(pool, upstream.origin, LARGE) as response,
    ):
        assert response.status == 413
        assert await read_all(response) == (b"hello", None)


@pytest.mark.parametrize("text", [b"", b"HTTP/1.1 100 Continue\r\n\r\n"])
async def test_an_upstream_that_closes_during_the_request(text: bytes) -> None:
    async def leave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(text)
        await writer.drain()
        writer.transport.abort()

    async with raw_upstream(leave) as upstream, open_pool() as pool:
        with pytest.raises(Exception, match="broke") as failed:
            await asyncio.wait_for(send(pool, upstream.origin, LARGE), 5)
        assert failed.value.failure.kind is FailureKind.DISCONNECT  # type: ignore[attr-defined]
        assert not pool._open


async def test_a_small_unsent_request() -> None:
    """An answer to a request of which bytes still wait here: what is sent next would wait behind
    them for an upstream that reads nothing."""
    async with open_connection() as line:
        assert line.connection._transport is not None
        near = line.connection._transport.get_extra_info("socket")
        near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        line.peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        body = bytes(WRITE_SIZE)
        request = asyncio.ensure_future(line.connection.send(request_head(len(body)), body))
        await run_loop()
        await line.send_parts([HELLO])
        async with await request as response:
            assert await response.read_body(5) == b"hello"
        await run_loop()
        assert not line.connection.is_open


async def test_continue_precedes_the_response() -> None:
    """It is no answer: the body goes on."""

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        got = await reader.readexactly(len(LARGE))
        writer.write(OK + b"connection: close\r\n\r\n%d" % len(got))

    async with raw_upstream(converse) as upstream, open_pool() as pool:
        assert await ask(pool, upstream.origin, LARGE) == b"%d" % len(LARGE)
        await wait_until(lambda: not upstream.open)
