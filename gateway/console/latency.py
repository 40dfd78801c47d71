"""The chart of times to the first token by model or channel."""

from __future__ import annotations

from collections.abc import Mapping

from gateway.admin.units import format_ms
from gateway.console.charts import Chart, Kind, Series, build_chart
from gateway.console.spending import Span
from gateway.store.database import Database
from gateway.store.log.traffic_report import By, read_measures
from gateway.store.measures import histogram_columns


async def latency_chart(
    database: Database,
    span: Span,
    by: str,
    names: Mapping[str, tuple[str, str]],
    /,
    *,
    key: str | None = None,
    group: str | None = None,
    model: str | None = None,
    channel: str | None = None,
) -> Chart | None:
    """The 95th percentiles of these models or channels, which have titles and addresses; None of
    what the sums of traffic do not have: keys and groups. Raises QueryTimeout."""
    if by not in set(By) or key is not None or group is not None or not names:
        return None
    rows = await read_measures(
        *(database, histogram_columns("first_event"), span.since, span.until),
        by=By(by),
        step=span.step,
        model=model,
        channel=channel,
    )
    found = {(row.start, row.name): row.percentiles("first_event").p95 for row in rows}
    series = [
        Series(title, f"c{number}", values, url)
        for number, (name, (title, url)) in enumerate(names.items(), 1)
        if any(values := [found.get((at, name)) for at in span.starts])
    ]
    return build_chart(
        "Time to first token",
        span.buckets(),
        series,
        lambda value: format_ms(value) or "",
        summary="95th percentile",
        kind=Kind.LINES,
    )
