"""The time from the start of the process until the gateway is ready."""

from __future__ import annotations

from statistics import median
from time import perf_counter

from tests.bench import gateway_server
from tests.bench.context import Bench
from tests.bench.gateway_server import Size
from tests.bench.report import Row, Target


def measure(bench: Bench) -> list[Row]:
    """Each start finds the database of the one before, as after an update."""
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
