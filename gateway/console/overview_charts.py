"""The charts and sparklines of the overview, from sums of its range."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from gateway.admin.units import format_count, format_duration, format_ms
from gateway.console.charts import (
    Chart,
    Kind,
    Series,
    build_chart,
    short_number,
    sparkline,
)
from gateway.console.latency import Latency, describe_first_event
from gateway.console.spending import Span, logs_url
from gateway.store.log.outcomes import OUTCOME_OF_KIND, Outcome
from gateway.store.log.overview import Overview
from gateway.store.log.traffic_report import Measured, Percentiles
from gateway.store.log.usage import Metrics


def charts(
    span: Span, overview: Overview, spent: Chart, traffic: Sequence[Measured], latency: Latency
) -> Iterator[Chart]:
    """Yields the charts, first that of what was `spent`; `traffic` has the outcomes of steps."""
    metrics, whole = overview.series, overview.whole
    buckets, times = span.buckets(), latency.steps
    yield spent
    yield build_chart(
        "Requests",
        buckets,
        list(_outcomes(overview, traffic)),
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
            Series(
                *("Time to first token, median", "c1", [each.p50 for each in times]),
                describe=describe_first_event,
            ),
            Series(
                *("95th percentile", "c5", [each.p95 for each in times]),
                describe=describe_first_event,
            ),
            Series("Mean duration", "c2", [_in_ms(each.mean_total_us) for each in metrics]),
        ],
        lambda value: format_ms(value) or "",
        summary=_latency(whole, latency.whole),
        kind=Kind.LINES,
        min_step=1,
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


def sparklines(overview: Overview, latency: Latency) -> dict[str, str]:
    """The paths of lines beside figures."""
    metrics = overview.series
    money = "usd_micro" if overview.whole.usd_micro else "cost_micro"
    values: dict[str, Sequence[float | None]] = {
        "cost": [getattr(each, money) for each in metrics],
        "errors": [each.errors for each in metrics],
        "first_event": [each.p95 for each in latency.steps],
        "requests": [each.requests for each in metrics],
        "input": [each.input_tokens for each in metrics],
        "output": [each.output_tokens for each in metrics],
    }
    return {name: sparkline(each) for name, each in values.items()}


def _outcomes(overview: Overview, traffic: Sequence[Measured]) -> Iterator[Series]:
    counted: Counter[tuple[int | None, Outcome]] = Counter()
    for each in traffic:
        for kind, outcome in OUTCOME_OF_KIND.items():
            counted[each.start, outcome] += each.counts[kind]
    for outcome in Outcome:
        counts = [counted[each.at, outcome] for each in overview.series]
        url = logs_url(overview.since, overview.until, outcome=outcome)
        yield Series(outcome.replace("_", " "), f"outcome-{outcome}", counts, url)


def _percent(metrics: Metrics) -> float | None:
    share = metrics.cached_share
    return None if share is None else 100 * share


def _in_ms(microseconds: int | None) -> float | None:
    return None if microseconds is None else microseconds / 1000


def _latency(metrics: Metrics, first: Percentiles) -> str:
    if first.p50 is None or first.p95 is None:
        return "no reply"
    p50, p95 = map(describe_first_event, (first.p50, first.p95))
    times = f"median {p50}, 95th percentile {p95}"
    return f"time to first token: {times}; mean duration {format_duration(metrics.mean_total_us)}"
