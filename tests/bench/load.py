"""The load: many keep-alive connections that ask, count what arrives, and ask again.

It must not know who answers. It is bounded three times: by a number of requests, by a number of
seconds, and by a last resort (`GRACE`), after which whatever is still open counts as an error.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from time import perf_counter
from typing import cast

from tests.bench.speech import EVENTS, Speech

GRACE = 20.0
END_OF_CHUNKS = b"\r\n0\r\n\r\n"
# What a client did not ask for and may not get: usage, and what stands before and after the text.
LEAST_FRAMES = EVENTS + 1


@dataclass(frozen=True, slots=True)
class Load:
    """What to ask, over how many connections, and when to stop asking.

    `speech` is the stream that must come back, None for a whole reply. `requests` bounds the number
    of requests, `seconds` the time in which new ones begin.
    """

    port: int
    path: str
    key: str
    body: bytes
    speech: Speech | None
    connections: int
    requests: int
    seconds: float

    def render(self) -> bytes:
        head = (
            f"POST {self.path} HTTP/1.1\r\nhost: 127.0.0.1:{self.port}\r\n"
            f"authorization: Bearer {self.key}\r\ncontent-type: application/json\r\n"
            f"anthropic-version: 2023-06-01\r\naccept: */*\r\nuser-agent: bench\r\n"
            f"content-length: {len(self.body)}\r\n\r\n"
        )
        return head.encode() + self.body


@dataclass(frozen=True, slots=True)
class Arrivals:
    """What came back. Times are seconds; `latencies` is sorted and has the good replies only.

    `writes` counts HTTP chunks: the writes that the device under test made for all its streams.
    """

    requests: int
    events: int
    writes: int
    seconds: float
    latencies: list[float]
    errors: int
    first_error: str

    def percentile(self, share: float) -> float:
        """Seconds within which `share` (0 to 1) of the replies were complete; 0.0 without any."""
        if not self.latencies:
            return 0.0
        return self.latencies[min(int(len(self.latencies) * share), len(self.latencies) - 1)]


class Tally:
    """What the connections share: the permission to ask, and the counts."""

    def __init__(self, load: Load) -> None:
        self.request = load.render()
        self.speech = load.speech
        self.left = load.requests
        self.open = load.connections
        self.begun = perf_counter()
        self.deadline = self.begun + load.seconds
        self.ended = self.begun
        self.latencies: list[float] = []
        self.writes = 0
        self.errors = 0
        self.first_error = ""
        self.all_closed = asyncio.Event()

    def may_ask(self, now: float) -> bool:
        if self.left <= 0 or now >= self.deadline:
            return False
        self.left -= 1
        return True

    def count_reply(self, began: float, writes: int) -> None:
        self.ended = perf_counter()
        self.latencies.append(self.ended - began)
        self.writes += writes

    def count_error(self, what: str) -> None:
        self.ended = perf_counter()
        self.errors += 1
        self.first_error = self.first_error or what

    def count_closed(self) -> None:
        self.open -= 1
        if self.open == 0:
            self.all_closed.set()

    def arrivals(self) -> Arrivals:
        done = len(self.latencies)
        return Arrivals(
            requests=done,
            events=done * EVENTS if self.speech else 0,
            writes=self.writes,
            seconds=self.ended - self.begun,
            latencies=sorted(self.latencies),
            errors=self.errors,
            first_error=self.first_error,
        )


class Connection(asyncio.Protocol):
    """One request after the other. A connection that breaks, or answers wrongly, stays closed."""

    transport: asyncio.Transport

    def __init__(self, tally: Tally) -> None:
        self.tally = tally
        self.asking = False
        self.forget()

    def forget(self) -> None:
        self.head = b""
        self.in_body = False
        self.length: int | None = None
        self.received = 0
        self.line_feeds = 0
        self.returns = 0
        self.tail = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is none by inheritance
        self.ask()

    def ask(self) -> None:
        self.began = perf_counter()
        self.asking = self.tally.may_ask(self.began)
        if self.asking:
            self.forget()
            self.transport.write(self.tally.request)
        else:
            self.transport.close()

    def data_received(self, data: bytes) -> None:
        if not self.in_body:
            self.head += data
            head, self.in_body, data = self.split_head()
            if not self.in_body:
                return
            if not head.startswith(b"HTTP/1.1 200"):
                self.fail((head + b"\n\n" + data[:500]).decode(errors="replace"))
                return
        self.received += len(data)
        if self.length is not None:
            if self.received >= self.length:
                self.finish(complete=self.tally.speech is None)
            return
        # Counting single bytes needs no memory of where the last read was cut: SSE lines end in a
        # line feed here, so every carriage return belongs to an HTTP chunk.
        self.line_feeds += data.count(b"\n")
        self.returns += data.count(b"\r")
        speech = self.tally.speech
        self.tail = (self.tail + data)[-(speech.tail if speech else 0) - len(END_OF_CHUNKS) :]
        if self.tail.endswith(END_OF_CHUNKS):
            self.finish(complete=speech is None or self.is_whole(speech))

    def split_head(self) -> tuple[bytes, bool, bytes]:
        head, blank, rest = self.head.partition(b"\r\n\r\n")
        _, found, length = head.lower().partition(b"\r\ncontent-length:")
        if found:
            self.length = int(length.split(b"\r\n", 1)[0])
        return head, bool(blank), rest

    def is_whole(self, speech: Speech) -> bool:
        frames = (self.line_feeds - self.returns) // speech.lines
        return frames >= LEAST_FRAMES and speech.end in self.tail

    def finish(self, *, complete: bool) -> None:
        if not complete:
            self.fail(f"incomplete stream, which ends in {self.tail!r}")
            return
        self.tally.count_reply(self.began, self.returns // 2 - 1 if self.tally.speech else 0)
        self.ask()

    def fail(self, what: str) -> None:
        self.asking = False
        self.tally.count_error(what)
        self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        if self.asking:
            self.tally.count_error(f"connection lost in mid-reply: {exc!r}")
        self.tally.count_closed()


async def run(load: Load) -> Arrivals:
    """Put `load` on the port and return when every connection is closed."""
    tally = Tally(load)
    loop = asyncio.get_running_loop()
    connections: list[Connection] = []

    def connect() -> Connection:
        connections.append(Connection(tally))
        return connections[-1]

    for _ in range(load.connections):
        await loop.create_connection(connect, "127.0.0.1", load.port)
    try:
        async with asyncio.timeout(load.seconds + GRACE):
            await tally.all_closed.wait()
    except TimeoutError:
        for connection in connections:
            if connection.asking:
                connection.fail("no end in time")
    return tally.arrivals()
