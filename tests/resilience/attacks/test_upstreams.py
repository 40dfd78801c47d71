"""Upstreams that send what is expensive to read: one such reply delays nobody else."""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from typing import Final

import pytest

from gateway.core.formats import Format
from tests.resilience.attacks.attackers import post
from tests.resilience.attacks.target import HOSTILE, MIB, Target, attack
from tests.support.upstream import Response, event_stream, fixture_stream

pytestmark = pytest.mark.asyncio(loop_scope="package")

_FIRST, _REST = fixture_stream("chat").body.split(b"\n\n", 1)
_OPENING: Final = _FIRST + b"\n\n"
_LARGE: Final = b'data: {"choices":[{"index":0,"delta":{"content":"%b"}}]}\n\n' % (
    b"x" * (15 * MIB)
)
_LINES: Final = (
    b"".join(b": line %d %b\n" % (number, b"y" * 90) for number in range(150_000)) + b"\n"
)
_STREAM: Final = {"content-type": "text/event-stream"}
_PAGE: Final = {"content-type": "text/html"}


def _dripped(event: bytes, size: int) -> Response:
    """A stream with one event in pieces of that size."""
    pieces = (event[start : start + size] for start in range(0, len(event), size))
    return Response(headers=_STREAM, chunks=(_OPENING, *pieces, _REST))


def _packed(events: bytes) -> Response:
    """Compressed, although nobody has asked for that."""
    packed = gzip.compress(_OPENING + events + _REST)
    return Response(headers=_STREAM | {"content-encoding": "gzip"}, chunks=(packed,))


REPLIES: Final[Mapping[str, Response]] = {
    "endless interim responses": Response(raw=b"HTTP/1.1 100 Continue\r\n\r\n" * 200_000),
    "a title that never ends": Response(status=500, headers=_PAGE, chunks=(b"<title" * 5400,)),
    "many titles": Response(status=500, headers=_PAGE, chunks=(b"<title>" * 4600,)),
    "the name of a header": Response(status=429, headers={"ratelimit" * 5000: "1"}),
    "an event of 15 MB in small pieces": _dripped(_LARGE, 1000),
    "an event of many lines in small pieces": _dripped(_LINES, 2000),
    "compressed empty events": _packed(b"data: {}\n\n" * 1_000_000),
    "compressed white space": _packed(b" " * 15 * MIB + b"\n\n"),
    "blank lines": event_stream(_OPENING + b"\n" * 5 * MIB + _REST),
    "comments": event_stream(_OPENING + b": x\n\n" * MIB + _REST),
    "an event of empty lines of data": event_stream(_OPENING + b"data: \n" * 2 * MIB + _REST),
    "empty events": event_stream(_OPENING + b"data: {}\n\n" * 500_000 + _REST),
}


@pytest.mark.parametrize("name", REPLIES)
@attack
async def test_a_reply(target: Target, name: str) -> None:
    target.hostile.respond_with(REPLIES[name])
    model = HOSTILE.format(Format.CHAT).encode()
    body = b'{"model":"%b","stream":true,"messages":[{"role":"user","content":"x"}]}' % model
    (status,) = await post(target, Format.CHAT, body)
    assert status in {200, 502, 503}
    target.hostile.requests.clear()
