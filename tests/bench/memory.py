"""Resident memory of a fresh server with many open streams, and with many idle clients.

The highest value is taken that was seen every `SAMPLE_SECONDS`. One round: memory does not vary as
times do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace

import uvloop

from tests.bench import load
from tests.bench.client import Client, render_request
from tests.bench.context import Bench
from tests.bench.report import Row, Target
from tests.bench.rounds import render_load
from tests.bench.samples import request_body
from tests.bench.scenarios import Scenario
from tests.bench.servers import Server, model_of

SAMPLE_SECONDS = 0.1
STAGGER_SECONDS = 4.0
IDLE_SECONDS = 1.0
CONNECTING = 64
TIMEOUT = 60.0
Found = tuple[float, int, str]
"""Memory in MB, the number of errors, the first of them."""


async def highest_rss(server: Server, work: Awaitable[object]) -> float:
    """The highest memory in MB until `work` is done, sampled."""
    task = asyncio.ensure_future(work)
    highest = server.rss_mb()
    while not task.done():
        await asyncio.wait([task], timeout=SAMPLE_SECONDS)
        highest = max(highest, server.rss_mb())
    await task
    return highest


def open_streams(streams: int, server: Server, upstream: Server) -> Found:
    """Streams of about 13 seconds each, all open together after `STAGGER_SECONDS`."""
    scenario = Scenario(
        name="memory:streams",
        title="",
        kind="slow",
        client="chat",
        upstream="chat",
        metrics=(),
        connections=streams,
        seconds=30.0,
        requests=streams,
        stagger=STAGGER_SECONDS,
    )
    replies: list[load.Replies] = []

    async def run() -> float:
        async def stream() -> None:
            replies.append(await load.run(render_load(scenario, server, upstream)))

        return await highest_rss(server, stream())

    highest = uvloop.run(run())
    missing = streams - replies[0].requests
    return highest, max(missing, replies[0].errors), replies[0].first_error


class IdleClients:
    """Connections that send one request each and then stay open."""

    def __init__(self, server: Server, count: int) -> None:
        self.server = server
        self.count = count
        model = model_of("whole-chat")
        body = request_body("chat", model, stream=False)
        path = server.path("chat", "whole-chat")
        self.request = render_request(server.port, path, server.key, body)
        self.clients: list[Client] = []
        self.errors: list[str] = []

    async def run(self) -> float:
        numbers = iter(range(self.count))
        async with asyncio.timeout(TIMEOUT):
            await asyncio.gather(*(self._connect(numbers) for _ in range(CONNECTING)))
        highest = await highest_rss(self.server, asyncio.sleep(IDLE_SECONDS))
        lost = sum(client.transport.is_closing() for client in self.clients)
        self.errors += ["an idle connection was closed"] * (lost - len(self.errors))
        for client in self.clients:
            client.close()
        return highest

    async def _connect(self, numbers: Iterator[int]) -> None:
        loop = asyncio.get_running_loop()
        for _ in numbers:
            done: asyncio.Future[str] = loop.create_future()
            _, client = await loop.create_connection(
                lambda done=done: Client(lambda _, error: done.set_result(error)),
                "127.0.0.1",
                self.server.port,
            )
            self.clients.append(client)
            client.send(self.request)
            if error := await done:
                self.errors.append(error)


def idle_clients(count: int, server: Server, upstream: Server) -> Found:
    clients = IdleClients(server, count)
    highest = uvloop.run(clients.run())
    return highest, len(clients.errors), (clients.errors or [""])[0]


def rows(
    name: str, title: str, limit: float, bench: Bench, measure: Callable[[Server], Found]
) -> list[Row]:
    """The memory and the errors of every checkout and of the relay, each started for this."""
    memory: dict[str, float] = {}
    errors: dict[str, float] = {}
    warnings = []
    fresh: list[AbstractContextManager[Server]] = [bench.fresh_relay()]
    fresh += [bench.fresh_gateway(checkout) for checkout in bench.options.checkouts]
    for starting in fresh:
        with starting as server:
            bench.progress(f"{name}: {server.name}")
            memory[server.name], errors[server.name], first = measure(server)
            if first:
                warnings.append(f"{server.name}: {first}"[:300])
    memory_row = Row(
        name=f"{name}:rss",
        title=f"{title}: memory",
        unit="MB",
        values=memory,
        targets=(Target(limit, compare="value"),),
    )
    return [
        memory_row,
        replace(
            memory_row,
            name=f"{name}:errors",
            title=f"{title}: errors",
            unit="count",
            values=errors,
            targets=(Target(0, compare="value"),),
            warnings=tuple(warnings),
        ),
    ]


def measure_streams(bench: Bench) -> list[Row]:
    count = 400 if bench.options.quick else 2000
    return rows(
        "memory:streams",
        f"{count:,} open streams",
        150.0,
        bench,
        lambda server: open_streams(count, server, bench.upstream),
    )


def measure_idle(bench: Bench) -> list[Row]:
    count = 2000 if bench.options.quick else 10_000
    return rows(
        "memory:idle",
        f"{count:,} idle clients",
        250.0,
        bench,
        lambda server: idle_clients(count, server, bench.upstream),
    )
