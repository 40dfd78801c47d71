"""The charts of the overview, from sums and counts of its range."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gateway.admin.units import format_count, format_duration
from gateway.console.charts import (
    Chart,
    Kind,
    Series,
    build_chart,
    short_number,
)
from gateway.console.spending import Span, logs_url
from gateway.store.log.outcomes import Outcome
from gateway.store.log.overview import Overview
from gateway.store.log.usage import Metrics


def charts(
    span: Span,
    overview: Overview,
    spent: Chart,
    outcomes: Mapping[tuple[int, Outcome], int],
) -> Iterator[Chart]:
    """Yields the charts, first that of what was `spent`; `outcomes` counts those that are no
    success."""
    metrics, whole = overview.series, overview.whole
    buckets = span.buckets()
    yield spent
    yield build_chart(
        "Requests",
        buckets,
        list(_outcomes(overview, outcomes)),
        short_number,
        summary=f"{format_count(whole.requests)}, {format_count(whole.errors)} without success",
    )
    yield build_chart(
        "Tokens",
        buckets,
        [
            Series("Input", "c1", [each.input_tokens - each.cache_read_tokens for each in metrics]),
            Series("Cached input", "c3", [each.cache_read_tokens for each in metrics]),
            Series("Output", "c2", [each.output_tokens for each in metrics]),
        ],
        short_number,
        summary=f"{format_count(whole.input_tokens)} in, {format_count(whole.output_tokens)} out",
    )
    yield build_chart(
        "Latency",
        buckets,
        [
            Series("Time to first token", "c1", [each.mean_first_event_us for each in metrics]),
            Series("Duration", "c2", [each.mean_total_us for each in metrics]),
        ],
        lambda us: format_duration(round(us)) or "",
        summary=_latency(whole),
        kind=Kind.LINES,
        min_step=1000,
    )
    yield build_chart(
        "Cached input",
        buckets,
        [Series("Share of the input", "c3", [_percent(each) for each in metrics])],
        lambda percent: f"{percent:.3g} %",
        summary=f"{_percent(whole) or 0:.0f} % of the input",
        kind=Kind.LINES,
        min_step=25,
    )


def _outcomes(overview: Overview, outcomes: Mapping[tuple[int, Outcome], int]) -> Iterator[Series]:
    for outcome in Outcome:
        counts: list[float | None] = (
            [each.requests - each.errors for each in overview.series]
            if outcome is Outcome.SUCCESS
            else [outcomes.get((each.at, outcome), 0) for each in overview.series]
        )
        url = logs_url(overview.since, overview.until, outcome=outcome)
        yield Series(outcome.replace("_", " "), f"outcome-{outcome}", counts, url)


def _percent(metrics: Metrics) -> float | None:
    share = metrics.cached_share
    return None if share is None else 100 * share


def _latency(metrics: Metrics) -> str:
    first = format_duration(metrics.mean_first_event_us)
    duration = format_duration(metrics.mean_total_us)
    if first is None:
        return "no reply"
    return f"mean time to first token {first}, mean duration {duration}"
