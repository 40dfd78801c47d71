"""The scenarios of closed-loop load: what is asked, how fast, and what is expected of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tests.bench.report import REFERENCE, Target
from tests.bench.samples import FORMATS
from tests.bench.upstream import DELAY, EVENTS_PER_WRITE, KINDS

UNBOUNDED = 10_000_000
NATIVE = [(wire, wire) for wire in FORMATS]
TRANSLATED = [
    (client, upstream) for client in FORMATS for upstream in FORMATS if client != upstream
]


@dataclass(frozen=True, slots=True)
class Metric:
    """A row of a scenario: a field of `Figures` with its targets. `cpu` is the processor time that
    belongs to it."""

    figure: str
    unit: str
    targets: tuple[Target, ...]
    cpu: str = ""
    suffix: str = ""

    @property
    def is_rate(self) -> bool:
        return self.figure.endswith("_per_second")


@dataclass(frozen=True, slots=True)
class Scenario:
    """One kind of reply for clients of one format from an upstream of another.

    A round ends after `requests` or `seconds`, whichever comes first. `direct`: the upstream is
    measured too, as the reference. `store`: replies are to be stored.
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
    direct: bool = False
    store: bool = False

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

    def warm_up(self) -> Scenario:
        return replace(self, seconds=min(self.seconds, 0.3))


def rate(figure: str, unit: str, cpu: str, relay: float, peer: float | None) -> Metric:
    targets = [Target(relay, "relay", at_least=True)]
    if peer is not None:
        targets.append(Target(peer, "rolter", at_least=True))
    return Metric(figure, unit, tuple(targets), cpu)


def whole(seconds: float) -> Iterator[Scenario]:
    for client, upstream in NATIVE + TRANSLATED:
        native = client == upstream
        metric = rate(
            "requests_per_second",
            "requests/s",
            "cpu_us_per_request",
            0.60 if native else 0.50,
            0.50 if native else 0.45,
        )
        yield Scenario(
            name=f"whole:{client}-{upstream}",
            title=f"whole {client} ← {upstream}",
            kind="whole",
            client=client,
            upstream=upstream,
            metrics=(metric,),
            connections=32,
            seconds=seconds,
        )


def stored(seconds: float) -> Iterator[Scenario]:
    for upstream in ("responses", "chat"):
        yield Scenario(
            name=f"stored:responses-{upstream}",
            title=f"stored responses ← {upstream}",
            kind="whole",
            client="responses",
            upstream=upstream,
            metrics=(Metric("requests_per_second", "requests/s", (), "cpu_us_per_request"),),
            connections=32,
            seconds=seconds,
            store=True,
        )


def stream(seconds: float) -> Iterator[Scenario]:
    for client, upstream in NATIVE + TRANSLATED:
        least = 0.65 if client == upstream else 0.50
        yield Scenario(
            name=f"stream:{client}-{upstream}",
            title=f"stream {client} ← {upstream}, {EVENTS_PER_WRITE} per write",
            kind="burst",
            client=client,
            upstream=upstream,
            metrics=(rate("events_per_second", "events/s", "cpu_us_per_event", least, 1.5),),
            connections=16,
            seconds=seconds,
        )


def single(seconds: float) -> Iterator[Scenario]:
    for client, upstream in (("chat", "chat"), ("chat", "messages")):
        yield Scenario(
            name=f"single:{client}-{upstream}",
            title=f"stream {client} ← {upstream}, 1 per write",
            kind="single",
            client=client,
            upstream=upstream,
            metrics=(
                rate("events_per_cpu_second", "events/CPU s", "cpu_us_per_event", 0.60, None),
            ),
            connections=16,
            seconds=seconds,
        )


def paced(streams: int) -> Iterator[Scenario]:
    kind = KINDS["paced"]
    assert kind is not None
    for client, upstream in (("chat", "chat"), ("chat", "messages")):
        targets = (Target(1.3, "relay"),) if client == upstream else ()
        yield Scenario(
            name=f"paced:{client}-{upstream}",
            title=f"paced {client} ← {upstream}, {streams} × {1 / kind.interval:g}/s",
            kind="paced",
            client=client,
            upstream=upstream,
            metrics=(Metric("cpu_us_per_event", "CPU µs/event", targets, "cpu_us_per_event"),),
            connections=streams,
            requests=streams,
            seconds=10.0,
        )


def latency(seconds: float) -> Iterator[Scenario]:
    for client, upstream in (("chat", "chat"), ("chat", "messages")):
        p50, p99 = (250, 600) if client == upstream else (350, 800)
        for kind, title in (("delayed", f"{DELAY * 1e3:g} ms"), ("whole", "at once")):
            # At once no upstream answers, but a peer may have been measured so.
            name = "latency" if kind == "delayed" else "latency-at-once"
            yield Scenario(
                name=f"{name}:{client}-{upstream}",
                title=f"latency {client} ← {upstream} that answers {title}",
                kind=kind,
                client=client,
                upstream=upstream,
                metrics=tuple(
                    Metric(
                        f"{share}_us", "µs", (Target(limit, REFERENCE, "difference"),), suffix=share
                    )
                    for share, limit in (("p50", p50), ("p99", p99))
                ),
                connections=1,
                seconds=seconds,
                direct=True,
            )


def first_event(seconds: float) -> Iterator[Scenario]:
    metric = Metric("first_event_p99_ms", "ms", (Target(5.0, "relay", "difference"),), suffix="p99")
    for client, upstream in (("chat", "chat"), ("chat", "messages")):
        yield Scenario(
            name=f"first-event:{client}-{upstream}",
            title=f"time to first event {client} ← {upstream}, 50 streams",
            kind="timed",
            client=client,
            upstream=upstream,
            metrics=(metric,),
            connections=50,
            seconds=seconds,
            stagger=0.5,
            direct=True,
        )


def closed_loop(*, seconds: float, paced_streams: int) -> list[Scenario]:
    """All of them; `seconds` is the length of a round of the scenarios that go at full speed."""
    return [
        *whole(seconds),
        *stored(seconds),
        *stream(seconds),
        *single(seconds),
        *paced(paced_streams),
        *latency(seconds),
        *first_event(seconds),
    ]
