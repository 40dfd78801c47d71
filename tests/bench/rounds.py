"""Alternating rounds: the servers take turns, so that a disturbance of the machine affects all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict

import psutil
import uvloop

from tests.bench import load
from tests.bench.figures import FULL, Figures, medians
from tests.bench.report import REFERENCE, Row
from tests.bench.samples import STREAMS
from tests.bench.scenarios import Scenario
from tests.bench.servers import Server, count_requests, cpu_seconds, model_of
from tests.bench.upstream import KINDS

REQUIRED = ("direct", "relay", "gateway")
"""No figure is worth anything when one of these fails; a peer or another checkout may."""


class RequestsFailed(Exception):
    """A server answered wrongly, or asked the upstream more or less often than it was asked."""


def load_cpu(upstream: Server) -> float:
    return upstream.cpu_seconds() + cpu_seconds(psutil.Process())


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
        credit_port=upstream.port if kind is not None and kind.windowed else None,
        store=scenario.store,
    )


def measure(scenario: Scenario, server: Server, upstream: Server) -> Figures:
    """One round. Raises RequestsFailed."""
    asked_before = count_requests(upstream)
    cpu_before, load_before = server.cpu_seconds(), load_cpu(upstream)
    replies = uvloop.run(load.run(render_load(scenario, server, upstream)))
    cpu = server.cpu_seconds() - cpu_before
    load_spent = load_cpu(upstream) - load_before
    request = count_requests(upstream) - asked_before
    if replies.errors or request != replies.requests or not replies.requests:
        raise RequestsFailed(
            f"{scenario.name} through {server.name}: {replies.requests} good replies, "
            f"{replies.errors} errors, {request} requests upstream. {replies.first_error}"
        )
    return Figures(
        requests_per_second=replies.requests / replies.seconds,
        events_per_second=replies.events / replies.seconds,
        events_per_cpu_second=replies.events / cpu,
        cpu_us_per_request=cpu / replies.requests * 1e6,
        cpu_us_per_event=cpu / replies.events * 1e6 if replies.events else 0.0,
        p50_us=load.percentile(replies.latencies, 0.50) * 1e6,
        p99_us=load.percentile(replies.latencies, 0.99) * 1e6,
        first_event_p99_ms=load.percentile(replies.first_events, 0.99) * 1e3,
        busy=cpu / replies.seconds,
        load_busy=load_spent / replies.seconds,
        events_per_write=replies.events / replies.chunks if replies.chunks else 0.0,
    )


def compare(
    scenario: Scenario,
    servers: Sequence[Server],
    upstream: Server,
    rounds: int,
    progress: Callable[[str], None],
) -> list[Row]:
    """The rows of a scenario. SystemExit when relay or gateway fails."""
    tested = [upstream, *servers] if scenario.direct else list(servers)
    tested = [each for each in tested if each.supports(scenario.client, scenario.upstream)]
    measured: dict[str, list[Figures]] = {}
    warnings: list[str] = []
    for number in range(-1, rounds):
        progress(f"{scenario.name}: round {number + 1} of {rounds}")
        for server in list(tested):
            try:
                if number >= 0:
                    figures = measure(scenario, server, upstream)
                    measured.setdefault(server.name, []).append(figures)
                elif scenario.requests > scenario.connections:
                    measure(scenario.warm_up(), server, upstream)
            except RequestsFailed as failure:
                if server.name in REQUIRED:
                    raise SystemExit(f"{failure}") from None
                warnings.append(f"not measured: {failure}"[:300])
                tested.remove(server)
                measured.pop(server.name, None)
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
    return [
        Row(
            name=f"{scenario.name}:{metric.suffix}" if metric.suffix else scenario.name,
            title=f"{scenario.title} {metric.suffix}".strip(),
            unit=metric.unit,
            values={name: getattr(figures, metric.figure) for name, figures in results.items()},
            targets=metric.targets,
            cpu={name: getattr(figures, metric.cpu) for name, figures in results.items()}
            if metric.cpu
            else {},
            details={name: asdict(figures) for name, figures in results.items()},
            warnings=(*warnings, *limits.values()),
            limited=frozenset(limits),
        )
        for metric in scenario.metrics
    ]
