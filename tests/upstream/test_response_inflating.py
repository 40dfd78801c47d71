"""Compressed bodies: inflated piece by piece, within the limit, and never a cut one as a whole."""

from __future__ import annotations

import asyncio
import gzip
import tracemalloc
import zlib
from contextlib import suppress

import pytest

from gateway.core.events import FailureKind
from gateway.upstream.response import MAX_BUFFERED, MAX_PIECE, AttemptFailed, UpstreamResponse
from tests.upstream.raw_upstream import OK, ConnectionPair, open_connection, run_loop, wait_until

TEXT = b"data: {}\n\n" * 20
PACKED = {
    "gzip": gzip.compress(TEXT),
    "x-gzip": gzip.compress(TEXT),
    "GZip ": gzip.compress(TEXT),
    "deflate": zlib.compress(TEXT),
    "deflate, as some send it": zlib.compress(TEXT, wbits=-15),
    "gzip, in members": gzip.compress(TEXT[:50]) + gzip.compress(TEXT[50:]),
}
MEBIBYTE = 2**20


def wire(coding: str, packed: bytes) -> list[bytes]:
    """In chunks, and the last of them apart: only then is it known that no more comes."""
    head = OK + f"content-encoding: {coding}\r\ntransfer-encoding: chunked\r\n\r\n".encode()
    return [head, b"%x\r\n%b\r\n" % (len(packed), packed), b"0\r\n\r\n"]


def bomb(mebibytes: int) -> bytes:
    """A thousandth of what it inflates to."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    block = packer.compress(bytes(MEBIBYTE)) + packer.flush(zlib.Z_FULL_FLUSH)
    return b"\x1f\x8b\x08\0\0\0\0\0\0\xff" + block * mebibytes


@pytest.mark.parametrize("coding", PACKED)
async def test_a_coding(coding: str) -> None:
    whole = wire(coding.partition(",")[0], PACKED[coding])
    joined = b"".join(whole)
    for parts in (whole, [joined], [bytes([byte]) for byte in joined]):
        async with open_connection() as line:
            _, _, body, kind = await line.exchange(parts)
            assert (body, kind) == (TEXT, None)
            assert line.connection.is_open


@pytest.mark.parametrize("size", [MAX_PIECE - 1, MAX_PIECE, MAX_PIECE + 1, 10**6])
async def test_sizes_around_the_limit_of_a_read(size: int) -> None:
    async with open_connection() as line:
        _, _, body, kind = await line.exchange([b"".join(wire("gzip", gzip.compress(bytes(size))))])
        assert (body, kind) == (bytes(size), None)


@pytest.mark.parametrize(
    ("packed", "most"),
    [
        (b"", b""),
        (PACKED["gzip"][:5], b""),
        (PACKED["gzip"][:-8], TEXT),
        (PACKED["gzip"][:-1], TEXT),
        (PACKED["deflate"][:-1], TEXT),
        (PACKED["gzip"] + b"x", TEXT),
        (PACKED["gzip"] * 2 + b"x", TEXT * 2),
        (PACKED["gzip"][:-4] + b"size", b""),
        (b"plain", b""),
    ],
    ids=[
        "empty",
        "header",
        "no trailer",
        "no last byte",
        "zlib",
        "more",
        "twice",
        "wrong",
        "plain",
    ],
)
async def test_an_incomplete_body(packed: bytes, most: bytes) -> None:
    """What it inflates to so far is delivered, and then the failure: never an ordinary end."""
    head, body, last = wire("gzip", packed)
    body = body if packed else b""
    for parts in ([head + body + last], [head, body, last], [head + body, last]):
        async with open_connection() as line:
            _, _, got, kind = await line.exchange(parts)
            assert (got, kind) == (most, FailureKind.TRUNCATED)


@pytest.mark.parametrize("packed", [PACKED["gzip"], PACKED["gzip"][:-1]], ids=["whole", "cut"])
async def test_a_subscriber_gets_the_end(packed: bytes) -> None:
    """Whoever takes what arrives sees the end although the last read had nothing to inflate."""
    async with open_connection() as line:
        request = await line.send_request()
        head, body, last = wire("gzip", packed)
        await line.send_parts([head])
        response = await request
        got: list[bytes] = []
        response.subscribe(lambda: got.append(response.take()))
        await line.send_parts([body, last])
        assert b"".join(got) == TEXT
        assert response.is_read is (packed is PACKED["gzip"])
        assert (response.error is None) is response.is_read


async def test_a_bomb() -> None:
    """A megabyte that inflates to a gigabyte: the limit counts what it inflates to, and no more of
    it is ever in memory than a few reads."""
    packed = bomb(1024)
    assert len(packed) < 1.2 * MEBIBYTE
    async with open_connection() as line:
        request = await line.send_request()
        saying = asyncio.ensure_future(_say_all(line, b"".join(wire("gzip", packed))))
        async with await request as response:
            tracemalloc.start()
            try:
                with pytest.raises(AttemptFailed) as failed:
                    await response.read_body(2 * MEBIBYTE)
                assert tracemalloc.get_traced_memory()[1] < 6 * MEBIBYTE
            finally:
                tracemalloc.stop()
            assert failed.value.failure.kind is FailureKind.TOO_LARGE
            assert 0 < len(await response.read_chunk()) <= MAX_PIECE
        saying.cancel()
        with suppress(asyncio.CancelledError, ConnectionError):
            await saying


async def test_bytes_after_the_end_are_discarded() -> None:
    """Without end, and nothing comes of them: the first of them is the failure."""
    async with open_connection() as line:
        request = await line.send_request()
        await line.send_parts(
            [OK + b"content-encoding: gzip\r\n\r\n" + PACKED["gzip"] + b"x" * 1000]
        )
        async with await request as response:
            assert await response.read_chunk() == TEXT
            for _ in range(3):
                await line.send_parts([b"x" * 1000])
                with pytest.raises(AttemptFailed, match="cannot be decompressed"):
                    await response.read_chunk()


async def test_a_slow_subscriber() -> None:
    """A read gives at most so many inflated bytes, so what was packed tightly has to wait; then so
    has the upstream."""
    async with open_connection() as line:
        request = await line.send_request()
        saying = asyncio.ensure_future(_say_all(line, b"".join(wire("gzip", bomb(8192)))))
        response = await request
        sizes: list[int] = []
        response.subscribe(lambda: sizes.append(len(response.take())))
        await wait_until(lambda: response.is_paused)
        assert not saying.done()
        assert max(sizes) <= MAX_PIECE
        assert _buffered(response) <= 3 * MAX_BUFFERED
        sizes.clear()
        await run_loop(20)
        assert len(sizes) <= 2, "the upstream waits"
        response.close()
        saying.cancel()
        with suppress(asyncio.CancelledError, ConnectionError):
            await saying


def _buffered(response: UpstreamResponse) -> int:
    return sum(map(len, response._chunks))


async def _say_all(line: ConnectionPair, data: bytes) -> None:
    line.peer.setblocking(False)
    await asyncio.get_running_loop().sock_sendall(line.peer, data)
