"""Alternating rounds: the servers take turns, so that a disturbance of the machine affects all."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass, fields, replace
from statistics import median
from time import perf_counter
from typing import Any

import psutil
import uvloop

from tests.bench import load
from tests.bench.client import Client, render_get
from tests.bench.context import Bench
from tests.bench.report import REFERENCE, Row
from tests.bench.samples import STREAMS
from tests.bench.scenarios import Scenario
from tests.bench.servers import Server, count_requests, cpu_seconds, model_of
from tests.bench.upstream import KINDS

REQUIRED = ("direct", REFERENCE, "relay", "gateway")
"""No figure is worth anything when one of these fails; a peer or another checkout may."""
FULL = 0.9
"""The share of a core from which on it counts as full."""
SAMPLE_SECONDS = 0.1
PROBE_SECONDS = 0.005


@dataclass(frozen=True, slots=True)
class Figures:
    """One round of one server, or the medians of several.

    Rates are per second, processor times in microseconds, latencies as their names say. `busy` and
    `load_busy` are the shares of one core that the server, and the upstream with the load
    generator, kept busy. `events_per_write` says how much the server merged: the events of a
    stream divided by the HTTP chunks that the client got. Stream figures are 0 for whole replies.
    `added_cpu_ms`: of a request beyond one with a tiny prompt. `memory_mb` and `stall_ms` are the
    highest values that were seen in the round. `failure` says which replies were wrong.
    """

    requests_per_second: float
    events_per_second: float
    events_per_cpu_second: float
    cpu_us_per_request: float
    cpu_us_per_event: float
    p50_us: float
    p99_us: float
    first_event_p99_ms: float
    busy: float
    load_busy: float
    events_per_write: float
    errors: float
    added_cpu_ms: float = 0.0
    memory_mb: float = 0.0
    stall_ms: float = 0.0
    failure: str = ""


def medians(rounds: list[Figures]) -> Figures:
    names = [field.name for field in fields(Figures) if field.name != "failure"]
    middle = {name: median(getattr(figures, name) for figures in rounds) for name in names}
    return Figures(**middle, failure=next(filter(None, (each.failure for each in rounds)), ""))


async def sample_memory(server: Server, found: list[float]) -> None:
    while True:
        found.append(server.rss_mb())
        await asyncio.sleep(SAMPLE_SECONDS)


async def probe_health(server: Server, found: list[float]) -> None:
    """How long /healthz takes, in ms, again and again."""
    loop = asyncio.get_running_loop()
    answered = asyncio.Event()
    probe = Client(lambda _, error: answered.set())
    probe.any_status = True  # the relay has no such path, but it answers
    await loop.create_connection(lambda: probe, "127.0.0.1", server.port)
    request = render_get(server.port, "/healthz")
    while True:
        began = perf_counter()
        answered.clear()
        loop.call_soon(probe.send, request)
        await answered.wait()
        found.append((perf_counter() - began) * 1e3)
        await asyncio.sleep(max(0.0, began + PROBE_SECONDS - perf_counter()))


WATCHES: dict[str, Callable[[Server, list[float]], Awaitable[None]]] = {
    "memory_mb": sample_memory,
    "stall_ms": probe_health,
}
"""What is watched during a round, by the figure that is wanted."""


async def put_load(
    scenario: Scenario, server: Server, upstream: Server
) -> tuple[load.Replies, dict[str, float]]:
    """The replies, and the highest value of each watch."""
    found: dict[str, list[float]] = {name: [] for name in WATCHES if scenario.measures(name)}
    watching = [asyncio.ensure_future(WATCHES[name](server, found[name])) for name in found]
    replies = await load.run(render_load(scenario, server, upstream))
    for watch in watching:
        watch.cancel()
    return replies, {name: max(values) for name, values in found.items()}


def render_load(scenario: Scenario, server: Server, upstream: Server) -> load.Load:
    client = scenario.upstream if server.transparent else scenario.client
    kind = KINDS[scenario.kind]
    return load.Load(
        port=server.port,
        path=server.path(client, scenario.endpoint),
        key=server.key,
        client=client,
        model=model_of(scenario.endpoint),
        stream=STREAMS[client] if scenario.is_stream else None,
        connections=scenario.connections,
        requests=scenario.requests,
        seconds=scenario.seconds,
        stagger=scenario.stagger,
        interval=scenario.interval,
        credit_port=upstream.port if kind is not None and kind.windowed else None,
        store=scenario.store,
        prompt=scenario.prompt,
    )


def load_cpu(upstream: Server) -> float:
    return upstream.cpu_seconds() + cpu_seconds(psutil.Process())


def measure(scenario: Scenario, server: Server, upstream: Server) -> Figures:
    """One round. It failed where a reply was wrong, or where the server asked the upstream more or
    less often than it was asked."""
    asked_before = count_requests(upstream)
    cpu_before, load_before = server.cpu_seconds(), load_cpu(upstream)
    replies, watched = uvloop.run(put_load(scenario, server, upstream))
    cpu = server.cpu_seconds() - cpu_before
    load_spent = load_cpu(upstream) - load_before
    asked = count_requests(upstream) - asked_before
    failure = ""
    if replies.errors or asked != replies.requests or not replies.requests:
        failure = (
            f"{scenario.name} through {server.name}: {replies.requests} good replies, "
            f"{replies.errors} errors, {asked} requests upstream. {replies.first_error}"
        )
    cpu_us_per_request = cpu / max(replies.requests, 1) * 1e6
    if scenario.measures("added_cpu_ms"):
        tiny = measure(replace(scenario, prompt=0, metrics=()), server, upstream)
        watched["added_cpu_ms"] = (cpu_us_per_request - tiny.cpu_us_per_request) / 1e3
        failure = failure or tiny.failure
    return Figures(
        requests_per_second=replies.requests / replies.seconds,
        events_per_second=replies.events / replies.seconds,
        events_per_cpu_second=replies.events / cpu,
        cpu_us_per_request=cpu_us_per_request,
        cpu_us_per_event=cpu / replies.events * 1e6 if replies.events else 0.0,
        p50_us=load.percentile(replies.latencies, 0.50) * 1e6,
        p99_us=load.percentile(replies.latencies, 0.99) * 1e6,
        first_event_p99_ms=load.percentile(replies.first_events, 0.99) * 1e3,
        busy=cpu / replies.seconds,
        load_busy=load_spent / replies.seconds,
        events_per_write=replies.events / replies.chunks if replies.chunks else 0.0,
        errors=replies.errors if not scenario.asks_once else scenario.requests - replies.requests,
        failure=failure,
        **watched,
    )


def compare(scenario: Scenario, bench: Bench) -> list[Row]:
    """The rows of a scenario. SystemExit when a required server fails."""
    rounds = 1 if scenario.measures("memory_mb") else bench.options.rounds
    measured: dict[str, list[Figures]] = {}
    warnings: list[str] = []
    if scenario.size is not None:
        bench.progress(f"{scenario.name}: preparing")
    with bench.servers_of(scenario.size, scenario.small) as servers:
        tested = [bench.upstream, *servers] if scenario.direct else list(servers)
        tested = [each for each in tested if each.supports(scenario.client, scenario.upstream)]
        for number in range(0 if scenario.asks_once else -1, rounds):
            bench.progress(f"{scenario.name}: round {number + 1} of {rounds}")
            for server in list(tested):
                load = scenario.warm_up() if number < 0 else scenario
                figures = measure(load, server, bench.upstream)
                if figures.failure and scenario.measures("errors"):
                    warnings.append(figures.failure[:300])
                elif figures.failure:
                    if server.name in REQUIRED:
                        raise SystemExit(figures.failure)
                    warnings.append(f"not measured: {figures.failure}"[:300])
                    tested.remove(server)
                    measured.pop(server.name, None)
                    continue
                if number >= 0:
                    measured.setdefault(server.name, []).append(figures)
    results = {
        REFERENCE if name == "direct" else name: medians(each) for name, each in measured.items()
    }
    return rows_of(scenario, results, warnings)


def limited(scenario: Scenario, results: dict[str, Figures]) -> dict[str, str]:
    """By server, what other than its core limited its rate. Processor times stand in any case."""
    if not scenario.is_rate:
        return {}
    found = {}
    for name, figures in results.items():
        if figures.load_busy > FULL:
            found[name] = f"the core of the load was {figures.load_busy:.0%} busy with {name}"
        elif figures.busy < FULL:
            found[name] = f"{name} kept its core only {figures.busy:.0%} busy"
    return found


def rows_of(scenario: Scenario, results: dict[str, Figures], warnings: list[str]) -> list[Row]:
    limits = limited(scenario, results)

    def values(figure: str) -> dict[str, Any]:
        return {name: getattr(each, figure) for name, each in results.items()}

    return [
        Row(
            name=f"{scenario.name}:{metric.suffix}" if metric.suffix else scenario.name,
            title=f"{scenario.title} {metric.suffix}".strip(),
            unit=metric.unit,
            values=values(metric.figure),
            targets=metric.targets,
            cpu=values(metric.cpu) if metric.cpu else {},
            details={name: asdict(figures) for name, figures in results.items()},
            warnings=(*warnings, *limits.values()),
            limited=frozenset(limits),
        )
        for metric in scenario.metrics
    ]
