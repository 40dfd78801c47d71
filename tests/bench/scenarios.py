"""The scenarios: what is asked of which servers, how fast, and what is expected of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tests.bench.context import Options
from tests.bench.gateway_server import Size
from tests.bench.report import REFERENCE, Target
from tests.bench.samples import FORMATS
from tests.bench.scaling import growths
from tests.bench.upstream import DELAY, EVENTS_PER_WRITE, KINDS, PACED_SECONDS

UNBOUNDED = 10_000_000
PAIRS = [(wire, wire) for wire in FORMATS]
PAIRS += [(client, upstream) for client in FORMATS for upstream in FORMATS if client != upstream]
LANES = (("chat", "chat"), ("chat", "messages"))
"""One pair of each lane."""
STORED = (("responses", "responses"), ("responses", "chat"))


@dataclass(frozen=True, slots=True)
class Metric:
    """A row of a scenario: a field of `Figures` with its targets. `cpu` is the processor time that
    belongs to it."""

    figure: str
    unit: str
    targets: tuple[Target, ...] = ()
    cpu: str = ""
    suffix: str = ""

    @property
    def is_rate(self) -> bool:
        return self.figure.endswith("_per_second")


@dataclass(frozen=True, slots=True)
class Scenario:
    """One kind of reply for clients of one format from an upstream of another.

    A round ends after `requests` or `seconds`, whichever comes first. Connections begin within
    `stagger` seconds, and each sends a request every `interval` seconds, 0 as soon as it can.
    `direct`: the upstream is measured too, as the reference. `store`: replies are to be stored.
    `prompt`: bytes of the prompt, 0 for a tiny one. `size`: gateways of this size are started for
    the scenario, next to one of the size `small`, the reference, or next to the relay.
    """

    name: str
    title: str
    kind: str
    client: str
    upstream: str
    metrics: tuple[Metric, ...]
    connections: int
    seconds: float
    requests: int = UNBOUNDED
    stagger: float = 0.0
    interval: float = 0.0
    direct: bool = False
    store: bool = False
    prompt: int = 0
    size: Size | None = None
    small: Size | None = None

    @property
    def endpoint(self) -> str:
        return f"{self.kind}-{self.upstream}"

    @property
    def is_stream(self) -> bool:
        return KINDS[self.kind] is not None

    @property
    def is_rate(self) -> bool:
        """It goes as fast as the server can."""
        return any(metric.is_rate for metric in self.metrics)

    @property
    def asks_once(self) -> bool:
        """Each connection sends one request: there is nothing to warm up."""
        return self.requests <= self.connections

    def measures(self, figure: str) -> bool:
        return any(metric.figure == figure for metric in self.metrics)

    def warm_up(self) -> Scenario:
        return replace(self, seconds=min(self.seconds, 0.3))


def rate(figure: str, unit: str, cpu: str, relay: float, rolter: float | None) -> tuple[Metric]:
    targets = [Target(relay, "relay", at_least=True)]
    if rolter is not None:
        targets.append(Target(rolter, "rolter", at_least=True))
    return (Metric(figure, unit, tuple(targets), cpu),)


def whole_rate(is_native: bool) -> tuple[Metric, ...]:
    limits = (0.60, 0.50) if is_native else (0.50, 0.45)
    return rate("requests_per_second", "requests/s", "cpu_us_per_request", *limits)


def stored_rate(_: bool) -> tuple[Metric, ...]:
    return (Metric("requests_per_second", "requests/s", cpu="cpu_us_per_request"),)


def stream_rate(is_native: bool) -> tuple[Metric, ...]:
    least = 0.65 if is_native else 0.50
    return rate("events_per_second", "events/s", "cpu_us_per_event", least, 1.5)


def single_rate(_: bool) -> tuple[Metric, ...]:
    return rate("events_per_cpu_second", "events/CPU s", "cpu_us_per_event", 0.60, None)


def paced_cpu(is_native: bool) -> tuple[Metric, ...]:
    targets = (Target(1.3, "relay"),) if is_native else ()
    return (Metric("cpu_us_per_event", "CPU µs/event", targets, "cpu_us_per_event"),)


def latencies(is_native: bool) -> tuple[Metric, ...]:
    limits = {"p50": 250, "p99": 600} if is_native else {"p50": 350, "p99": 800}
    return tuple(
        Metric(f"{share}_us", "µs", (Target(limit, REFERENCE, "difference"),), suffix=share)
        for share, limit in limits.items()
    )


def first_event(_: bool) -> tuple[Metric, ...]:
    targets = (Target(5.0, "relay", "difference"),)
    return (Metric("first_event_p99_ms", "ms", targets, suffix="p99"),)


def value(figure: str, unit: str, limit: float, suffix: str = "") -> Metric:
    return Metric(figure, unit, (Target(limit, compare="value"),), suffix=suffix)


def by_pair(
    pairs: Sequence[tuple[str, str]],
    name: str,
    title: str,
    kind: str,
    metrics: Callable[[bool], tuple[Metric, ...]],
    **fields: Any,
) -> list[Scenario]:
    """The same for several pairs of formats; the title has a place for each."""
    return [
        Scenario(
            f"{name}:{client}-{upstream}",
            title.format(f"{client} ← {upstream}"),
            kind,
            client,
            upstream,
            metrics(client == upstream),
            **fields,
        )
        for client, upstream in pairs
    ]


def memory(name: str, title: str, kind: str, limit: float, count: int, **fields: Any) -> Scenario:
    """Of fresh servers, each connection of which sends one request."""
    title = f"{count:,} {title}:"
    metrics = (value("memory_mb", "MB", limit, "memory"), value("errors", "count", 0, "errors"))
    fields |= {"connections": count, "requests": count, "seconds": 30.0, "size": Size()}
    return Scenario(f"memory:{name}", title, kind, "chat", "chat", metrics, **fields)


def prompts(lane: str, pair: tuple[str, str], limit: float, quick: bool) -> Iterator[Scenario]:
    """Large prompts of agents: what 1 MB costs beyond a tiny one, and how long others wait for the
    server's event loop while prompts of 300 KB (about 75,000 tokens) begin 100 times a second. A
    stall of the machine counts too: compare with the relay."""
    arrow = " → ".join(pair)
    cpu = (value("added_cpu_ms", "ms", limit),)
    title, requests = f"1 MB prompt {arrow}: added CPU", 10 if quick else 25
    one_by_one = {"connections": 1, "requests": requests, "seconds": 30.0, "prompt": 1_000_000}
    yield Scenario(f"prompt-cpu:{lane}", title, "whole", *pair, cpu, **one_by_one)
    stall = (value("stall_ms", "ms", 20.0),)
    title, seconds = f"300 KB prompts {arrow}, 100/s: longest stall", 1.0 if quick else 3.0
    steady = {"connections": 100, "stagger": 1.0, "interval": 1.0, "prompt": 300_000}
    yield Scenario(f"prompt-stall:{lane}", title, "whole", *pair, stall, seconds=seconds, **steady)


def growing(seconds: float, rows: int) -> Iterator[Scenario]:
    """Whether a request costs the same with many keys, many channels and a long request log."""
    metrics = (Metric("cpu_us_per_request", "µs", (Target(1.05, REFERENCE),)),)
    for name, title, small, large in growths(rows):
        title += ": CPU per request"
        load: dict[str, Any] = {"connections": 32, "seconds": seconds, "size": large}
        pair = ("chat", "chat")
        yield Scenario(f"scale:{name}", title, "whole", *pair, metrics, small=small, **load)


def scenarios(options: Options) -> list[Scenario]:
    """All of them, in the order of the report."""
    quick, seconds = options.quick, options.seconds
    streams, opened, idle = (50, 400, 2000) if quick else (200, 2000, 10_000)
    many: dict[str, Any] = {"connections": 32, "seconds": seconds}
    some: dict[str, Any] = {"connections": 16, "seconds": seconds}
    paced: dict[str, Any] = {"connections": streams, "requests": streams, "seconds": 10.0}
    one: dict[str, Any] = {"connections": 1, "seconds": seconds, "direct": True}
    staggered = one | {"connections": 50, "stagger": 0.5}
    bursts = f"stream {{}}, {EVENTS_PER_WRITE} per write"
    pace = f"paced {{}}, {streams} × {1 / PACED_SECONDS:g}/s"
    delayed = f"latency {{}} that answers {DELAY * 1e3:g} ms"
    at_once = "latency {} that answers at once"
    first = "time to first event {}, 50 streams"
    return [
        *by_pair(PAIRS, "whole", "whole {}", "whole", whole_rate, **many),
        *by_pair(STORED, "stored", "stored {}", "whole", stored_rate, **many, store=True),
        *by_pair(PAIRS, "stream", bursts, "burst", stream_rate, **some),
        *by_pair(LANES, "single", "stream {}, 1 per write", "single", single_rate, **some),
        *by_pair(LANES, "paced", pace, "paced", paced_cpu, **paced),
        *by_pair(LANES, "latency", delayed, "delayed", latencies, **one),
        # At once no upstream answers, but a peer may have been measured so.
        *by_pair(LANES, "latency-at-once", at_once, "whole", latencies, **one),
        *by_pair(LANES, "first-event", first, "timed", first_event, **staggered),
        # Streams take 13 s: all are open together after 4. Idle clients stay for at least 1.5 s.
        memory("streams", "open streams", "slow", 150.0, opened, stagger=4.0),
        memory("idle", "idle clients", "whole", 250.0, idle, stagger=5.0, interval=6.5),
        *prompts("native", LANES[0], 2.0, quick),
        *prompts("translated", LANES[1], 8.0, quick),
        *growing(seconds, options.rows),
    ]
