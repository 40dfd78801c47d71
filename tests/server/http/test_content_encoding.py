"""Compressed request bodies: every encoding, broken ones, and those that expand too much."""

from __future__ import annotations

import asyncio
import gzip
import os
import zlib
from functools import partial
from pathlib import Path
from time import process_time

import brotli
import orjson
import pytest
from backports import zstd

from gateway.core.formats import Format
from gateway.errors import InvalidRequest, RequestTooLarge, UnsupportedMediaType
from gateway.server.http.body_buffer import BodyBuffer
from gateway.server.http.content_encoding import ENCODINGS, MAX_RATIO, decompress
from tests.support.gateway import RunningGateway, channels, request_body, run_gateway
from tests.support.upstream import ScriptedUpstream, fixture_reply

pytestmark = pytest.mark.shared_gateway

MIB = 2**20


def _buffer(capacity: int) -> BodyBuffer:
    return BodyBuffer(capacity, lambda close: close())


BODY = os.urandom(300_000).hex().encode() + b'{"a":1}' * 100_000
HALF = len(BODY) // 2


def deflate(data: bytes, window: int = -zlib.MAX_WBITS) -> bytes:
    compressor = zlib.compressobj(wbits=window)
    return compressor.compress(data) + compressor.flush()


COMPRESSED = {
    "gzip": ("gzip", lambda: gzip.compress(BODY)),
    "gzip, two members": ("gzip", lambda: gzip.compress(BODY[:HALF]) + gzip.compress(BODY[HALF:])),
    "x-gzip": ("x-gzip", lambda: gzip.compress(BODY)),
    "deflate": ("deflate", lambda: zlib.compress(BODY)),
    "deflate, without a header": ("deflate", lambda: deflate(BODY)),
    "br": ("br", lambda: brotli.compress(BODY, quality=4)),
    "zstd": ("zstd", lambda: zstd.compress(BODY)),
    "zstd, two frames": ("zstd", lambda: zstd.compress(BODY[:HALF]) + zstd.compress(BODY[HALF:])),
}
COMPRESS = {
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "br": partial(brotli.compress, quality=4),
    "zstd": zstd.compress,
}


@pytest.mark.parametrize("case", COMPRESSED)
async def test_every_encoding(case: str) -> None:
    encoding, compress = COMPRESSED[case]
    compressed = compress()
    booked: list[int] = []
    body = await decompress(
        compressed, encoding, MIB * 64, booked.append, asyncio.to_thread, _buffer
    )
    assert bytes(body) == BODY
    assert sum(booked) == len(BODY)
    assert max(booked) < 400_000, "in small steps"


@pytest.mark.parametrize("case", COMPRESSED)
async def test_broken_bodies(case: str) -> None:
    encoding, compress = COMPRESSED[case]
    compressed = compress()
    cut = len(compressed) * 2 // 3
    for broken in (b"", b"hello", compressed[:-1], compressed[:cut], compressed + b"\0"):
        with pytest.raises(InvalidRequest) as raised:
            await decompress(broken, encoding, MIB * 64, lambda _: None, asyncio.to_thread, _buffer)
        assert raised.value.message.startswith("content-encoding: the body is not valid ")


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
async def test_parts_without_content(encoding: str) -> None:
    empty = {"gzip": gzip.compress(b""), "zstd": zstd.compress(b"")}[encoding]
    with pytest.raises(InvalidRequest, match="too many"):
        await decompress(empty * 100_000, encoding, MIB, lambda _: None, asyncio.to_thread, _buffer)


@pytest.mark.parametrize("encoding", COMPRESS)
async def test_bombs(encoding: str) -> None:
    booked: list[int] = []
    bomb = COMPRESS[encoding](bytes(20 * MIB))
    with pytest.raises(RequestTooLarge, match="decompressed, it has more than"):
        await decompress(bomb, encoding, 64 * MIB, booked.append, asyncio.to_thread, _buffer)
    assert sum(booked) <= max(MIB, len(bomb) * MAX_RATIO) + 200_000


@pytest.mark.slow("decompresses large bodies")
async def test_others_go_on_meanwhile() -> None:
    compressed = gzip.compress(BODY * 30)
    work = asyncio.ensure_future(
        decompress(compressed, "gzip", 64 * MIB, lambda _: None, asyncio.to_thread, _buffer)
    )
    steps = 0
    before = process_time()  # with the thread's, but without what other processes take
    worst = 0.0
    while not work.done():
        await asyncio.sleep(0)
        steps += 1
        now = process_time()
        before, worst = now, max(worst, now - before)
    assert len(work.result()) == len(BODY) * 30
    assert steps > 100
    assert worst < 0.1


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd", "ZSTD"])
@pytest.mark.parametrize("format", Format)
async def test_the_upstream_gets_the_plain_body(
    gateway: RunningGateway, upstream: ScriptedUpstream, format: Format, encoding: str
) -> None:
    upstream.respond_with(fixture_reply(format))
    body = request_body(format)
    raw = orjson.dumps(body)
    compressed = COMPRESS[encoding.lower()](raw)
    answer = await gateway.post(format, compressed, headers={"content-encoding": encoding})
    assert answer.status == 200
    assert "content-encoding" not in upstream.last_request.headers
    sent = upstream.last_request.json
    assert sent | {"model": body["model"]} == sent | body | {"model": body["model"]}
    assert gateway.daemon.runtime.bodies.total == 0


async def test_limits_are_those_of_the_plain_body(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    upstream.respond_with(fixture_reply("chat"))
    server = {"max_body": 10_000}
    async with run_gateway(tmp_path, channels(upstream.address), server=server) as gateway:
        for size, status in ((9_000, 200), (10_000, 413)):
            turns = [{"role": "user", "content": "x" * size}]
            raw = orjson.dumps(request_body(Format.CHAT, messages=turns))
            answer = await gateway.post(
                Format.CHAT, zstd.compress(raw), headers={"content-encoding": "zstd"}
            )
            assert answer.status == status
        assert gateway.daemon.runtime.bodies.total == 0


def test_every_accepted_encoding_is_announced() -> None:
    ((name, value),) = UnsupportedMediaType.extra_headers
    assert name == "accept-encoding"
    assert set(value.split(", ")) == set(ENCODINGS) - {"x-gzip"}
