"""Scenarios of answers that are sound, but late, slow, silent or endless.

Independent of errors.
"""

from __future__ import annotations

import asyncio
from itertools import count as counting
from itertools import repeat

from tests.resilience.faults.chunking import SHAPES
from tests.resilience.faults.sample_replies import Place, deltas, ending, keep_alive, opening
from tests.resilience.faults.scenario_registry import begin, head, say, scenario, sound
from tests.support.answer import Framing
from tests.support.upstream import ReceivedRequest


@scenario
async def ok(
    call: ReceivedRequest,
    case: str = "text",
    shape: str = "frame",
    *,
    delay: float = 0,
    pause: float = 0,
) -> None:
    """A sound reply, streamed or whole as asked: the fixture `case`, in a `shape`; the head after
    `delay` seconds and `pause` seconds between pieces."""
    await asyncio.sleep(delay)
    reply = sound(call, case)
    if call.streamed:
        await head(call)
    else:
        await head(call, Framing.LENGTH, len(reply.body))
    for chunk in SHAPES[shape](reply.chunks) if call.streamed else reply.chunks:
        await call.answer.say(chunk)
        await asyncio.sleep(pause)
    await call.answer.end()


@scenario
async def slow(call: ReceivedRequest, seconds: float = 1) -> None:
    """A sound reply whose head comes late."""
    await ok(call, delay=seconds)


@scenario
async def tick(call: ReceivedRequest, every: float = 0.01, count: int = 0, size: int = 0) -> None:
    """A word every so many seconds, `count` of them or without end, each of at least `size` bytes;
    in a body that is not streamed blanks before the reply. `tick:0` says what the peer takes."""
    chunks = [f"word {number} ".ljust(size, "-") for number in range(count)]
    await head(call)
    if not call.streamed:
        for _ in chunks or counting():
            await call.answer.say(b" " * max(1, size))
            await asyncio.sleep(every)
        await say(call, sound(call).chunks)
    else:
        await say(call, opening(call.format))
        for frame in deltas(call.format, chunks or repeat("word ".ljust(size, "-"))):
            await call.answer.say(frame)
            await asyncio.sleep(every)
        await say(call, ending(call.format, chunks))
    await call.answer.end()


@scenario
async def stall(call: ReceivedRequest, place: Place = Place.TEXT, seconds: float = 0) -> None:
    """Silence from a place on, so many seconds or (0) without end; then the rest."""
    reply = sound(call)
    if place is not Place.HEAD:
        await begin(call, reply, place)
    await (asyncio.sleep(seconds) if seconds else asyncio.Event().wait())
    if place is Place.HEAD:
        await head(call)
    await say(call, reply.after(place))
    await call.answer.end()


@scenario
async def comments(call: ReceivedRequest, every: float = 0.05, count: int = 0) -> None:
    """Comments alone, every so many seconds: without end, or `count` of them and then a sound
    reply. Not streamed: line ends before the body."""
    comment = b": keepalive\n\n" if call.streamed else b"\n"
    await _kept_alive(call, Place.START, comment, every, count)


@scenario
async def pings(call: ReceivedRequest, every: float = 0.05, count: int = 0) -> None:
    """What keeps a stream alive in its format, once it is open: `ping` in messages,
    `response.in_progress` in responses, an empty delta in chat; else like `comments`."""
    ping = keep_alive(call.format) if call.streamed else b"\n"
    await _kept_alive(call, Place.BEGUN if call.streamed else Place.START, ping, every, count)


async def _kept_alive(
    call: ReceivedRequest, place: Place, ping: bytes, every: float, count: int
) -> None:
    reply = sound(call)
    await begin(call, reply, place)
    for _ in range(count) if count else counting():
        await call.answer.say(ping)
        await asyncio.sleep(every)
    await say(call, reply.after(place))
    await call.answer.end()
