"""The scenarios: what is asked of which servers, how fast, and what is expected of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tests.bench.context import Options
from tests.bench.gateway_server import Size
from tests.bench.report import REFERENCE, Target
from tests.bench.samples import FORMATS
from tests.bench.scaling import growths
from tests.bench.upstream import DELAY, EVENTS_PER_WRITE, KINDS

UNBOUNDED = 10_000_000
NATIVE = [(wire, wire) for wire in FORMATS]
PAIRS = NATIVE + [
    (client, upstream) for client in FORMATS for upstream in FORMATS if client != upstream
]
TWO_PAIRS = (("chat", "chat"), ("chat", "messages"))
"""One of each lane."""


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


def rate(figure: str, unit: str, cpu: str, relay: float, peer: float | None) -> Metric:
    targets = [Target(relay, "relay", at_least=True)]
    if peer is not None:
        targets.append(Target(peer, "rolter", at_least=True))
    return Metric(figure, unit, tuple(targets), cpu)


def value(figure: str, unit: str, limit: float, suffix: str = "") -> Metric:
    return Metric(figure, unit, (Target(limit, compare="value"),), suffix=suffix)


def full_speed(seconds: float) -> Iterator[Scenario]:
    """Whole replies, stored ones, and streams of several events per write and of one."""
    requests = ("requests_per_second", "requests/s", "cpu_us_per_request")
    for client, upstream in PAIRS:
        limits = (0.60, 0.50) if client == upstream else (0.50, 0.45)
        name, title = f"whole:{client}-{upstream}", f"whole {client} ← {upstream}"
        metric = rate(*requests, *limits)
        yield Scenario(name, title, "whole", client, upstream, (metric,), 32, seconds)
    for upstream in ("responses", "chat"):
        name, title = f"stored:responses-{upstream}", f"stored responses ← {upstream}"
        figure, unit, cpu = requests
        metric = Metric(figure, unit, cpu=cpu)
        yield Scenario(
            name, title, "whole", "responses", upstream, (metric,), 32, seconds, store=True
        )
    for client, upstream in PAIRS:
        least = 0.65 if client == upstream else 0.50
        metric = rate("events_per_second", "events/s", "cpu_us_per_event", least, 1.5)
        name = f"stream:{client}-{upstream}"
        title = f"stream {client} ← {upstream}, {EVENTS_PER_WRITE} per write"
        yield Scenario(name, title, "burst", client, upstream, (metric,), 16, seconds)
    metric = rate("events_per_cpu_second", "events/CPU s", "cpu_us_per_event", 0.60, None)
    for client, upstream in TWO_PAIRS:
        name, title = f"single:{client}-{upstream}", f"stream {client} ← {upstream}, 1 per write"
        yield Scenario(name, title, "single", client, upstream, (metric,), 16, seconds)


def paced(streams: int) -> Iterator[Scenario]:
    kind = KINDS["paced"]
    assert kind is not None
    for client, upstream in TWO_PAIRS:
        targets = (Target(1.3, "relay"),) if client == upstream else ()
        yield Scenario(
            f"paced:{client}-{upstream}",
            f"paced {client} ← {upstream}, {streams} × {1 / kind.interval:g}/s",
            "paced",
            client,
            upstream,
            (Metric("cpu_us_per_event", "CPU µs/event", targets, "cpu_us_per_event"),),
            connections=streams,
            requests=streams,
            seconds=10.0,
        )


def latency(seconds: float) -> Iterator[Scenario]:
    """Of whole replies on one connection, and of first events."""
    for client, upstream in TWO_PAIRS:
        limits = {"p50": 250, "p99": 600} if client == upstream else {"p50": 350, "p99": 800}
        metrics = tuple(
            Metric(f"{share}_us", "µs", (Target(limit, REFERENCE, "difference"),), suffix=share)
            for share, limit in limits.items()
        )
        # At once no upstream answers, but a peer may have been measured so.
        for name, kind, answers in (
            ("latency", "delayed", f"{DELAY * 1e3:g} ms"),
            ("latency-at-once", "whole", "at once"),
        ):
            yield Scenario(
                f"{name}:{client}-{upstream}",
                f"latency {client} ← {upstream} that answers {answers}",
                kind,
                client,
                upstream,
                metrics,
                connections=1,
                seconds=seconds,
                direct=True,
            )
    metric = Metric("first_event_p99_ms", "ms", (Target(5.0, "relay", "difference"),), suffix="p99")
    for client, upstream in TWO_PAIRS:
        yield Scenario(
            f"first-event:{client}-{upstream}",
            f"time to first event {client} ← {upstream}, 50 streams",
            "timed",
            client,
            upstream,
            (metric,),
            connections=50,
            seconds=seconds,
            stagger=0.5,
            direct=True,
        )


def memory(streams: int, idle: int) -> Iterator[Scenario]:
    """Of fresh servers with many streams, which take 13 s and are all open together after 4, and
    with many clients that send one request each and then stay for at least 1.5 s."""
    for name, title, kind, count, limit, stagger, interval in (
        ("streams", "open streams", "slow", streams, 150.0, 4.0, 0.0),
        ("idle", "idle clients", "whole", idle, 250.0, 5.0, 6.5),
    ):
        yield Scenario(
            f"memory:{name}",
            f"{count:,} {title}:",
            kind,
            "chat",
            "chat",
            (value("memory_mb", "MB", limit, "memory"), value("errors", "count", 0, "errors")),
            connections=count,
            requests=count,
            seconds=stagger + 1,
            stagger=stagger,
            interval=interval,
            size=Size(),
        )


def prompts(quick: bool) -> Iterator[Scenario]:
    """Large prompts of agents: what 1 MB costs beyond a tiny one, and how long others wait for the
    server's event loop while prompts of 300 KB (about 75,000 tokens) begin 100 times a second. A
    stall of the machine counts too: compare with the relay."""
    for lane, limit, (client, upstream) in zip(
        ("native", "translated"), (2.0, 8.0), TWO_PAIRS, strict=True
    ):
        pair = f"{client} → {upstream}"
        yield Scenario(
            f"prompt-cpu:{lane}",
            f"1 MB prompt {pair}: added CPU",
            "whole",
            client,
            upstream,
            (value("added_cpu_ms", "ms", limit),),
            connections=1,
            requests=10 if quick else 25,
            seconds=30.0,
            prompt=1_000_000,
        )
        yield Scenario(
            f"prompt-stall:{lane}",
            f"300 KB prompts {pair}, 100/s: longest stall",
            "whole",
            client,
            upstream,
            (value("stall_ms", "ms", 20.0),),
            connections=100,
            seconds=1.0 if quick else 3.0,
            stagger=1.0,
            interval=1.0,
            prompt=300_000,
        )


def growing(seconds: float, rows: int) -> Iterator[Scenario]:
    """Whether a request costs the same with many keys, many channels and a long request log."""
    metric = Metric("cpu_us_per_request", "µs", (Target(1.05, REFERENCE),))
    for growth in growths(rows):
        yield Scenario(
            f"scale:{growth.name}",
            f"{growth.title}: CPU per request",
            "whole",
            "chat",
            "chat",
            (metric,),
            connections=32,
            seconds=seconds,
            size=growth.large,
            small=growth.small,
        )


def scenarios(options: Options) -> list[Scenario]:
    """All of them, in the order of the report."""
    seconds, quick = options.seconds, options.quick
    return [
        *full_speed(seconds),
        *paced(50 if quick else 200),
        *latency(seconds),
        *memory(*((400, 2000) if quick else (2000, 10_000))),
        *prompts(quick),
        *growing(seconds, options.rows),
    ]
