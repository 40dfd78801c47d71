"""Connections that have served a request: what is sent on them again, whose response may come on
them, and when none is trusted any more."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable

import pytest

from gateway.core.events import FailureKind
from gateway.upstream.connection import PREMATURE, STALE_WINDOW, UNANSWERED, UNSOLICITED
from gateway.upstream.response import AttemptFailed, StaleConnection
from tests.support.tcp_server import Talk
from tests.upstream.raw_upstream import (
    HELLO,
    OK,
    ask,
    echo,
    open_connection,
    open_pool,
    raw_upstream,
    read_all,
    read_request,
    request_head,
    run_loop,
    send,
    wait_until,
)
from tests.upstream.test_pool import kind_of

LARGE = bytes(32 * 2**20)
"""More than all buffers of a connection hold; zeros take no memory."""

ERROR = b"HTTP/1.1 %d No\r\ncontent-length: 2\r\n\r\nno"


def serve(seen: list[int], *actions: Callable[[asyncio.StreamWriter], object]) -> Talk:
    """Reads a request for each action, and does it; then the connection ends. The lengths of the
    requests' bodies are appended to `seen`."""

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for act in actions:
            _, body = await read_request(reader)
            seen.append(len(body))
            act(writer)

    return converse


def respond(writer: asyncio.StreamWriter) -> None:
    writer.write(HELLO)


def do_nothing(writer: asyncio.StreamWriter) -> None:
    pass


async def test_an_end_that_was_not_read_yet() -> None:
    """The socket knows of it before the event loop does: nothing is sent there."""
    seen: list[int] = []
    writers: list[asyncio.StreamWriter] = []

    def respond_on(writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        respond(writer)

    async with (
        raw_upstream(serve(seen, respond_on, respond)) as upstream,
        open_pool() as pool,
    ):
        await ask(pool, upstream.origin)
        with socket.socket(fileno=os.dup(writers[0].get_extra_info("socket").fileno())) as own:
            own.shutdown(socket.SHUT_WR)
        assert await ask(pool, upstream.origin) == b"hello"
        assert (len(seen), upstream.connections) == (2, 2)
        assert not pool.distrusted


async def test_a_request_that_never_arrived_is_sent_again() -> None:
    """The upstream had closed the connection, and that is seen only after the request was sent."""
    async with open_connection() as line:
        assert (await line.exchange([HELLO]))[2] == b"hello"
        line.peer.recv(4096)  # with something unread its end would be a reset
        line.peer.close()
        with pytest.raises(StaleConnection):
            await line.connection.send(request_head(), b"")
        assert not line.pool.distrusted


@pytest.mark.parametrize("waits", [0, STALE_WINDOW + 0.2])
async def test_a_request_that_may_have_been_served_is_not_sent_again(waits: float) -> None:
    seen: list[int] = []

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await serve(seen, respond, do_nothing)(reader, writer)
        await asyncio.sleep(waits)

    async with raw_upstream(converse) as upstream, open_pool() as pool:
        await ask(pool, upstream.origin)
        kind = await kind_of(pool, upstream.origin)
        assert kind is (FailureKind.DISCONNECT if waits else FailureKind.REUSED)
        assert seen == [0, 0]
        assert pool.distrusted == ({} if waits else {UNANSWERED: 1})


@pytest.mark.parametrize("begun", [b"H", b"HTTP/1.1 100 Continue\r\n\r\n"])
async def test_a_response_that_began(begun: bytes) -> None:
    """It is that of this request, which the upstream has received."""
    seen: list[int] = []
    talk = serve(seen, respond, lambda writer: writer.write(begun))
    async with raw_upstream(talk) as upstream, open_pool() as pool:
        await ask(pool, upstream.origin)
        assert await kind_of(pool, upstream.origin) is FailureKind.DISCONNECT
        assert len(seen) == 2


@pytest.mark.parametrize("is_read", [True, False])
async def test_a_second_response_to_a_request(
    is_read: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On an idle connection, whether the event loop has read it or not: neither this connection nor
    another one to the upstream is reused for a time."""
    monkeypatch.setattr("gateway.upstream.pool.REUSE_PAUSE", 0.2)
    writers: list[asyncio.StreamWriter] = []

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        number = len(writers)
        while True:
            await read_request(reader)
            await asyncio.sleep(0.01)
            writer.write(OK + b"content-length: 1\r\n\r\n%d" % number)

    async with (
        raw_upstream(converse) as upstream,
        raw_upstream(echo) as other,
        open_pool() as pool,
    ):
        await ask(pool, other.origin)
        await asyncio.gather(*(ask(pool, upstream.origin) for _ in range(2)))
        for writer in writers:
            os.write(writer.get_extra_info("socket").fileno(), HELLO)
        if is_read:
            await wait_until(lambda: upstream.open == 0)
        assert await ask(pool, upstream.origin) == b"3"
        assert await ask(pool, upstream.origin) == b"4"
        assert pool.distrusted[UNSOLICITED] >= 1
        await ask(pool, other.origin)
        assert other.connections == 1
        await asyncio.sleep(0.25)
        assert not pool._distrusted
        assert [await ask(pool, upstream.origin) for _ in range(2)] == [b"5", b"5"]


async def test_a_second_response_behind_the_first() -> None:
    seen: list[int] = []
    talk = serve(seen, lambda writer: writer.write(HELLO * 2), respond)
    async with raw_upstream(talk) as upstream, open_pool() as pool:
        assert [await ask(pool, upstream.origin) for _ in range(2)] == [b"hello"] * 2
        assert (upstream.connections, pool.distrusted[UNSOLICITED]) == (2, 2)


@pytest.mark.parametrize("text", [ERROR % 408, b"\r\n"])
async def test_an_end_that_is_announced(text: bytes) -> None:
    """It is an ordinary end of an idle connection, as is a line too many."""
    async with open_connection() as line:
        await line.exchange([HELLO])
        await line.send_parts([text])
        assert not line.connection.is_open
        assert not line.pool.distrusted


async def test_a_success_before_its_request() -> None:
    """That is the response to an earlier request: this one is sent again, as it never arrived."""
    seen: list[int] = []

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if upstream.connections == 1:
            await serve(seen, respond)(reader, writer)
            await reader.readuntil(b"\r\n\r\n")
            writer.write(HELLO)
            await asyncio.sleep(10)
        await reader.readuntil(b"\r\n\r\n")
        seen.append(len(await reader.readexactly(len(LARGE))))
        writer.write(OK + b"content-length: 3\r\n\r\nown")
        await writer.drain()

    async with raw_upstream(converse) as upstream, open_pool() as pool:
        await ask(pool, upstream.origin)
        seen.clear()
        assert await ask(pool, upstream.origin, LARGE) == b"own"
        assert seen == [len(LARGE)]
        assert pool.distrusted == {PREMATURE: 1}


async def test_an_error_before_the_end_of_its_request() -> None:
    """That is ordinary HTTP: the client gets it, and the request is not sent again."""

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(HELLO)
        await reader.readuntil(b"\r\n\r\n")
        writer.write(ERROR % 413)
        await asyncio.sleep(10)

    async with raw_upstream(converse) as upstream, open_pool() as pool:
        await ask(pool, upstream.origin)
        async with asyncio.timeout(5), await send(pool, upstream.origin, LARGE) as response:
            assert response.status == 413
            assert await read_all(response) == (b"no", None)
        assert upstream.connections == 1
        assert not pool.distrusted


@pytest.mark.parametrize("response", [HELLO, ERROR % 408, ERROR % 500])
async def test_a_response_before_anything_of_its_request(response: bytes) -> None:
    """The request is on its way and may still be served: whoever sends it again says so."""
    async with open_connection() as line:
        transport = line.connection._transport
        assert transport is not None
        near = transport.get_extra_info("socket")
        line.peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        with socket.socket(fileno=os.dup(near.fileno())) as own:
            own.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2**20)
        first = bytes(2**16)  # more than the peer's buffer, less than one's own
        request = asyncio.ensure_future(line.connection.send(request_head(len(first)), first))
        await run_loop()
        await line.send_parts([HELLO])
        async with await request as early:
            assert await early.read_body(5) == b"hello"
        assert line.connection.is_reused
        line.connection.round_trip = 10.0  # the peer is far away
        request = await line.send_request()
        await line.send_parts([response])
        with pytest.raises(AttemptFailed, match=PREMATURE) as failed:
            await request
        assert not isinstance(failed.value, StaleConnection)
        assert failed.value.failure.kind is FailureKind.REUSED
        assert line.pool.distrusted == {PREMATURE: 1}
