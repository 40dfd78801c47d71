"""The rows of the report, how they stand against their targets, the table and the JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from rich.console import Console
from rich.markup import escape
from rich.table import Table

TITLE = """\
Medians. CPU: processor time per request or event. merged: events per write, relay / gateway.
met?, missed?: something else than its core limited a server (see below): the CPU ratio counts."""
REFERENCE = "reference"
"""The column of what a row is compared with if no server is: the direct call, a tiny prompt, a
gateway with little to hold."""


@dataclass(frozen=True, slots=True)
class Target:
    """A limit for the gateway: for its value, or for its ratio or difference to another column."""

    limit: float
    baseline: str = "relay"
    compare: Literal["ratio", "difference", "value"] = "ratio"
    at_least: bool = False

    def compared(self, values: dict[str, float]) -> float | None:
        """What the limit applies to; None where a value is missing."""
        gateway, base = values.get("gateway"), values.get(self.baseline)
        if gateway is None or self.compare == "value":
            return gateway
        if base is None or (self.compare == "ratio" and not base):
            return None
        return gateway / base if self.compare == "ratio" else gateway - base

    def is_met(self, compared: float) -> bool:
        return compared >= self.limit if self.at_least else compared <= self.limit

    def text(self, compared: float) -> str:
        sign = "≥" if self.at_least else "≤"
        suffix = {
            "ratio": f"× {self.baseline}",
            "difference": f"over {self.baseline}",
            "value": "",
        }[self.compare]
        limit = f"{self.limit:.2f}" if self.compare == "ratio" else short(self.limit)
        text = f"{compared:.2f}" if self.compare == "ratio" else short(compared)
        return f"{text} {suffix}".strip() + f" ({sign} {limit})"


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table. `values` are by server; `cpu` are the processor times that belong to
    a rate; `details` are further figures, for the JSON only. `limited` are the servers whose rate
    something else than their core limited: other work on the machine, the load, waiting."""

    name: str
    title: str
    unit: str
    values: dict[str, float]
    targets: tuple[Target, ...] = ()
    cpu: dict[str, float] = field(default_factory=dict)
    details: dict[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    limited: frozenset[str] = frozenset()

    def results(self) -> list[tuple[Target, float, bool]]:
        """Each target that can be judged, what it applies to, and whether it is met."""
        return [
            (target, compared, target.is_met(compared))
            for target in self.targets
            if (compared := target.compared(self.values)) is not None
        ]

    def is_reliable(self, target: Target) -> bool:
        return not self.limited & {"gateway", target.baseline}

    def cpu_ratio(self, baseline: str = "relay") -> float | None:
        """Processor time of the gateway by that of another server."""
        gateway, base = self.cpu.get("gateway"), self.cpu.get(baseline)
        return gateway / base if gateway and base else None


def short(value: float) -> str:
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def show(rows: Sequence[Row], order: Sequence[str], also: Sequence[str], console: Console) -> None:
    """One table; `order` are the columns of servers, `also` those of other checkouts."""
    table = Table(title=TITLE, title_justify="left")
    table.add_column("row", overflow="fold")
    table.add_column("unit")
    output = [name for name in order if any(name in row.values for row in rows)]
    for name in output:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("merged", justify="right", no_wrap=True)
    table.add_column("gateway compared (target)", no_wrap=True)
    for row in rows:
        values = [short(row.values[name]) if name in row.values else "-" for name in output]
        compared = "\n".join([*verdicts(row), *comparisons(row, also)])
        table.add_row(escape(row.title), row.unit, *values, merged(row), compared)
    console.print(table)
    for row in rows:
        for warning in row.warnings:
            console.print(f"{row.name}: {warning}", style="yellow", markup=False)


def merged(row: Row) -> str:
    """Events per write of relay and gateway, for streams."""
    if "event" not in row.unit:
        return ""
    each = [row.details.get(name, {}).get("events_per_write") for name in ("relay", "gateway")]
    return " / ".join(short(value) for value in each) if all(each) else ""


def verdicts(row: Row) -> list[str]:
    lines = []
    for target, compared, met in row.results():
        word = "met" if met else "missed"
        colour = "green" if met else "red"
        if not row.is_reliable(target):
            word, colour = f"{word}?", "yellow"
        text = f"[{colour}]{target.text(compared)} {word}[/]"
        lines.append(text + cpu_text(row, target.baseline))
    return lines


def comparisons(row: Row, also: Sequence[str]) -> list[str]:
    """The gateway against other checkouts."""
    return [
        f"{row.values['gateway'] / row.values[name]:.3f} × {name}" + cpu_text(row, name)
        for name in also
        if row.values.get(name)
    ]


def cpu_text(row: Row, baseline: str) -> str:
    ratio = row.cpu_ratio(baseline)
    return f", CPU {ratio:.2f} ×" if ratio and row.unit.endswith("/s") else ""


def as_data(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """The rows as plain values, for the JSON file."""
    return [
        {
            "name": row.name,
            "title": row.title,
            "unit": row.unit,
            "values": row.values,
            "cpu_us": row.cpu,
            "cpu_ratio": row.cpu_ratio(),
            "targets": [
                {
                    **asdict(target),
                    "compared": compared,
                    "met": met,
                    "reliable": row.is_reliable(target),
                }
                for target, compared, met in row.results()
            ],
            "details": row.details,
            "warnings": list(row.warnings),
        }
        for row in rows
    ]
