"""No body that the gateway accepts, or refuses, stalls the others or takes much memory."""

from __future__ import annotations

import asyncio
import gzip

import brotli
import pytest
from backports import zstd

from gateway.core.formats import Format
from tests.resilience.attacks.attackers import connections, head, post
from tests.resilience.attacks.bodies import MAX_BODY, SHAPES, write
from tests.resilience.attacks.target import HOSTILE, MIB, Target, attack
from tests.support.upstream import fixture_reply

pytestmark = pytest.mark.asyncio(loop_scope="package")

FORMATS = list(Format)


@pytest.mark.one_in(9)
@pytest.mark.parametrize("upstream_format", FORMATS)
@pytest.mark.parametrize("client_format", FORMATS)
@pytest.mark.parametrize("shape", SHAPES)
@attack
async def test_a_pathological_body(
    target: Target, shape: str, client_format: Format, upstream_format: Format
) -> None:
    target.hostile.respond_with(fixture_reply(upstream_format))
    body = write(shape, client_format, HOSTILE.format(upstream_format))
    await target.measure()  # what it took the machine to make it is no attack
    (status,) = await post(target, client_format, body)
    assert status in {200, 400, 413}
    target.hostile.requests.clear()


@attack
async def test_several_large_bodies_at_once(target: Target) -> None:
    target.hostile.respond_with(fixture_reply("messages"))
    body = write("many_turns", Format.CHAT, HOSTILE.format(Format.MESSAGES))
    statuses = await post(target, Format.CHAT, body, times=4)
    assert set(statuses) <= {200, 400, 413, 429, 503}
    target.hostile.requests.clear()


@pytest.mark.parametrize("encoding", ["gzip", "br", "zstd"])
@attack
async def test_bodies_that_expand(target: Target, encoding: str) -> None:
    """20 at once, each a gigabyte: they are refused after a few megabytes."""
    compress = {"gzip": gzip.compress, "br": brotli.compress, "zstd": zstd.compress}[encoding]
    bomb = await asyncio.to_thread(compress, bytes(256 * MIB))
    large = await asyncio.to_thread(compress, write("large_texts", Format.CHAT, "any"))
    await target.measure()  # what it took the machine to make them is no attack
    for body in (bomb, large):
        statuses = await post(target, Format.CHAT, body, times=20, **{"content-encoding": encoding})
        assert set(statuses) <= {400, 413, 429, 503}, statuses


@attack
async def test_idle_sockets_that_declare_large_bodies(target: Target) -> None:
    """Others are still served, although 40 bodies of the largest size are announced."""
    async with connections(target, 40) as idle:
        announced = head(target, f"content-length: {MAX_BODY}", key=target.small_key)
        for connection in idle:
            await connection.send(announced)
        await asyncio.sleep(8)


@attack
async def test_chunked_bodies_that_never_end(target: Target) -> None:
    """30 bodies of 59 MB: together they may not take 2 GB."""
    piece = b"10000\r\n" + b" " * 0x10000 + b"\r\n"

    async with connections(target, 30) as endless:

        async def flood(number: int) -> None:
            connection = endless[number]
            await connection.send(head(target, "transfer-encoding: chunked", key=target.key))
            for _ in range(59 * MIB // 0x10000):
                if not await connection.send(piece):
                    return

        async with asyncio.timeout(40):
            await asyncio.gather(*(flood(number) for number in range(len(endless))))
        await asyncio.sleep(1)
