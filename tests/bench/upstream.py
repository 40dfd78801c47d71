"""An endpoint that costs almost nothing, so that it is never the bottleneck.

The first segment of the path chooses what is answered, whatever the request says:

* `/whole/...`: one chat reply in JSON;
* `/chat/...`, `/messages/...`, `/responses/...`: a stream of `EVENTS` events in that format,
  `EVENTS_PER_WRITE` to a write, as fast as it goes;
* `/joined/...`: the same writes of chat, at a fixed interval;
* `/paced/...`: the same stream, one event to a write, at that interval;
* `/requests`: how many of these were asked for so far, as a bare number.

It must not know whether a relay or the gateway is asking: every answer is rendered at start.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Iterator
from typing import cast

import orjson
import uvloop

from tests.bench.speech import MODEL, SPEECHES, USAGE, Speech

EVENTS_PER_WRITE = 8

# Sixteen phases: streams that begin together do not tick together.
PHASES = 16


def render_reply() -> bytes:
    body = orjson.dumps(
        {
            "id": "chatcmpl-bench",
            "object": "chat.completion",
            "created": 1767225600,
            "model": MODEL,
            "choices": [
                {
                    "index": 0,
                    "message": {"role": "assistant", "content": "lorem ipsum dolor " * 6},
                    "logprobs": None,
                    "finish_reason": "stop",
                }
            ],
            "usage": USAGE,
        }
    )
    head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
    return head.encode() + b"\r\n" + body


def render_writes(speech: Speech, events_per_write: int) -> list[bytes]:
    """One HTTP chunk to a write; the head rides with the first, the closing frames are the last."""

    def chunk(frames: list[bytes]) -> bytes:
        data = b"".join(frames)
        return b"%x\r\n%b\r\n" % (len(data), data)

    frames = speech.frames
    last = len(frames) - speech.closing
    starts = range(0, last, events_per_write)
    writes = [chunk(frames[at : min(at + events_per_write, last)]) for at in starts]
    writes.append(chunk(frames[last:]) + b"0\r\n\r\n")
    head = (
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    )
    writes[0] = head + writes[0]
    return writes


REPLY = render_reply()
BURSTS = {
    name.encode(): render_writes(speech, EVENTS_PER_WRITE) for name, speech in SPEECHES.items()
}
PACED = {b"joined": BURSTS[b"chat"], b"paced": render_writes(SPEECHES["chat"], 1)}


class Exchanges:
    """What the connections share."""

    def __init__(self, interval: float) -> None:
        self.interval = interval
        self.count = 0


class Connection(asyncio.Protocol):
    """Requests in, in order; the next one is read when the answer to the last has been written."""

    transport: asyncio.Transport

    def __init__(self, exchanges: Exchanges, loop: asyncio.AbstractEventLoop) -> None:
        self.exchanges = exchanges
        self.loop = loop
        self.received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is none by inheritance

    def data_received(self, data: bytes) -> None:
        self.received += data
        head, blank, rest = self.received.partition(b"\r\n\r\n")
        if not blank:
            return
        _, found, length = head.lower().partition(b"\r\ncontent-length:")
        missing = (int(length.split(b"\r\n", 1)[0]) if found else 0) - len(rest)
        if missing > 0:
            return
        self.received = b""
        self.answer(head.split(b" ", 2)[1].split(b"/", 2)[1])

    def answer(self, kind: bytes) -> None:
        if kind == b"requests":
            number = b"%d" % self.exchanges.count
            self.transport.write(
                b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(number), number)
            )
            return
        self.exchanges.count += 1
        if kind == b"whole":
            self.transport.write(REPLY)
        elif kind in BURSTS:
            self.write_at_once(iter(BURSTS[kind]))
        elif kind in PACED:
            interval = self.exchanges.interval
            phase = self.exchanges.count % PHASES / PHASES
            self.write_at(self.loop.time() + phase * interval, iter(PACED[kind]))
        else:
            self.transport.write(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")

    def write_at_once(self, writes: Iterator[bytes]) -> None:
        data = next(writes, None)
        if data is None or self.transport.is_closing():
            return
        self.transport.write(data)
        # The loop sends what one turn wrote as one segment: every write gets a turn of its own.
        self.loop.call_soon(self.write_at_once, writes)

    def write_at(self, when: float, writes: Iterator[bytes]) -> None:
        data = next(writes, None)
        if data is None or self.transport.is_closing():
            return
        self.transport.write(data)
        # Times are absolute, so that a late turn does not stretch the stream.
        following = when + self.exchanges.interval
        self.loop.call_at(following, self.write_at, following, writes)


async def serve(port: int, interval: float) -> None:
    loop = asyncio.get_running_loop()
    exchanges = Exchanges(interval)
    server = await loop.create_server(
        lambda: Connection(exchanges, loop), "127.0.0.1", port, backlog=1024
    )
    await server.serve_forever()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--interval", type=float, default=0.02, help="seconds between paced writes")
    arguments = parser.parse_args()
    uvloop.run(serve(arguments.port, arguments.interval))
