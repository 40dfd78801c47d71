"""Closed-loop load: a number of connections, each of which sends its next request after the reply.

It is bounded three times: by a number of requests, by seconds, and by `GRACE` seconds more, after
which every reply that is still missing counts as an error.

Windowed streams (see `tests.bench.upstream`): the load names each stream in its request and sends
the upstream a credit for every word that arrives, so that one event is under way in each stream.
A server that held a word back until it has the next one would never see it: that ends in an error.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from time import perf_counter

from tests.bench.client import Client, render_request
from tests.bench.samples import EVENTS, SampleStream, request_body

GRACE = 20.0


@dataclass(frozen=True, slots=True)
class Load:
    """What to send, over how many connections, and when to stop.

    `stream` is the reply that must arrive, None for a whole one. `requests` bounds their number,
    `seconds` the time in which new ones begin; the connections begin within `stagger` seconds, and
    each sends a request every `interval` seconds, or as soon as it has a reply. `prompt`: about so
    many bytes, 0 for a tiny one. `credit_port` is the upstream's, for windowed streams.
    """

    port: int
    path: str
    key: str
    client: str
    model: str
    stream: SampleStream | None
    connections: int
    requests: int
    seconds: float
    stagger: float = 0.0
    interval: float = 0.0
    credit_port: int | None = None
    store: bool = False
    prompt: int = 0


@dataclass(frozen=True, slots=True)
class Replies:
    """What arrived. Times are seconds; `latencies` and `first_events` are sorted and have the good
    replies only. `chunks` counts HTTP chunks: the writes that the server under test made."""

    requests: int
    events: int
    chunks: int
    seconds: float
    latencies: list[float]
    first_events: list[float]
    errors: int
    first_error: str


def percentile(times: list[float], share: float) -> float:
    """The value that `share` (0 to 1) of the sorted times do not exceed; 0.0 without any."""
    return times[min(int(len(times) * share), len(times) - 1)] if times else 0.0


class ClosedLoop:
    """The run of one load."""

    def __init__(self, load: Load) -> None:
        self.load = load
        self.left = load.requests
        self.began = self.ended = perf_counter()
        self.deadline = self.began + load.seconds
        self.latencies: list[float] = []
        self.first_events: list[float] = []
        self.chunks = 0
        self.errors = 0
        self.first_error = ""
        self.running = load.connections
        self.done = asyncio.Event()
        self.requests: dict[Client, bytes] = {}
        self.ids: dict[Client, bytes] = {}
        self.credits: asyncio.WriteTransport | None = None

    async def run(self) -> Replies:
        load = self.load
        loop = self.loop = asyncio.get_running_loop()
        if load.credit_port is not None:
            self.credits, _ = await loop.create_connection(
                asyncio.Protocol, "127.0.0.1", load.credit_port
            )
            self.credits.write(b"POST /credits HTTP/1.1\r\n\r\n")
        on_word = self._grant if self.credits else None
        for number in range(load.connections):
            question = f"Question of stream-id-{number}. Why?"
            body = request_body(
                load.client,
                load.model,
                stream=load.stream is not None,
                question=question,
                store=load.store,
                prompt=load.prompt,
            )
            _, client = await loop.create_connection(
                lambda: Client(self._take_reply, load.stream, on_word), "127.0.0.1", load.port
            )
            self.requests[client] = render_request(load.port, load.path, load.key, body)
            self.ids[client] = b"%d\n" % number
        self.began = self.ended = perf_counter()
        self.deadline = self.began + load.seconds
        for number, client in enumerate(self.requests):
            loop.call_later(load.stagger * number / load.connections, self._send_next, client)
        try:
            async with asyncio.timeout(load.seconds + load.stagger + GRACE):
                await self.done.wait()
        except TimeoutError:
            for client in self.requests:
                client.fail("no end in time")
        if self.credits:
            self.credits.close()
        return self._replies()

    def _send_next(self, client: Client) -> None:
        if self.left > 0 and perf_counter() < self.deadline:
            self.left -= 1
            client.send(self.requests[client])
            return
        if client.transport.is_closing():
            self._note_error("an idle connection was closed")
        client.close()
        self._end_one()

    def _grant(self, client: Client) -> None:
        assert self.credits is not None
        self.credits.write(self.ids[client])

    def _take_reply(self, client: Client, error: str) -> None:
        self.ended = client.ended
        if error:
            self._note_error(error)
            self._end_one()
            return
        self.latencies.append(client.ended - client.began)
        self.first_events.append(client.first_data - client.began)
        self.chunks += client.chunks
        if self.load.interval:
            wait = client.began + self.load.interval - client.ended
            self.loop.call_later(max(wait, 0.0), self._send_next, client)
        else:
            self._send_next(client)

    def _note_error(self, error: str) -> None:
        self.errors += 1
        self.first_error = self.first_error or error

    def _end_one(self) -> None:
        self.running -= 1
        if self.running == 0:
            self.done.set()

    def _replies(self) -> Replies:
        done = len(self.latencies)
        return Replies(
            requests=done,
            events=done * EVENTS if self.load.stream else 0,
            chunks=self.chunks,
            seconds=self.ended - self.began,
            latencies=sorted(self.latencies),
            first_events=sorted(self.first_events),
            errors=self.errors,
            first_error=self.first_error,
        )


async def run(load: Load) -> Replies:
    """Send `load` and return when every connection is closed."""
    return await ClosedLoop(load).run()
