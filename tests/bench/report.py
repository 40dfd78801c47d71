"""The report: what each round gave, the medians, and how they stand against the aims.

It must not know how a figure was obtained. Ratios are gateway to relay, median to median.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

# The share of a core from which on it counts as full.
FULL = 0.9


@dataclass(frozen=True, slots=True)
class Figures:
    """One round of one device, or the medians of several.

    Rates are per second, processor times in microseconds, latencies in milliseconds. `busy` and
    `measuring_busy` are the shares of one core that the device, and the upstream with the load,
    kept busy; `events_per_write` says how much the device joined. Stream figures are 0 without one.
    """

    requests_per_second: float
    events_per_second: float
    cpu_per_request: float
    cpu_per_event: float
    p50: float
    p99: float
    busy: float
    measuring_busy: float
    events_per_write: float


@dataclass(frozen=True, slots=True)
class Aim:
    """A ratio to reach (`at_least`) or not to exceed."""

    figure: str
    ratio: float
    at_least: bool

    def is_met(self, ratio: float) -> bool:
        return ratio >= self.ratio if self.at_least else ratio <= self.ratio

    def __str__(self) -> str:
        return f"{'≥' if self.at_least else '≤'} {self.ratio:g} ×"


@dataclass(frozen=True, slots=True)
class Result:
    """One scenario, measured. `aim` is what it is there for."""

    name: str
    title: str
    aim: Aim
    relay: Figures
    gateway: Figures

    def ratio(self, figure: str) -> float:
        """Gateway to relay; 0.0 where the relay shows nothing to compare with."""
        base = float(getattr(self.relay, figure))
        return float(getattr(self.gateway, figure)) / base if base else 0.0

    @property
    def is_met(self) -> bool:
        return self.aim.is_met(self.ratio(self.aim.figure))

    def doubts(self) -> list[str]:
        """Why the rates may mislead. Processor times by request or event stand in any case."""
        if not self.aim.at_least:
            return []
        doubts = []
        if max(self.relay.measuring_busy, self.gateway.measuring_busy) > FULL:
            doubts.append("the measuring core was full: the ratio flatters")
        if min(self.relay.busy, self.gateway.busy) < FULL:
            doubts.append("something else ran on the devices' core: trust the CPU times more")
        return doubts


def medians(rounds: list[Figures]) -> Figures:
    return Figures(
        **{
            field.name: median(getattr(figures, field.name) for figures in rounds)
            for field in fields(Figures)
        }
    )


ROWS: list[tuple[str, str, Callable[[float], str]]] = [
    ("requests_per_second", "requests/s", "{:,.0f}".format),
    ("events_per_second", "events/s", "{:,.0f}".format),
    ("cpu_per_request", "CPU µs/request", "{:,.0f}".format),
    ("cpu_per_event", "CPU µs/event", "{:,.1f}".format),
    ("p50", "p50 ms", "{:,.1f}".format),
    ("p99", "p99 ms", "{:,.1f}".format),
    ("busy", "device busy", "{:.0%}".format),
    ("measuring_busy", "measuring busy", "{:.0%}".format),
    ("events_per_write", "events/write", "{:,.1f}".format),
]


def show(results: list[Result], console: Console) -> None:
    """One table for each scenario; rows that say nothing about it are left out."""
    for result in results:
        table = Table(title=result.title, title_justify="left", min_width=72)
        table.add_column("median of the rounds")
        for heading in ("relay", "gateway", "ratio", "aim"):
            table.add_column(heading, justify="right")
        for figure, label, render in ROWS:
            relay, gateway = getattr(result.relay, figure), getattr(result.gateway, figure)
            if relay or gateway:
                ratio = f"{result.ratio(figure):.2f}"
                table.add_row(label, render(relay), render(gateway), ratio, verdict(result, figure))
        console.print(table)
        for doubt in result.doubts():
            console.print(doubt, style="yellow")
        console.print()


def verdict(result: Result, figure: str) -> str:
    if figure != result.aim.figure:
        return ""
    colour, word = ("green", "met") if result.is_met else ("red", "missed")
    return f"[{colour}]{result.aim} {word}[/{colour}]"


def as_data(results: list[Result]) -> list[dict[str, Any]]:
    """The same as plain values, for `--json`."""
    return [
        {
            "scenario": result.name,
            "relay": asdict(result.relay),
            "gateway": asdict(result.gateway),
            "ratios": {field.name: result.ratio(field.name) for field in fields(Figures)},
            "aim": {**asdict(result.aim), "met": result.is_met},
            "doubts": result.doubts(),
        }
        for result in results
    ]
