"""Flow control: an upstream waits for whoever reads, and goes on for whoever comes next."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass

import pytest

from gateway.upstream.response import MAX_BUFFERED, AttemptFailed, UpstreamResponse
from tests.support.timing import SLACK
from tests.upstream.raw_upstream import (
    HELLO,
    OK,
    ask,
    open_connection,
    open_pool,
    raw_upstream,
    read_request,
    run_loop,
    send,
    wait_until,
)

SIZE = 48 * 2**20
CHUNK = 64 * 1024
SOCKET_BUFFERS = 16 * 2**20
"""Bytes that the two sockets of a loopback connection have between them at most."""


@dataclass(slots=True)
class Source:
    """Answers with long bodies; `sent` counts the bytes of the current one."""

    sent: int = 0

    async def converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await read_request(reader)
            self.sent = 0
            writer.write(OK + b"content-length: %d\r\n\r\n" % SIZE)
            while self.sent < SIZE:
                writer.write(bytes(CHUNK))
                await writer.drain()
                self.sent += CHUNK

    async def stall(self) -> int:
        """How much was sent once no more is."""
        before = -1
        while self.sent != before:
            before = self.sent
            await asyncio.sleep(0.05)
        return before


def buffered(response: UpstreamResponse) -> int:
    return sum(map(len, response._chunks))


async def test_no_reader() -> None:
    """The upstream is made to wait, then it goes on, and the connection is used again."""
    source = Source()
    async with raw_upstream(source.converse) as upstream, open_pool() as pool:
        for _ in range(2):
            async with await send(pool, upstream.origin) as response:
                assert await source.stall() < SOCKET_BUFFERS
                assert MAX_BUFFERED < buffered(response) <= 2 * MAX_BUFFERED
                size = 0
                while chunk := await response.read_chunk():
                    size += len(chunk)
                assert size == SIZE
        assert upstream.connections == 1


async def test_a_subscriber_pauses_and_resumes() -> None:
    source = Source()
    async with raw_upstream(source.converse) as upstream, open_pool() as pool:
        async with await send(pool, upstream.origin) as response:
            size = 0

            def take() -> None:
                nonlocal size
                while data := response.take():
                    size += len(data)
                if SIZE // 2 < size < SIZE // 2 + MAX_BUFFERED:
                    response.pause()

            response.subscribe(take)
            take()
            assert await source.stall() < SIZE // 2 + MAX_BUFFERED + SOCKET_BUFFERS
            assert not response.is_read
            while not response.is_read:  # several reads may fall into the window
                response.resume()
                await asyncio.sleep(0.001)
            assert size == SIZE
        assert response.is_done


async def test_a_subscriber_pauses_the_upstream_with_what_it_leaves() -> None:
    """It goes on once all of that is taken."""
    source = Source()
    async with (
        raw_upstream(source.converse) as upstream,
        open_pool() as pool,
        await send(pool, upstream.origin) as response,
    ):
        response.subscribe(lambda: None)
        assert await source.stall() < SOCKET_BUFFERS
        assert MAX_BUFFERED < buffered(response) <= 3 * MAX_BUFFERED
        size = 0
        async with asyncio.timeout(10):
            while not response.is_read:
                size += len(response.take())
                await asyncio.sleep(0)
        assert size == SIZE


async def test_the_next_response_is_read_although_the_last_was_paused() -> None:
    async with open_connection() as line:
        for _ in range(3):
            request = await line.send_request()
            await line.send_parts([HELLO[:-2]])
            response = await request
            response.pause()
            line.peer.send(HELLO[-2:])
            await run_loop()
            response.subscribe(response.pause)  # paused in the very read that completes it
            response.resume()
            await wait_until(lambda response=response: response.is_complete)
            assert await response.read_chunk() == b"hello"
        assert line.connection.is_open


@pytest.mark.parametrize("paused", [False, True])
async def test_closed_before_its_end(paused: bool) -> None:
    """The connection is not used again, and the next request has its own answer."""
    source = Source()
    async with raw_upstream(source.converse) as upstream, open_pool() as pool:
        response = await send(pool, upstream.origin)
        if paused:
            await source.stall()
        response.close()
        response.close()
        await wait_until(lambda: not upstream.open)
        async with await send(pool, upstream.origin) as again:
            assert await again.read_chunk()
        assert upstream.connections == 2


async def test_closed_during_a_read() -> None:
    """Whoever waits is told, then and later."""
    async with open_connection() as line:
        request = await line.send_request()
        await line.send_parts([HELLO[:-2]])
        response = await request
        assert await response.read_chunk() == b"hel"
        reading = asyncio.ensure_future(response.read_chunk())
        await run_loop()
        response.close()
        for waiting in (reading, response.read_chunk()):
            with pytest.raises(AttemptFailed, match="closed"):
                await asyncio.wait_for(waiting, SLACK)


async def test_a_reader_that_is_cancelled_and_reads_again() -> None:
    async with open_connection() as line:
        request = await line.send_request()
        await line.send_parts([HELLO[:-5]])
        response = await request
        with suppress(TimeoutError):
            await asyncio.wait_for(response.read_chunk(), 0.01)
        await line.send_parts([HELLO[-5:]])
        assert await response.read_body(5) == b"hello"


@pytest.mark.parametrize("limit", [0, 4, 5, 6])
async def test_the_limit_of_a_body(limit: int) -> None:
    async with open_connection() as line:
        request = await line.send_request()
        await line.send_parts([HELLO[:-2], HELLO[-2:]])
        async with await request as response:
            if limit < 5:
                with pytest.raises(AttemptFailed, match="more than"):
                    await response.read_body(limit)
            else:
                assert await response.read_body(limit) == b"hello"


async def test_closing_the_pool_ends_reads() -> None:
    source = Source()
    async with raw_upstream(source.converse) as upstream, open_pool() as pool:
        response = await send(pool, upstream.origin)
        await source.stall()
        await pool.close()
        with pytest.raises(AttemptFailed, match="broke off"):
            while await response.read_chunk():
                pass
        await wait_until(lambda: not upstream.open)
        with pytest.raises(AttemptFailed):
            await ask(pool, upstream.origin)
        await wait_until(lambda: not upstream.open)
