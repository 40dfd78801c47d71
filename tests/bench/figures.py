"""What one round of one server gave, and the medians of several rounds."""

from __future__ import annotations

from dataclasses import dataclass, fields
from statistics import median

# The share of a core from which on it counts as full.
FULL = 0.9


@dataclass(frozen=True, slots=True)
class Figures:
    """One round of one server, or the medians of several.

    Rates are per second, processor times in microseconds, latencies as their names say. `busy` and
    `load_busy` are the shares of one core that the server, and the upstream with the load
    generator, kept busy. `events_per_write` says how much the server merged: the events of a
    stream divided by the HTTP chunks that the client got. Stream figures are 0 for whole replies.
    """

    requests_per_second: float
    events_per_second: float
    events_per_cpu_second: float
    cpu_us_per_request: float
    cpu_us_per_event: float
    p50_us: float
    p99_us: float
    first_event_p99_ms: float
    busy: float
    load_busy: float
    events_per_write: float


def medians(rounds: list[Figures]) -> Figures:
    return Figures(
        **{
            field.name: median(getattr(figures, field.name) for figures in rounds)
            for field in fields(Figures)
        }
    )
