"""The charts of the overview: their curves, and their summaries in words."""

from __future__ import annotations

import pytest

from gateway.console.charts import CHARTS, bucket_label
from gateway.store.log.overview import DAY_US, Overview, TimeBucket
from gateway.store.log.usage import Metrics
from gateway.store.records import HOUR_US

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
    series = [
        TimeBucket(at=START, **used),
        *(TimeBucket(at=START + n * step) for n in range(1, 24)),
    ]
    return Overview(
        since=START,
        until=START + 24 * step,
        step=step,
        whole=Metrics(**used),
        series=tuple(series),
        keys=(),
        models=(),
        failures=(),
    )


@pytest.mark.parametrize("name", CHARTS)
@pytest.mark.parametrize("step", [HOUR_US, DAY_US])
def test_every_chart_has_its_curves(name: str, step: int) -> None:
    metric_chart = CHARTS[name]
    chart = metric_chart.build(overview(step, USED))
    assert chart.title == metric_chart.title
    assert [curve.legend.text for curve in chart.curves] == [row[0] for row in metric_chart.curves]
    assert not chart.is_empty
    assert metric_chart.build(overview(step, {})).is_empty


def test_summaries() -> None:
    assert {name: chart.summary(Metrics(**USED)) for name, chart in CHARTS.items()} == {
        "usd": "$0.2500",
        "requests": "1\u202f200, 3 of them failed",
        "tokens": "4\u202f000 in, 500 out",
        "units": "12.5",
        "times": "mean time to first token 500 ms, mean duration 2.5 s",
        "cache": "25 % of the input",
    }


def test_summaries_without_requests() -> None:
    assert CHARTS["times"].summary(Metrics()) == "no reply"
    assert CHARTS["cache"].summary(Metrics()) == "no input"


def test_the_label_of_a_bucket_is_its_hour_or_day() -> None:
    bucket = TimeBucket(at=START + 5 * HOUR_US)
    assert bucket_label(HOUR_US, bucket) == "05:00"
    assert bucket_label(DAY_US, bucket) == "Sep 21"
