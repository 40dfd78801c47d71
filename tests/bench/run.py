"""One run: the servers are started, every chosen scenario is measured, the rows are collected."""

from __future__ import annotations

import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter

from rich.console import Console

from tests.bench import gateway_server, peers, servers
from tests.bench.context import Bench, Options
from tests.bench.gateway_server import Size
from tests.bench.limits import raise_open_files
from tests.bench.report import Row, Target
from tests.bench.rounds import compare
from tests.bench.scenarios import scenarios


def measure_start(bench: Bench) -> list[Row]:
    """The time from the start of the process until the gateway is ready. Each start finds the
    database of the one before, as after an update."""
    prepared = [
        gateway_server.prepare(bench.fresh_folder(checkout.name), bench.upstream, checkout, Size())
        for checkout in bench.options.checkouts
    ]
    seconds: dict[str, list[float]] = {each.checkout.name: [] for each in prepared}
    for number in range(bench.options.rounds):
        bench.progress(f"start: round {number + 1} of {bench.options.rounds}")
        for each in prepared:
            began = perf_counter()
            with gateway_server.started(each, bench.tested_core):
                seconds[each.checkout.name].append(perf_counter() - began)
    return [
        Row(
            name="start",
            title="start to ready",
            unit="s",
            values={name: median(times) for name, times in seconds.items()},
            targets=(Target(1.0, compare="value"),),
        )
    ]


def measurements(options: Options) -> Iterator[tuple[str, Callable[[Bench], list[Row]]]]:
    """All of them by name, in the order of the report."""
    for scenario in scenarios(options):
        yield scenario.name, partial(compare, scenario)
    yield "start", measure_start


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
        progress = partial(console.print, style="dim", highlight=False)
        bench = Bench(options, folder, upstream, tested, tested_core, progress)
        return [
            row
            for name, measurement in measurements(options)
            if options.chosen(name)
            for row in measurement(bench)
        ]
