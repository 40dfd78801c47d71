"""`python -m tests.bench`: what the gateway costs, next to a bare relay in the same run.

The machine is never quiet, so the two take turns, round by round, and the medians are compared:
a noise hits both. It must not know how the processes are started nor how the figures are shown.

Ends with 1 when a request failed (no figure is worth anything then); a missed aim is only shown.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import orjson
import psutil
import uvloop
from rich.console import Console

from tests.bench import devices, load
from tests.bench.devices import Device
from tests.bench.report import Aim, Figures, Result, as_data, medians, show
from tests.bench.speech import EVENTS, SPEECHES, Speech
from tests.bench.upstream import EVENTS_PER_WRITE

WARM_UP_SECONDS = 0.3
PACED_SECONDS = 10.0
UNBOUNDED = 10_000_000


@dataclass(frozen=True, slots=True)
class Scenario:
    """One kind of reply, asked for by clients of one format. `requests` ends a round, or `seconds`
    does, whichever comes first."""

    kind: str
    title: str
    aim: Aim
    connections: int
    requests: int
    seconds: float
    rounds: int
    client: str = "chat"

    def speech(self, device: Device) -> Speech | None:
        """What the client hears: the relay leaves it as the upstream speaks."""
        if self.kind == "whole":
            return None
        bare = device.relays and self.kind in SPEECHES
        return SPEECHES[self.kind if bare else self.client]

    @property
    def name(self) -> str:
        return f"{self.client} from {self.kind}" if self.kind in SPEECHES else self.kind


@dataclass(frozen=True, slots=True)
class Plan:
    """A run. `interval` is the seconds between two writes of a paced stream."""

    interval: float
    scenarios: tuple[Scenario, ...]


def plan(*, seconds: float, rounds: int, paced_streams: int, interval: float) -> Plan:
    """`seconds` and `rounds` are those of the two scenarios that go as fast as they can."""
    pace = f"one write every {interval * 1000:g} ms, {paced_streams} at once"
    whole = Scenario(
        kind="whole",
        title="Whole replies, 32 at once",
        aim=Aim("requests_per_second", 0.65, at_least=True),
        connections=32,
        requests=UNBOUNDED,
        seconds=seconds,
        rounds=rounds,
    )
    bursts = [
        Scenario(
            kind=upstream,
            client=client,
            title=f"{client.capitalize()} clients of {upstream} upstreams: streams of {EVENTS} "
            f"events, {EVENTS_PER_WRITE} to a write, 16 at once",
            aim=Aim("events_per_second", 0.5 if client == upstream else 0.4, at_least=True),
            connections=16,
            requests=UNBOUNDED,
            seconds=seconds / 2,
            rounds=3,
        )
        for client in SPEECHES
        for upstream in SPEECHES
    ]
    # A device with its hands full finds several writes in one read, the relay most of all. Here it
    # has time, and gets them as they were sent: the same aim, put as processor time.
    joined = Scenario(
        kind="joined",
        title=f"Streams of {EVENTS} events, {EVENTS_PER_WRITE} to a write, {pace}",
        aim=Aim("cpu_per_event", 2.0, at_least=False),
        connections=paced_streams,
        requests=4 * paced_streams,
        seconds=PACED_SECONDS,
        rounds=3,
    )
    paced = Scenario(
        kind="paced",
        title=f"Streams of {EVENTS} events, {pace}",
        aim=Aim("cpu_per_event", 1.5, at_least=False),
        connections=paced_streams,
        requests=paced_streams,
        seconds=PACED_SECONDS,
        rounds=3,
    )
    return Plan(interval, (whole, *bursts, joined, paced))


# Both pace 5,000 writes a second: enough to measure, too little to make the devices join them.
FULL = plan(seconds=2.0, rounds=5, paced_streams=100, interval=0.02)
QUICK = plan(seconds=0.4, rounds=3, paced_streams=25, interval=0.005)


def render_body(scenario: Scenario) -> bytes:
    system = "You are a terse assistant who answers in one paragraph and never asks back."
    question = "Which three habits keep a code base worth living in, and why these and no others?"
    user = {"role": "user", "content": question}
    asked: dict[str, dict[str, object]] = {
        "chat": {"messages": [{"role": "system", "content": system}, user], "max_tokens": 1024},
        "messages": {"system": system, "messages": [user], "max_tokens": 1024},
        "responses": {"instructions": system, "input": [user], "max_output_tokens": 1024},
    }
    common = {"model": devices.model(scenario.kind), "temperature": 0.7}
    return orjson.dumps(common | asked[scenario.client] | {"stream": scenario.kind != "whole"})


def cpu_of_measuring(upstream: Device) -> float:
    own = psutil.Process().cpu_times()
    return upstream.cpu_seconds() + float(own.user + own.system)


def measure(scenario: Scenario, device: Device, upstream: Device) -> Figures:
    """One round. SystemExit when a request failed, or more or fewer reached the upstream."""
    asked_before = devices.count_requests(upstream)
    cpu_before, measuring_before = device.cpu_seconds(), cpu_of_measuring(upstream)
    arrivals = uvloop.run(
        load.run(
            load.Load(
                port=device.port,
                path=device.path(scenario.kind, scenario.client),
                key=device.key,
                body=render_body(scenario),
                speech=scenario.speech(device),
                connections=scenario.connections,
                requests=scenario.requests,
                seconds=scenario.seconds,
            )
        )
    )
    cpu = device.cpu_seconds() - cpu_before
    measuring = cpu_of_measuring(upstream) - measuring_before
    asked = devices.count_requests(upstream) - asked_before
    if arrivals.errors or asked != arrivals.requests:
        raise SystemExit(
            f"{scenario.name} through the {device.name}: {arrivals.requests} good replies, "
            f"{arrivals.errors} errors, {asked} requests upstream.\n{arrivals.first_error}"
        )
    return Figures(
        requests_per_second=arrivals.requests / arrivals.seconds,
        events_per_second=arrivals.events / arrivals.seconds,
        cpu_per_request=cpu / arrivals.requests * 1e6,
        cpu_per_event=cpu / arrivals.events * 1e6 if arrivals.events else 0.0,
        p50=arrivals.percentile(0.50) * 1e3,
        p99=arrivals.percentile(0.99) * 1e3,
        busy=cpu / arrivals.seconds,
        measuring_busy=measuring / arrivals.seconds,
        events_per_write=arrivals.events / arrivals.writes if arrivals.writes else 0.0,
    )


def warm_up(plan: Plan, device: Device, upstream: Device) -> None:
    """Walk the device's paths once. Paced streams take those of the bursts, only slower."""
    for scenario in plan.scenarios:
        if scenario.requests == UNBOUNDED:
            measure(replace(scenario, seconds=WARM_UP_SECONDS), device, upstream)


def compare(
    scenario: Scenario, relay: Device, gateway: Device, upstream: Device, progress: Console
) -> Result:
    rounds: dict[str, list[Figures]] = {relay.name: [], gateway.name: []}
    for number in range(scenario.rounds):
        progress.print(f"{scenario.name}: round {number + 1} of {scenario.rounds}", style="dim")
        for device in (relay, gateway):
            rounds[device.name].append(measure(scenario, device, upstream))
    return Result(
        name=scenario.name,
        title=scenario.title,
        aim=scenario.aim,
        relay=medians(rounds[relay.name]),
        gateway=medians(rounds[gateway.name]),
    )


def run(plan: Plan, progress: Console) -> list[Result]:
    cores = devices.cores()
    if cores is None:
        progress.print("one core for everything: only the CPU times mean something", style="yellow")
    measuring, tested = cores or (None, None)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gateway-bench-")))
        upstream = stack.enter_context(devices.upstream(folder, plan.interval, measuring))
        relay = stack.enter_context(devices.relay(folder, upstream, tested))
        gateway = stack.enter_context(devices.gateway(folder, upstream, tested))
        stack.enter_context(devices.on_core(measuring))
        for device in (relay, gateway):
            warm_up(plan, device, upstream)
        return [
            compare(scenario, relay, gateway, upstream, progress) for scenario in plan.scenarios
        ]


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench",
        description="What the gateway costs, next to a bare relay measured in the same run.",
    )
    parser.add_argument("--quick", action="store_true", help="a short run: noisier, under 20 s")
    parser.add_argument("--json", action="store_true", help="the figures as JSON on stdout")
    arguments = parser.parse_args()
    # A plain kill must unwind like Ctrl-C does, or it would leave the processes behind.
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        results = run(QUICK if arguments.quick else FULL, Console(stderr=True))
    except KeyboardInterrupt:
        sys.exit(130)
    if arguments.json:
        print(orjson.dumps(as_data(results), option=orjson.OPT_INDENT_2).decode())
    else:
        show(results, Console())


if __name__ == "__main__":
    main()
