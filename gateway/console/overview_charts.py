"""The charts of the overview, from sums and counts of its range."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final
from urllib.parse import urlencode

from gateway.admin.units import format_count, format_duration, format_units, format_usd
from gateway.console.charts import (
    Bucket,
    Chart,
    Kind,
    Series,
    bucket_label,
    build_chart,
    short_number,
)
from gateway.core.limits import MICRO_PER_UNIT
from gateway.quota.budgets import format_utc
from gateway.store.log.outcomes import Outcome
from gateway.store.log.overview import Overview
from gateway.store.log.usage import Metrics

LOGS_PATH: Final = "/console/logs"

Amounts = Mapping[int, int]
"""Micro-units or millionths of a dollar by the start of their bucket, in Unix µs."""


def logs_url(since: int, until: int | None = None, **filters: str) -> str:
    """The matching requests of a span of Unix µs."""
    times = {"since": format_utc(since)} | ({"until": format_utc(until)} if until else {})
    return f"{LOGS_PATH}?{urlencode(times | filters)}"


def charts(
    overview: Overview,
    spent: Sequence[tuple[str, str, Amounts]],
    outcomes: Mapping[tuple[int, Outcome], int],
) -> Iterator[Chart]:
    """Yields the charts. `spent` has the name, the address and the amounts of each part of the
    cost; `outcomes` counts those that are no success."""
    metrics, whole = overview.series, overview.whole
    buckets = [
        Bucket(bucket_label(overview.step, each.at), logs_url(each.at, each.at + overview.step))
        for each in metrics
    ]
    yield _spending(overview, buckets, spent)
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


def _spending(
    overview: Overview, buckets: Sequence[Bucket], spent: Sequence[tuple[str, str, Amounts]]
) -> Chart:
    """The parts that were asked for, and what is left of the whole."""
    in_usd = bool(overview.whole.usd_micro)
    left = [each.usd_micro if in_usd else each.cost_micro for each in overview.series]
    series = []
    for number, (name, url, amounts) in enumerate(spent, 1):
        values = [amounts.get(each.at, 0) for each in overview.series]
        left = [max(0, rest - value) for rest, value in zip(left, values, strict=True)]
        series.append(Series(name, f"c{number}", [each / MICRO_PER_UNIT for each in values], url))
    if any(left):
        series.append(Series("others", "c6", [each / MICRO_PER_UNIT for each in left]))
    whole = overview.whole
    return build_chart(
        "US dollars" if in_usd else "Units",
        buckets,
        series,
        short_number,
        summary=format_usd(whole.usd_micro) if in_usd else format_units(whole.cost_micro),
        min_step=0.01 if in_usd else 1,
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
