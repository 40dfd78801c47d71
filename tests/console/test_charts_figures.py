"""Every chart of the overview can be drawn, and says in words what it shows."""

from __future__ import annotations

import pytest

from gateway.console.charts import CHARTS, Chart, bucket_label
from gateway.store.overview import DAY_US, Overview, TimeBucket
from gateway.store.records import HOUR_US
from gateway.store.usage import Metrics

START = 1_790_000_000_000_000 // DAY_US * DAY_US

USED = {
    "requests": 1200,
    "errors": 3,
    "input_tokens": 4000,
    "cache_read_tokens": 1000,
    "output_tokens": 500,
    "cost_micro": 12_500_000,
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


@pytest.mark.parametrize("plot", CHARTS.values(), ids=CHARTS)
@pytest.mark.parametrize("used", [USED, {}], ids=["used", "unused"])
@pytest.mark.parametrize("step", [HOUR_US, DAY_US])
def test_it_is_drawn(plot: Chart, used: dict[str, int], step: int) -> None:
    drawn = plot.render(overview(step, used)).decode()
    for name, _, _ in plot.curves:
        assert f">{name}</text>" in drawn
    assert f"<title>{plot.title}</title>" in drawn


def test_what_comes_of_it_in_words() -> None:
    told = {name: plot.total(Metrics(**USED)) for name, plot in CHARTS.items()}
    assert told == {
        "requests": "1\u202f200, 3 of them failed",
        "tokens": "4\u202f000 in, 500 out",
        "units": "12.5",
        "times": "the first event after 500 ms, the whole reply after 2.5 s, on average",
        "cache": "25 % of the input",
    }


def test_nothing_in_words() -> None:
    assert CHARTS["times"].total(Metrics()) == "no reply"
    assert CHARTS["cache"].total(Metrics()) == "no input"


def test_a_slice_is_called_by_its_hour_or_its_day() -> None:
    each = TimeBucket(at=START + 5 * HOUR_US)
    assert bucket_label(HOUR_US, each) == "05:00"
    assert bucket_label(DAY_US, each) == "Sep 21"
