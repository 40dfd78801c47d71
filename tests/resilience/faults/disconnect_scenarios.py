"""Scenarios that break the line, HTTP or the body. Independent of what replies mean."""

from __future__ import annotations

import asyncio
from enum import Enum

from tests.resilience.faults.fault_dsl import PlanError
from tests.resilience.faults.sample_replies import Place
from tests.resilience.faults.scenario_registry import begin, say, scenario, sound
from tests.resilience.faults.timing_scenarios import ok
from tests.support.answer import Framing
from tests.support.upstream import ReceivedRequest


class Cut(Enum):
    """How a body ends before its end."""

    CHUNKED = "chunked"
    """FIN inside a chunked body."""
    LENGTH = "length"
    """FIN before a content-length is reached."""
    FIN = "fin"
    """FIN where that is how a body ends: nobody can tell by HTTP that more was to come."""
    RESET = "reset"
    """RST inside a chunked body."""
    RESET_LENGTH = "reset_length"
    RESET_CLOSE = "reset_close"
    """RST where FIN would have been the end."""
    GARBLED = "garbled"
    """A chunk whose size is no number, inside a chunked body."""


FRAMING = {
    Cut.LENGTH: Framing.LENGTH,
    Cut.RESET_LENGTH: Framing.LENGTH,
    Cut.FIN: Framing.CLOSE,
    Cut.RESET_CLOSE: Framing.CLOSE,
}

_READ_TIME = 0.02
"""Seconds for the peer to take what came before."""
_ACKNOWLEDGED = 0.25
"""Seconds within which a request is acknowledged, as a reset does not do."""


@scenario
async def cut(call: ReceivedRequest, place: Place = Place.TEXT, how: Cut = Cut.CHUNKED) -> None:
    """The answer breaks off at a place."""
    reply = sound(call)
    if place is not Place.HEAD:
        framing = FRAMING.get(how, Framing.CHUNKED)
        await begin(call, reply, place, framing, len(reply.body))
    if how is Cut.GARBLED:
        await asyncio.sleep(_READ_TIME)
        await call.answer.raw(b"zz\r\n")
    if how in (Cut.RESET, Cut.RESET_LENGTH, Cut.RESET_CLOSE):
        await call.answer.reset()
    call.answer.hang_up()


@scenario
async def hangup(call: ReceivedRequest, how: str = "fin") -> None:
    """The connection ends after the request: `fin` or `reset` without a byte, `head` within the
    head, `status` within the status line."""
    begun = {"fin": b"", "reset": b"", "head": b"HTTP/1.1 200 OK\r\nconte", "status": b"HTTP/1"}
    await call.answer.raw(begun[how])
    if how == "reset":
        await call.answer.reset(after=0)
    call.answer.hang_up()


@scenario
async def stale(call: ReceivedRequest, how: str = "close", seconds: float = 0) -> None:
    """A connection that dies while nobody uses it: `close` hangs up so many seconds after a sound
    answer that promised to go on; with `next` and `reset` the first request of a connection is
    answered, and any later one, which was received, gets FIN or RST without a byte."""
    if how not in ("close", "next", "reset"):
        raise PlanError(f"stale: {how!r}")
    if how == "close":
        await ok(call)
        call.answer.idle = seconds
    elif call.nth == 1:
        await ok(call)
    else:
        await asyncio.sleep(_READ_TIME if how == "next" else _ACKNOWLEDGED)
        await hangup(call, "fin" if how == "next" else "reset")


@scenario
async def malformed(call: ReceivedRequest, place: Place = Place.TEXT, what: str = "json") -> None:
    """One event that is no JSON (`json`), no UTF-8 (`utf8`) or has nothing in it (`empty`), and
    then the rest. Not streamed: a body that is none from that place on."""
    bad = {"json": b'{"bad', "utf8": b'{"bad":"\xff\xfe"}', "empty": b""}[what]
    reply = sound(call)
    await begin(call, reply, place)
    if call.streamed:
        await call.answer.say(b"data: %b\n\n" % bad)
        await say(call, reply.after(place))
    else:
        await call.answer.say(bad)
    await call.answer.end()


@scenario
async def violate(call: ReceivedRequest, what: str = "status") -> None:
    """What is no HTTP: a bad `status` line, `header` line or first `chunk`, two different content
    `lengths`, a length beside chunks (`both`), or the `banner` of another protocol."""
    start = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
    length, chunks = b"content-length: 2\r\n", b"transfer-encoding: chunked\r\n"
    answers = {
        "status": b"HTTP/1.1 two hundred\r\n\r\n",
        "header": start + b"no colon here\r\n" + length + b"\r\n{}",
        "chunk": start + chunks + b"\r\nzz\r\n{}\r\n0\r\n\r\n",
        "lengths": start + length + b"content-length: 3\r\n\r\n{}\n",
        "both": start + length + chunks + b"\r\n2\r\n{}\r\n0\r\n\r\n",
        "banner": b"SSH-2.0-OpenSSH_9.2\r\n",
    }
    await call.answer.raw(answers[what])
    call.answer.hang_up()
