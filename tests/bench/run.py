"""One run: the servers are started, every chosen scenario is measured, the rows are collected."""

from __future__ import annotations

import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from rich.console import Console

from tests.bench import (
    gateway_server,
    large_prompts,
    memory,
    peers,
    rounds,
    scaling,
    scenarios,
    servers,
    startup,
)
from tests.bench.context import Bench, Options
from tests.bench.limits import raise_open_files
from tests.bench.report import Row

Measurement = Callable[[Bench], list[Row]]


def compare_closed_loop(scenario: scenarios.Scenario, bench: Bench) -> list[Row]:
    return rounds.compare(
        scenario, bench.servers, bench.upstream, bench.options.rounds, bench.progress
    )


def translate_prompts(bench: Bench) -> list[Row]:
    # It imports the gateway, which the bench must not need for anything else.
    from tests.bench import prompts

    bench.progress("translate")
    return prompts.measure(bench.options.quick)


def measurements(options: Options) -> Iterator[tuple[str, Measurement]]:
    """All of them by name, in the order of the report."""
    for scenario in scenarios.closed_loop(
        seconds=options.seconds, paced_streams=50 if options.quick else 200
    ):
        yield scenario.name, partial(compare_closed_loop, scenario)
    yield "memory:streams", memory.measure_streams
    yield "memory:idle", memory.measure_idle
    for lane in large_prompts.PAIRS:
        yield f"prompt-cpu:{lane}", partial(large_prompts.measure_cost, lane)
        yield f"prompt-stall:{lane}", partial(large_prompts.measure_stall, lane)
    yield "translate", translate_prompts
    for growth in scaling.growths(options.rows):
        yield f"scale:{growth.name}", partial(scaling.measure_growth, growth)
    yield "start", startup.measure


def names(options: Options) -> list[str]:
    return [name for name, _ in measurements(options) if options.chosen(name)]


def end_on_sigterm() -> None:
    """A plain kill must unwind like Ctrl-C does, or it would leave the processes behind."""
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))


def run(options: Options, console: Console) -> list[Row]:
    raise_open_files()
    cores = servers.cores()
    if cores is None:
        console.print("one core for everything: only the CPU times mean something", style="yellow")
    load_core, tested_core = cores or (None, None)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gateway-bench-")))
        upstream = stack.enter_context(servers.upstream(folder, load_core))
        tested = [stack.enter_context(servers.relay(folder, upstream, tested_core))]
        for checkout in options.checkouts:
            started = gateway_server.gateway(
                folder / checkout.name, upstream, tested_core, checkout
            )
            tested.append(stack.enter_context(started))
        for name in options.peers:
            started = peers.peer(name, folder, upstream, tested_core, options.peer_folder)
            tested.append(stack.enter_context(started))
        stack.enter_context(servers.on_core(load_core))
        bench = Bench(
            options,
            folder,
            upstream,
            tested,
            tested_core,
            partial(console.print, style="dim", highlight=False),
        )
        return [
            row
            for name, measurement in measurements(options)
            if options.chosen(name)
            for row in measurement(bench)
        ]
