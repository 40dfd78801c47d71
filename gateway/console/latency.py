"""Times to the first token over time: of all requests, and a chart of them by model or channel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from gateway.admin.units import format_ms, format_percentile
from gateway.console.charts import Chart, Kind, Series, build_chart
from gateway.console.spending import Span
from gateway.store.database import Database
from gateway.store.log.traffic_report import (
    NO_VALUES,
    By,
    Measured,
    Percentiles,
    TrafficQuery,
    add_up,
    read_measures,
)
from gateway.store.measures import histogram_columns

_HISTOGRAM: Final = "first_event"
MEASURES: Final = histogram_columns(_HISTOGRAM)
"""What is read of traffic."""


@dataclass(frozen=True, slots=True)
class Latency:
    """Percentiles in milliseconds: of each step of a span, and of the whole."""

    steps: Sequence[Percentiles]
    whole: Percentiles

    @classmethod
    def of(cls, span: Span, traffic: Sequence[Measured]) -> Latency:
        found = {each.start: each.percentiles(_HISTOGRAM) for each in traffic}
        whole = add_up(traffic, MEASURES).percentiles(_HISTOGRAM)
        return cls([found.get(at, NO_VALUES) for at in span.starts], whole)


def describe_first_event(milliseconds: float) -> str:
    return format_percentile(_HISTOGRAM, milliseconds) or ""


async def latency_chart(
    database: Database,
    span: Span,
    by: str,
    names: Mapping[str, tuple[str, str]],
    /,
    *,
    key: str | None = None,
    group: str | None = None,
    **only: str | None,
) -> Chart | None:
    """The 95th percentiles of these models or channels, which have titles and addresses; None of
    what the sums of traffic do not have: keys and groups. `only` are a model and a channel. Raises
    QueryTimeout."""
    if by not in set(By) or key is not None or group is not None or not names:
        return None
    asked = TrafficQuery(span.since, span.until, by=By(by), step=span.step, **only)
    rows = await read_measures(database, MEASURES, asked)
    found = {(row.start, row.name): row.percentiles(_HISTOGRAM).p95 for row in rows}
    series = [
        Series(title, f"c{number}", values, url, describe_first_event)
        for number, (name, (title, url)) in enumerate(names.items(), 1)
        if any(values := [found.get((at, name)) for at in span.starts])
    ]
    return build_chart(
        "Time to first token",
        span.buckets(only),
        series,
        lambda value: format_ms(value) or "",
        summary="95th percentile",
        kind=Kind.LINES,
    )
