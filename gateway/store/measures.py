"""The measures of the sums of traffic: names of columns, and bounds of histograms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gateway.core.value import FastStrEnum
from gateway.store.records import USAGE_COUNTS


class OutcomeKind(FastStrEnum):
    """How a request turned out. `RATE_LIMITED`, `OVER_BUDGET`, `FORBIDDEN` and `REFUSED` were
    rejected before an upstream was asked; `REFUSED` for another reason than the others."""

    OK = "ok"
    FAILED = "failed"
    CLIENT_LEFT = "client_left"
    INTERRUPTED = "interrupted"
    RATE_LIMITED = "rate_limited"
    OVER_BUDGET = "over_budget"
    FORBIDDEN = "forbidden"
    REFUSED = "refused"


HISTOGRAMS: Final[Mapping[str, tuple[int, ...]]] = {
    "first_event": (100, 200, 300, 500, 750, 1000, 1500, 2000, 3000, 5000, 10_000, 20_000),
    "duration": (500, 1000, 2000, 4000, 8000, 15_000, 30_000, 60_000, 120_000, 240_000, 480_000),
    "speed": (5, 10, 20, 30, 40, 60, 80, 120, 200),
}
"""The bounds of counts of exchanges that had a first event: by the milliseconds until it, by those
of the whole, and streams by the output tokens of each second after it. A value that is equal to a
bound is above it."""


def histogram_columns(name: str) -> tuple[str, ...]:
    """The columns of a histogram, from the lowest values to the highest."""
    bounds = HISTOGRAMS[name]
    return (*(f"{name}_under_{bound}" for bound in bounds), f"{name}_from_{bounds[-1]}")


TRAFFIC_KEY: Final = ("start", "model", "channel")

MEASURES: Final = (
    *USAGE_COUNTS,
    *("attempts", "retries"),
    *OutcomeKind,
    *(column for name in HISTOGRAMS for column in histogram_columns(name)),
)
"""The columns of the sums after their key, in their order. Attempts belong to the channel of the
last."""
