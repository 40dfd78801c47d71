"""The charts of the overview: their curves, their summaries in words, and parts of the cost."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from gateway.console.charts import Chart
from gateway.console.latency import MEASURES, Latency
from gateway.console.overview_charts import charts, sparklines
from gateway.console.spending import Span, Spending, draw
from gateway.console.time_range import TimeRange
from gateway.core.limits import Cost
from gateway.store.log.outcomes import Outcome
from gateway.store.log.overview import Overview, TimeBucket
from gateway.store.log.traffic_report import Measured
from gateway.store.log.usage import Metrics
from gateway.store.measures import OutcomeKind
from gateway.store.records import DAY_US, HOUR_US

START = 1_790_000_000_000_000 // DAY_US * DAY_US

USED = {
    "requests": 1200,
    "errors": 3,
    "input_tokens": 4000,
    "cache_read_tokens": 1000,
    "output_tokens": 500,
    "cost_micro": 12_500_000,
    "usd_micro": 250_000,
    "first_events": 2,
    "first_event_us": 1_000_000,
    "total_us": 5_000_000,
}


def overview(step: int, used: dict[str, int]) -> Overview:
    later = (TimeBucket(at=START + n * step) for n in range(1, 24))
    return Overview(
        since=START,
        until=START + 24 * step,
        step=step,
        whole=Metrics(**used),
        series=(TimeBucket(at=START, **used), *later),
        keys=(),
        models=(),
        failures=(),
    )


def measured(at: int, **counts: int) -> Measured:
    return Measured(at, None, dict.fromkeys((*map(str, OutcomeKind), *MEASURES), 0) | counts)


def drawn(step: int, used: dict[str, int], traffic: Sequence[Measured]) -> list[Chart]:
    """A model has spent a part of the whole."""
    span = Span(START, START + 24 * step, step)
    whole = Spending({START: Cost(used.get("cost_micro", 0), used.get("usd_micro", 0))})
    part = Spending({START: Cost(200_000, 200_000)})
    spent = draw(span, whole, {("m", "/m"): part} if used else {})
    return list(charts(span, overview(step, used), spent, traffic, Latency.of(span, traffic)))


@pytest.mark.parametrize("step", [HOUR_US, DAY_US])
def test_curves_and_summaries(step: int) -> None:
    counts = {"ok": 1197, "client_left": 1, "over_budget": 1, "refused": 1}
    traffic = [measured(START, **counts, first_event_under_500=9, first_event_under_5000=1)]
    found = drawn(step, USED, traffic)
    assert {chart.title: chart.summary for chart in found} == {
        "US dollars": "$0.2500",
        "Requests": "1\u202f200, 3 without success",
        "Tokens": "4\u202f000 in, 500 out",
        "Latency": "time to first token: median 411 ms, 95th percentile 4.0 s; mean duration 2.5 s",
        "Cached input": "25 % of the input",
    }
    assert not any(chart.is_empty for chart in found)
    assert [curve.name for curve in found[0].curves] == ["m", "others"]
    assert found[0].columns[0].text.endswith("m: 0.2\nothers: 0.05")
    assert found[1].columns[0].text.endswith("success: 1.2k\nrejected: 2\nclient left: 1")
    assert [curve.style for curve in found[1].curves] == [f"outcome-{each}" for each in Outcome]
    assert found[1].columns[0].url.startswith("/console/logs?since=2026-09-21T00%3A00%3A00Z&until=")


def test_lines_beside_figures() -> None:
    span = Span(START, START + 24 * HOUR_US, HOUR_US)
    traffic = [measured(START + HOUR_US, ok=3, first_event_under_500=3)]
    found = sparklines(overview(HOUR_US, USED), Latency.of(span, traffic))
    assert found["requests"].startswith("M0.0 1.0L4.3 19.0")
    assert found["first_event"].startswith("M0.0 19.0L4.3 1.0L8.7 19.0")
    assert found["cost"].count("L") == 23
    assert not any(sparklines(overview(HOUR_US, {}), Latency.of(span, [])).values())


def test_without_requests() -> None:
    found = drawn(HOUR_US, {}, [])
    assert all(chart.is_empty for chart in found)
    assert found[0].title == "Units"
    assert found[3].summary == "no reply"


def test_units_where_nothing_has_a_price() -> None:
    used = {"requests": 1, "cost_micro": 12_500_000}
    first = drawn(HOUR_US, used, [])[0]
    assert (first.title, first.summary) == ("Units", "12.5")
    assert first.columns[0].text.endswith("m: 0.2\nothers: 12.3")


def test_a_relative_span_has_as_many_buckets_as_it_says() -> None:
    """A week had eight bars."""
    now = START + 10 * HOUR_US + 5
    for hours, step, number in ((1, HOUR_US, 1), (24, HOUR_US, 24), (7 * 24, DAY_US, 7)):
        span = Span.of(TimeRange(now - hours * HOUR_US, now, True))
        assert (span.step, len(span.starts)) == (step, number)
        assert span.starts[-1] <= now < span.until
    custom = Span.of(TimeRange(START + 5, START + HOUR_US + 5, False))
    assert list(custom.starts) == [START, START + HOUR_US]
