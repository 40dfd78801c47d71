"""Scenarios of odd successes: empty, too large, packed, uncounted or not what was asked for.

Independent of errors.
"""

from __future__ import annotations

import asyncio
import zlib
from functools import lru_cache

from tests.resilience.faults import sample_replies
from tests.resilience.faults.fault_dsl import PlanError
from tests.resilience.faults.sample_replies import Place, Reply
from tests.resilience.faults.scenario_registry import head, say, scenario, sound
from tests.resilience.faults.timing_scenarios import ok
from tests.support.answer import EVENTS, JSON
from tests.support.upstream import ReceivedRequest


@scenario
async def empty(call: ReceivedRequest, what: str = "reply") -> None:
    """A success that says nothing: a complete `reply` without content and usage; `usage`: with it;
    `bytes`: a 200 without a body; `done`: the stream's end alone."""
    reply = sound(call, "empty")
    match what:
        case "reply":
            reply = sample_replies.uncounted(reply, call.streamed)
        case "usage":
            pass
        case "bytes":
            reply = Reply((), {})
        case "done":
            reply = Reply(reply.after(Place.LAST), {})
        case _:
            raise PlanError(f"empty: {what!r}")
    await head(call)
    await say(call, reply.chunks)
    await call.answer.end()


@scenario
async def no_usage(call: ReceivedRequest) -> None:
    """A sound reply without a word about usage."""
    await head(call)
    await say(call, sample_replies.uncounted(sound(call), call.streamed).chunks)
    await call.answer.end()


@scenario
async def huge(call: ReceivedRequest, size: int = 17 * 2**20) -> None:
    """One event, or a body, of so many bytes and a few."""
    chunks = ["Hello ", "x" * size]
    await head(call)
    if call.streamed:
        await say(call, sample_replies.opening(call.format))
        await say(call, sample_replies.deltas(call.format, chunks))
        await say(call, sample_replies.ending(call.format, chunks))
    else:
        await call.answer.say(sample_replies.body_reply(call.format, "".join(chunks)))
    await call.answer.end()


@scenario
async def headers(call: ReceivedRequest, size: int = 20_000, count: int = 1) -> None:
    """A sound reply under so many headers of so many bytes each."""
    reply = sound(call)
    extra = [(f"x-upstream-{number}", "h" * size) for number in range(count)]
    await head(call, headers=extra)
    await say(call, reply.chunks)
    await call.answer.end()


@scenario
async def encoded(call: ReceivedRequest, coding: str = "gzip") -> None:
    """A sound reply in a coding that nobody asked for: `gzip`, `deflate`; `br`, whose bytes are
    none; `bad`: gzip by name alone."""
    named = "gzip" if coding == "bad" else coding
    await head(call, headers=[("content-encoding", named)])
    bits = {"gzip": 31, "deflate": 15}.get(coding)
    packer = zlib.compressobj(wbits=bits) if bits else None
    for chunk in sound(call).chunks:
        flushed = packer.compress(chunk) + packer.flush(zlib.Z_SYNC_FLUSH) if packer else chunk
        await call.answer.say(flushed)
    if packer:
        await call.answer.say(packer.flush())
    await call.answer.end()


@scenario
async def bomb(call: ReceivedRequest, size: int = 2**30) -> None:
    """A sound reply in gzip behind so many bytes of blanks (streamed: of a comment)."""
    start, end = (b":", b"\n\n") if call.streamed else (b"", b"")
    tail = end + sound(call).body
    await head(call, headers=[("content-encoding", "gzip")])
    for chunk in await asyncio.to_thread(_bomb, start, size, tail):
        await call.answer.say(chunk)
    await call.answer.end()


@lru_cache(maxsize=4)
def _bomb(start: bytes, size: int, tail: bytes) -> list[bytes]:
    """A megabyte of blanks is packed once and sent again and again: after a full flush, packed
    bytes mean the same wherever they stand."""
    blanks = b" " * 2**20
    packer = zlib.compressobj(wbits=-15)
    head = b"\x1f\x8b\x08" + bytes(6) + b"\xff"
    first = packer.compress(start) + packer.flush(zlib.Z_FULL_FLUSH)
    megabyte = packer.compress(blanks) + packer.flush(zlib.Z_FULL_FLUSH)
    megabytes, rest = divmod(size, 2**20)
    last = packer.compress(blanks[:rest] + tail) + packer.flush()
    checksum = zlib.crc32(start)
    for _ in range(megabytes):
        checksum = zlib.crc32(blanks, checksum)
    checksum = zlib.crc32(blanks[:rest] + tail, checksum)
    length = (len(start) + size + len(tail)) % 2**32
    trailer = checksum.to_bytes(4, "little") + length.to_bytes(4, "little")
    return [head + first, *[megabyte] * megabytes, last + trailer]


@scenario
async def streams_anyway(call: ReceivedRequest) -> None:
    """A stream, whatever was asked for."""
    await call.answer.head(200, EVENTS)
    await say(call, sample_replies.reply(call.format, True).chunks)
    await call.answer.end()


@scenario
async def whole_anyway(call: ReceivedRequest) -> None:
    """One JSON body, whatever was asked for."""
    await call.answer.send_body(200, JSON, sample_replies.reply(call.format, False).body)


@scenario
async def mislabelled(call: ReceivedRequest, kind: str = "none") -> None:
    """A sound reply under another content type: `none`, `json`, `events`, `text`, `octets`."""
    kinds = {"none": None, "json": JSON, "events": EVENTS}
    kinds |= {"text": "text/plain", "octets": "application/octet-stream"}
    await call.answer.head(200, kinds[kind])
    await say(call, sound(call).chunks)
    await call.answer.end()


@scenario
async def early(call: ReceivedRequest, status: int = 103) -> None:
    """An interim answer (100, 102, 103) before the sound one."""
    await call.answer.raw(b"HTTP/1.1 %d Early\r\nlink: </a.css>; rel=preload\r\n\r\n" % status)
    await ok(call)
