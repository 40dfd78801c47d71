"""What is no response, or more than one: a failure of the right kind, and no byte of it ever
becomes the response to the next request."""

from __future__ import annotations

from contextlib import suppress

import pytest

from gateway.core.events import FailureKind
from gateway.upstream.connection import MAX_OVERHEAD
from gateway.upstream.response import AttemptFailed
from tests.upstream.raw_upstream import HELLO, OK, ConnectionPair, open_connection, run_loop

LENGTH = b"content-length: 5\r\n"
CODING = b"transfer-encoding: chunked\r\n"
CHUNKED = OK + CODING + b"\r\n"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"

GARBAGE = {
    "HTTP/0.9": b"hello",
    "a page": b"<html>\r\n\r\n</html>",
    "HTTP/2 settings": b"\0\0\x12\4\0\0\0\0\0\0\3\0\0\0\x64",
    "HTTP/2 preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "a request": b"GET / HTTP/1.1\r\n\r\n",
    "version": b"HTTP/1.2 200 OK\r\n\r\n",
    "status of two digits": b"HTTP/1.1 20 OK\r\n\r\n",
    "status of four digits": b"HTTP/1.1 2000 OK\r\n\r\n",
    "status 0": b"HTTP/1.1 000 OK\r\n\r\nhello" + HELLO,
    "status 99": b"HTTP/1.1 099 OK\r\n" + LENGTH + b"\r\nhello" + HELLO,
    "another protocol": b"HTTP/1.1 101 Switching\r\nupgrade: x\r\nconnection: upgrade\r\n\r\nx",
    "interim with a length": b"HTTP/1.1 150 X\r\n" + LENGTH + b"\r\nhello" + HELLO,
    "interim in chunks": b"HTTP/1.1 150 X\r\n" + CODING + b"\r\n1\r\na\r\n0\r\n\r\n" + HELLO,
    "continue with a length": b"HTTP/1.1 100 X\r\n" + LENGTH + b"\r\nhello" + HELLO,
    "length and chunks": OK + LENGTH + CODING + b"\r\n5\r\nhello\r\n0\r\n\r\n",
    "chunks and length": OK + CODING + LENGTH + b"\r\n5\r\nhello\r\n0\r\n\r\n",
    "two lengths": OK + LENGTH + b"Content-Length: 6\r\n\r\nhello",
    "the same length twice": OK + LENGTH * 2 + b"\r\nhello",
    "a list of lengths": OK + b"content-length: 5, 5\r\n\r\nhello",
    "negative length": OK + b"content-length: -5\r\n\r\nhello",
    "signed length": OK + b"content-length: +5\r\n\r\nhello",
    "no length": OK + b"content-length:\r\n\r\nhello",
    "endless length": OK + b"content-length: 99999999999999999999\r\n\r\nhello",
    "a coding within chunks": OK + b"transfer-encoding: gzip, chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
    "unknown framing": OK + b"transfer-encoding: xchunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
    "chunks not last": OK + b"transfer-encoding: chunked, identity\r\n\r\nhello",
    "no colon": OK + b"nonsense\r\n" + LENGTH + b"\r\nhello",
    "no name": OK + b": x\r\n" + LENGTH + b"\r\nhello",
    "space before the colon": OK + b"a : x\r\n" + LENGTH + b"\r\nhello",
    "NUL": OK + b"a: x\0y\r\n" + LENGTH + b"\r\nhello",
    "carriage return": OK + b"a: x\ry\r\n" + LENGTH + b"\r\nhello",
    "line feed alone": OK + b"a: x\n" + LENGTH + b"\r\nhello",
    "folded line": OK + b"a: x\r\n y\r\n" + LENGTH + b"\r\nhello",
    "br": OK + b"content-encoding: br\r\n" + LENGTH + b"\r\nhello",
    "zstd": OK + b"Content-Encoding: ZSTD\r\n" + LENGTH + b"\r\nhello",
    "two codings": OK + b"content-encoding: gzip, gzip\r\n" + LENGTH + b"\r\nhello",
    "long value": OK + b"a: " + b"x" * 70_000 + b"\r\n" + LENGTH + b"\r\nhello",
    "long name": OK + b"a" * 300 + b": x\r\n" + LENGTH + b"\r\nhello",
    "interim responses": b"HTTP/1.1 100 Continue\r\n\r\n" * 20 + OK + LENGTH + b"\r\nhello",
    "many headers": OK + b"".join(b"a%d: x\r\n" % n for n in range(300)) + LENGTH + b"\r\nhello",
    "chunk size: a word": CHUNKED + b"five\r\nhello\r\n",
    "chunk size: negative": CHUNKED + b"-5\r\nhello\r\n",
    "chunk size: prefixed": CHUNKED + b"0x5\r\nhello\r\n",
    "chunk size: space before": CHUNKED + b" 5\r\nhello\r\n",
    "chunk size: space behind": CHUNKED + b"5 \r\nhello\r\n",
    "chunk size: missing": CHUNKED + b"\r\nhello\r\n",
    "chunk size: too large": CHUNKED + b"fffffffffffffffff\r\nhello\r\n",
    "chunk size: line feed": CHUNKED + b"5\nhello\n",
    "chunk extension: line feed": CHUNKED + b"5;a\nb\r\nhello\r\n",
}
CUT = {
    "chunk too long": CHUNKED + b"5\r\nhelloo\r\n",
    "chunk without end": CHUNKED + b"5\r\nhello5\r\n",
    "second size": CHUNKED + b"5\r\nhello\r\nx\r\n",
    "trailer without colon": CHUNKED + b"5\r\nhello\r\n0\r\nnonsense\r\n\r\n",
    "trailer with a length": CHUNKED + b"5\r\nhello\r\n0\r\ncontent-length: 9\r\n\r\n",
}
"""After some of the body."""

ALL = [
    *(pytest.param(wire, b"", FailureKind.MALFORMED, id=what) for what, wire in GARBAGE.items()),
    *(pytest.param(wire, b"hello", FailureKind.TRUNCATED, id=what) for what, wire in CUT.items()),
]


@pytest.mark.parametrize(("wire", "body", "kind"), ALL)
async def test_no_response(wire: bytes, body: bytes, kind: FailureKind) -> None:
    """In one read, or each byte by itself."""
    for step in (len(wire), 1 if len(wire) < 1000 else 1000):
        parts = [wire[start : start + step] for start in range(0, len(wire), step)]
        async with open_connection() as line:
            _, _, got, got_kind = await line.exchange(parts)
            assert (got, got_kind) == (body, kind)
            assert not line.connection.is_open


BEHIND = {
    "a byte": b"H",
    "a word": b"hello",
    "half a head": OK + b"x-swallows: ",
    "a head": OK + b"content-length: 2\r\n\r\n",
    "a response": OK + b"content-length: 2\r\n\r\nno",
    "two responses": (OK + b"content-length: 2\r\n\r\nno") * 2,
    "interim": CONTINUE,
    "an end of chunks": b"0\r\n\r\n",
    "NUL": b"\0",
}
COMPLETE = {"length": HELLO, "chunks": CHUNKED + b"5\r\nhello\r\n0\r\n\r\n"}


@pytest.mark.parametrize("behind", BEHIND.values(), ids=BEHIND)
@pytest.mark.parametrize("response", COMPLETE.values(), ids=COMPLETE)
async def test_bytes_after_a_response(response: bytes, behind: bytes) -> None:
    """They belong to no request: the connection has had its last one."""
    for parts in ([response + behind], [response, behind]):
        async with open_connection() as line:
            _, _, body, kind = await line.exchange(parts)
            assert (body, kind) == (b"hello", None)
            assert not line.connection.is_open
            assert line.pool._take_idle(line.connection.origin) is None  # type: ignore[arg-type]


async def test_line_ends_after_a_response() -> None:
    """Some servers send one too many; nobody can take it for a response."""
    async with open_connection() as line:
        await line.exchange([HELLO + b"\r\n"])
        _, _, body, kind = await line.exchange([HELLO])
        assert (body, kind) == (b"hello", None)


@pytest.mark.parametrize("text", [HELLO, b"H", b"\r\n"])
async def test_a_response_before_any_request(text: bytes) -> None:
    async with open_connection() as line:
        await line.send_parts([text])
        assert not line.connection.is_open
        assert (await line.exchange([]))[3] is FailureKind.DISCONNECT


CHUNK = 8192
ENDLESS = {
    "continue": (b"", CONTINUE * (CHUNK // len(CONTINUE)), FailureKind.MALFORMED),
    "line ends": (b"", b"\r\n" * CHUNK, FailureKind.MALFORMED),
    "reason": (b"HTTP/1.1 200 ", b"x" * CHUNK, FailureKind.MALFORMED),
    "one header": (OK + b"a: ", b"x" * CHUNK, FailureKind.MALFORMED),
    "one name": (OK, b"x" * CHUNK, FailureKind.MALFORMED),
    "one name, many times": (OK, b"a: x\r\n" * (CHUNK // 6), FailureKind.MALFORMED),
    "interim headers": (b"HTTP/1.1 100 C\r\n", b"a: x\r\n" * (CHUNK // 6), FailureKind.MALFORMED),
    "chunk extension": (CHUNKED + b"5;", b"x" * CHUNK, FailureKind.MALFORMED),
    "zeros of a size": (CHUNKED, b"0" * CHUNK, FailureKind.MALFORMED),
    "later extension": (CHUNKED + b"1\r\na\r\n5;", b"x" * CHUNK, FailureKind.TRUNCATED),
    "trailers": (CHUNKED + b"1\r\na\r\n0\r\n", b"a: x\r\n" * (CHUNK // 6), FailureKind.TRUNCATED),
    "one trailer": (CHUNKED + b"1\r\na\r\n0\r\na:", b"x" * CHUNK, FailureKind.TRUNCATED),
}


@pytest.mark.parametrize(("begin", "piece", "kind"), ENDLESS.values(), ids=ENDLESS)
async def test_an_endless_head(begin: bytes, piece: bytes, kind: FailureKind) -> None:
    async with open_connection() as line:
        request = await line.send_request()
        sent = await say_until_closed(line, begin, piece)
        assert sent <= MAX_OVERHEAD + 16 * CHUNK
        got = None
        try:
            async with await request as response:
                while await response.read_chunk():
                    pass
        except AttemptFailed as failed:
            got = failed.failure.kind
        assert got is kind


async def say_until_closed(line: ConnectionPair, begin: bytes, piece: bytes) -> int:
    """How many bytes that took."""
    await line.send_parts([begin])
    sent = 0
    with suppress(ConnectionError):
        while line.connection.is_open and sent < 16 * MAX_OVERHEAD:
            sent += line.peer.send(piece)
            await run_loop()
    return sent


async def test_body_bytes_are_not_counted_as_overhead() -> None:
    """A long stream of short chunks goes on."""
    async with open_connection() as line:
        chunks = b"1\r\na\r\n" * 50_000
        parts = [chunks[start : start + 9000] for start in range(0, len(chunks), 9000)]
        _, _, body, kind = await line.exchange([CHUNKED, *parts, b"0\r\n\r\n"])
        assert (len(body), kind) == (50_000, None)
        assert line.connection.is_open
