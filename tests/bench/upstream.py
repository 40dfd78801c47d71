"""The upstream of a run: a server that costs almost nothing, so that it is never the bottleneck.

The first segment of the path, `KIND-FORMAT`, chooses what is answered, whatever the request says;
`KINDS` lists the kinds. Every answer is rendered at start. Two paths serve the bench itself:

* `GET /requests`: the number of requests answered so far;
* `POST /credits`: the connection then carries lines, each the id of a windowed stream whose next
  write may leave (see `tests.bench.load`).

A server under test that is saturated finds several writes of a fast upstream in one read. A
*windowed* stream prevents that: it has at most one event between upstream and client, because the
load generator grants each write after it has seen the event before. The server under test then
reads single events however busy it is, and other streams keep it busy meanwhile. The request names
its stream in its text (`stream-id-7.`), which survives every translation.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

import uvloop

from tests.bench.limits import raise_open_files
from tests.bench.samples import FORMATS, REPLIES, STREAMS, SampleStream

EVENTS_PER_WRITE = 8
PACED_SECONDS = 0.01
STREAM_ID = b"stream-id-"

# Sixteen phases: streams that begin together do not write together.
PHASES = 16


@dataclass(frozen=True, slots=True)
class Kind:
    """How a stream is written. `interval`: seconds between two writes, 0 as fast as possible."""

    events_per_write: int
    interval: float = 0.0
    windowed: bool = False


KINDS: dict[str, Kind | None] = {
    "whole": None,
    "delayed": None,
    "burst": Kind(EVENTS_PER_WRITE),
    "single": Kind(1, windowed=True),
    "paced": Kind(1, interval=PACED_SECONDS),
    "timed": Kind(EVENTS_PER_WRITE, interval=0.02),
    "slow": Kind(EVENTS_PER_WRITE, interval=0.5),
}
"""None: a whole reply in JSON."""

DELAY = 0.005
"""Seconds before a reply of the kind `delayed`: less than any model needs."""


def render_reply(body: bytes) -> bytes:
    head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
    return head.encode() + b"\r\n" + body


def render_writes(stream: SampleStream, kind: Kind) -> list[bytes]:
    """One HTTP chunk for each write; the head is part of the first, the closing frames are the
    last. The first write of a windowed stream has all frames up to the first word."""

    def chunk(frames: list[bytes]) -> bytes:
        data = b"".join(frames)
        return b"%x\r\n%b\r\n" % (len(data), data)

    frames = stream.frames
    first = stream.opening + 1 if kind.windowed else kind.events_per_write
    last = len(frames) - stream.closing
    starts = range(first, last, kind.events_per_write)
    writes = [chunk(frames[:first])]
    writes += [chunk(frames[at : min(at + kind.events_per_write, last)]) for at in starts]
    writes.append(chunk(frames[last:]) + b"0\r\n\r\n")
    head = (
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    )
    writes[0] = head + writes[0]
    return writes


@dataclass(frozen=True, slots=True)
class Answer:
    """What a path answers: writes, one for a whole reply."""

    writes: list[bytes]
    kind: Kind | None
    delay: float = 0.0


def render_answers() -> dict[bytes, Answer]:
    answers = {}
    for name, kind in KINDS.items():
        for wire in FORMATS:
            writes = render_writes(STREAMS[wire], kind) if kind else [render_reply(REPLIES[wire])]
            delay = DELAY if name == "delayed" else 0.0
            answers[f"{name}-{wire}".encode()] = Answer(writes, kind, delay)
    return answers


class Shared:
    """What the connections share. `windowed`: the remaining writes of a stream, by its id."""

    def __init__(self) -> None:
        self.answers = render_answers()
        self.count = 0
        self.windowed: dict[bytes, tuple[asyncio.Transport, Iterator[bytes]]] = {}

    def grant(self, stream_id: bytes) -> None:
        if stream_id in self.windowed:
            transport, writes = self.windowed[stream_id]
            data = next(writes, None)
            if data is None or transport.is_closing():
                del self.windowed[stream_id]
            else:
                transport.write(data)


class Credits(asyncio.Protocol):
    """Reads the ids of windowed streams, one on a line."""

    def __init__(self, shared: Shared) -> None:
        self.shared = shared
        self.rest = b""

    def data_received(self, data: bytes) -> None:
        *ids, self.rest = (self.rest + data).split(b"\n")
        for stream_id in ids:
            self.shared.grant(stream_id)


class Connection(asyncio.Protocol):
    """Requests in, in order; the next one is read when the answer to the last has been written."""

    transport: asyncio.Transport

    def __init__(self, shared: Shared, loop: asyncio.AbstractEventLoop) -> None:
        self.shared = shared
        self.loop = loop
        self.received: list[bytes] = []
        self.missing = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's has another base class

    def data_received(self, data: bytes) -> None:
        self.received.append(data)
        self.missing -= len(data)
        if self.missing > 0:  # the rest of a large body, whose length is known
            return
        request = b"".join(self.received)
        head, blank, body = request.partition(b"\r\n\r\n")
        if not blank:
            self.received = [request]
            return
        _, found, length = head.lower().partition(b"\r\ncontent-length:")
        self.missing = (int(length.split(b"\r\n", 1)[0]) if found else 0) - len(body)
        if self.missing > 0:
            self.received = [request]
            return
        self.received = []
        self.missing = 0
        method, path, _ = head.split(b" ", 2)
        self.answer(method, path.split(b"/", 2)[1], body)

    def answer(self, method: bytes, name: bytes, body: bytes) -> None:
        if name == b"requests":
            number = b"%d" % self.shared.count
            head = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(number)
            self.transport.write(head + number)
        elif name == b"credits":
            self.transport.set_protocol(Credits(self.shared))
        elif name in self.shared.answers and method == b"POST":
            self.shared.count += 1
            self.write(self.shared.answers[name], body)
        else:
            self.transport.write(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")

    def write(self, answer: Answer, body: bytes) -> None:
        if answer.delay:
            # Such replies are asked for one at a time, and a timer of the loop is a millisecond
            # early or late.
            time.sleep(answer.delay)
        if answer.kind is None:
            self.transport.write(answer.writes[0])
        elif answer.kind.windowed:
            stream_id = body.rpartition(STREAM_ID)[2].split(b".", 1)[0]
            self.shared.windowed[stream_id] = self.transport, iter(answer.writes)
            self.shared.grant(stream_id)
        elif answer.kind.interval:
            phase = self.shared.count % PHASES / PHASES
            begin = self.loop.time() + phase * min(answer.kind.interval, 0.02)
            self.write_at(begin, answer.kind.interval, iter(answer.writes))
        else:
            self.write_at_once(iter(answer.writes))

    def write_at_once(self, writes: Iterator[bytes]) -> None:
        data = next(writes, None)
        if data is None or self.transport.is_closing():
            return
        self.transport.write(data)
        # The loop sends what one turn wrote as one segment: every write gets a turn of its own.
        self.loop.call_soon(self.write_at_once, writes)

    def write_at(self, when: float, interval: float, writes: Iterator[bytes]) -> None:
        data = next(writes, None)
        if data is None or self.transport.is_closing():
            return
        self.transport.write(data)
        # Times are absolute, so that a late turn does not stretch the stream.
        self.loop.call_at(when + interval, self.write_at, when + interval, interval, writes)


async def serve(port: int) -> None:
    loop = asyncio.get_running_loop()
    shared = Shared()
    server = await loop.create_server(
        lambda: Connection(shared, loop), "127.0.0.1", port, backlog=4096
    )
    await server.serve_forever()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    raise_open_files()
    uvloop.run(serve(parser.parse_args().port))
