"""Responses of every framing are the same however the network cuts them."""

from __future__ import annotations

import socket
import struct
from typing import NamedTuple

import pytest

from gateway.core.events import FailureKind
from tests.upstream.raw_upstream import HELLO, OK, open_connection, run_loop

CHUNKED = OK + b"transfer-encoding: chunked\r\n\r\n"
_LINGER = (socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


class Case(NamedTuple):
    """What an upstream sends; `keeps`: the connection is used again. `ends`: the upstream closes it
    at the end."""

    wire: bytes
    body: bytes = b"hello"
    status: int = 200
    headers: dict[str, str] = {}  # noqa: RUF012
    keeps: bool = True
    ends: bool = False


CASES = {
    "content-length": Case(HELLO, headers={"content-length": "5"}),
    "nothing": Case(OK + b"content-length: 0\r\n\r\n", b""),
    "no content": Case(b"HTTP/1.1 204 No Content\r\nx: y\r\n\r\n", b"", 204, {"x": "y"}),
    "no reason": Case(b"HTTP/1.1 200\r\ncontent-length: 5\r\n\r\nhello"),
    "chunked": Case(CHUNKED + b"2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n"),
    "chunk extensions": Case(CHUNKED + b'2;a=b\r\nhe\r\n3;c="d;e"\r\nllo\r\n0;f\r\n\r\n'),
    "trailers": Case(
        CHUNKED + b"05\r\nhello\r\n000\r\ncontent-encoding: br\r\nx:\r\n\r\n",
        headers={"transfer-encoding": "chunked"},
    ),
    "until the end": Case(OK + b"a: b\r\n\r\nhello", headers={"a": "b"}, keeps=False, ends=True),
    "HTTP/1.0": Case(b"HTTP/1.0 200 OK\r\n\r\nhello", keeps=False, ends=True),
    "HTTP/1.0, a length": Case(HELLO.replace(b"1.1", b"1.0", 1), keeps=False),
    "HTTP/1.0, kept": Case(
        b"HTTP/1.0 200 OK\r\nconnection: Keep-Alive\r\ncontent-length: 5\r\n\r\nhello"
    ),
    "close": Case(OK + b"connection: x, Close\r\ncontent-length: 5\r\n\r\nhello", keeps=False),
    "continue": Case(b"HTTP/1.1 100 Continue\r\ncontent-length: 0\r\n\r\n" + HELLO),
    "early hints": Case(
        b"HTTP/1.1 103 Early Hints\r\nlink: a\r\ncontent-encoding: br\r\n\r\n" * 2 + HELLO,
        headers={"content-length": "5"},
    ),
    "spellings": Case(
        OK
        + b"CONTENT-LENGTH:5\r\nA: 1\r\na: 2\r\nB:\t x y \t\r\nC:\r\nD: \xc3\xa9\xff\r\n\r\nhello",
        headers={"content-length": "5", "a": "1", "b": "x y", "c": "", "d": "é\udcff"},
    ),
    "coding with a space": Case(
        OK + b"Transfer-Encoding: Chunked \r\nContent-Encoding: identity \r\n\r\n"
        b"5\r\nhello\r\n0\r\n\r\n"
    ),
    "line ends before": Case(b"\r\n\r\n" + HELLO),
    "an upgrade that is none": Case(
        OK + b"upgrade: h2c\r\nconnection: upgrade\r\ncontent-length: 5\r\n\r\nhello"
    ),
}
"""The connection is kept, and has another response behind, unless a case says otherwise."""


async def check(case: Case, parts: list[bytes]) -> None:
    async with open_connection() as line:
        status, headers, body, kind = await line.exchange(parts, end=case.ends)
        assert (status, body, kind) == (case.status, case.body, None)
        assert headers.items() >= case.headers.items()
        assert "link" not in headers, "an interim response has been forgotten"
        assert line.connection.is_open is case.keeps
        if case.keeps:
            again = await line.exchange([HELLO])
            assert again == (200, {"content-length": "5"}, b"hello", None)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
async def test_any_cut(case: Case) -> None:
    """In one read, in two reads, and each byte by itself."""
    await check(case, [case.wire])
    for cut in range(1, len(case.wire)):
        await check(case, [case.wire[:cut], case.wire[cut:]])
    await check(case, [bytes([byte]) for byte in case.wire])


LENGTH = OK + b"content-length: 9\r\n\r\n"
ENDS_EARLY = {
    "nothing": (b"", 0, b"", FailureKind.DISCONNECT),
    "half a head": (OK + b"content-le", 0, b"", FailureKind.DISCONNECT),
    "interim": (b"HTTP/1.1 100 Continue\r\n\r\n", 0, b"", FailureKind.DISCONNECT),
    "length, no byte": (LENGTH, 200, b"", FailureKind.TRUNCATED),
    "length": (LENGTH + b"hello", 200, b"hello", FailureKind.TRUNCATED),
    "chunked, no byte": (CHUNKED, 200, b"", FailureKind.TRUNCATED),
    "within a chunk": (CHUNKED + b"9\r\nhello", 200, b"hello", FailureKind.TRUNCATED),
    "within a size": (CHUNKED + b"5\r\nhello\r\n1", 200, b"hello", FailureKind.TRUNCATED),
    "before the last chunk": (CHUNKED + b"5\r\nhello\r\n", 200, b"hello", FailureKind.TRUNCATED),
    "within the trailers": (
        CHUNKED + b"5\r\nhello\r\n0\r\na: b\r\n",
        200,
        b"hello",
        FailureKind.TRUNCATED,
    ),
}


@pytest.mark.parametrize(("wire", "status", "body", "kind"), ENDS_EARLY.values(), ids=ENDS_EARLY)
async def test_an_early_end(wire: bytes, status: int, body: bytes, kind: FailureKind) -> None:
    """Whatever came before it is delivered."""
    for parts in ([wire], [bytes([byte]) for byte in wire]):
        async with open_connection() as line:
            got_status, _, got, got_kind = await line.exchange(parts, end=True)
            assert (got_status, got, got_kind) == (status, body, kind)
            assert not line.connection.is_open


@pytest.mark.parametrize("wire", [b"", LENGTH + b"hello", CHUNKED + b"5\r\nhello\r\n"])
async def test_a_reset(wire: bytes) -> None:
    async with open_connection() as line:
        request = await line.send_request()
        await line.send_parts([wire])
        line.peer.setsockopt(*_LINGER)
        line.peer.close()
        if not wire:
            with pytest.raises(Exception, match="broke"):
                await request
            return
        async with await request as response:
            assert await response.read_chunk() == b"hello"
            with pytest.raises(Exception, match="broke off"):
                await response.read_chunk()


async def test_a_local_close_does_not_complete_a_body() -> None:
    """Where the end of the connection is the end of the body, only the upstream's own end is."""
    async with open_connection() as line:
        request = await line.send_request()
        await line.send_parts([OK + b"\r\nhello"])
        response = await request
        assert await response.read_chunk() == b"hello"
        line.connection.close()
        await run_loop()
        with pytest.raises(Exception, match="broke off"):
            await response.read_chunk()
