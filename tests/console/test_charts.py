"""A chart has every value, and is an image and nothing else: no script, no links, escaped text."""

from __future__ import annotations

import re
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.console.charts import (
    BASELINE,
    Bucket,
    Chart,
    Kind,
    Series,
    axis_steps,
    bucket_label,
    build_chart,
    short_number,
)
from gateway.console.rendering import environment
from gateway.store.records import DAY_US, HOUR_US

HOURS = [Bucket(f"{hour:02d}:00", f"/logs?hour={hour}&more") for hour in range(24)]
ELEMENTS = {"svg", "title", "g", "rect", "path", "text"}

TEMPLATE = environment().from_string('{% from "chart.html" import figure %}{{ figure(chart) }}')


def draw(chart: Chart) -> str:
    return TEMPLATE.render(chart=chart)


def svg_of(html: str) -> ElementTree.Element:
    return ElementTree.fromstring(html[html.index("<svg") : html.index("</svg>") + 6])


def requests(kind: Kind, name: str = "Succeeded") -> Chart:
    succeeded = Series(name, "c1", [float(hour) for hour in range(24)], "/logs?all")
    with_gaps = [None if hour % 5 == 0 else 3.0 for hour in range(24)]
    failed = Series("Failed", "c2", with_gaps)
    return build_chart(
        "Requests", HOURS, [succeeded, failed], short_number, summary="276 in all", kind=kind
    )


@pytest.mark.parametrize("kind", Kind)
def test_elements_and_attributes(kind: Kind) -> None:
    elements = list(svg_of(draw(requests(kind))).iter())
    assert {element.tag for element in elements} == ELEMENTS
    attributes = {name for element in elements for name in element.attrib}
    assert not {name for name in attributes if name.startswith("on") or "href" in name}
    assert "style" not in attributes


@pytest.mark.parametrize("kind", Kind)
def test_names_are_escaped(kind: Kind) -> None:
    hostile = "</svg><script>alert(1)</script>"
    html = draw(requests(kind, hostile))
    assert f"07:00\n{hostile}: 7\nFailed: 3" in [each.text for each in svg_of(html).iter()]
    assert "<script" not in html


@pytest.mark.parametrize("kind", Kind)
def test_title_legend_and_what_the_pointer_finds(kind: Kind) -> None:
    html = draw(requests(kind))
    svg = svg_of(html)
    assert svg.attrib["aria-label"] == "Requests: 276 in all"
    assert '<li class="c1"><a class="raw" href="/logs?all">Succeeded</a></li>' in html
    assert '<li class="c2"><span class="raw">Failed</span></li>' in html
    columns = svg.findall("rect")
    assert [column.attrib["data-url"] for column in columns] == [hour.url for hour in HOURS]
    assert columns[7].findtext("title") == "07:00\nSucceeded: 7\nFailed: 3"
    assert columns[5].findtext("title") == "05:00\nSucceeded: 5"  # nothing has failed
    assert "No data" not in html


def bars(path: str) -> list[tuple[float, float, float]]:
    """x, bottom and height of each bar."""
    found = re.findall(r"M([\d.]+) ([\d.]+)h[\d.]+v-([\d.]+)h-[\d.]+z", path)
    assert "".join(found[0]) and len(found) == path.count("M")
    return [(float(x), float(y), float(height)) for x, y, height in found]


def test_bars_are_stacked() -> None:
    series = [Series(name, "c1", [1.0, 3.0]) for name in ("a", "b")]
    chart = build_chart("Title", HOURS[:2], series, short_number)
    lower, upper = (bars(curve.path) for curve in chart.curves)
    for below, above in zip(lower, upper, strict=True):
        assert (above[0], above[2]) == (below[0], below[2])
        assert below[1] == BASELINE
        assert above[1] == pytest.approx(below[1] - below[2], abs=0.02)
    assert lower[1][2] == pytest.approx(3 * lower[0][2], abs=0.05)


def test_a_line_has_gaps() -> None:
    series = [Series("a", "c1", [1.0, 2.0, None, 4.0])]
    (curve,) = build_chart("Title", HOURS[:4], series, short_number, kind=Kind.LINES).curves
    assert (curve.path.count("M"), curve.path.count("L"), curve.path.count("h0")) == (2, 1, 3)


def test_a_series_may_write_its_values_otherwise_than_the_axis() -> None:
    series = [
        Series("p95", "c1", [50.0, None], describe=lambda _: "< 100"),
        Series("mean", "c2", [7.0, 9.0]),
    ]
    chart = build_chart("Title", HOURS[:2], series, short_number, kind=Kind.LINES)
    assert chart.y_axis[0].text == "0"
    assert not any("<" in label.text for label in chart.y_axis)
    assert [column.text.split("\n")[1:] for column in chart.columns] == [
        ["p95: < 100", "mean: 7"],
        ["mean: 9"],
    ]


@pytest.mark.parametrize("values", [[], [0.0], [None], [0.0, None]])
@pytest.mark.parametrize("kind", Kind)
def test_without_values(values: list[float | None], kind: Kind) -> None:
    series = Series("Failed", "c1", values)
    html = draw(build_chart("Requests", HOURS[: len(values)], [series], short_number, kind=kind))
    assert ("No data" in html) == (kind is Kind.BARS or 0.0 not in values)


@given(st.floats(0, 1e15), st.sampled_from([1.0, 0.001]))
def test_the_axis_has_a_few_even_steps(highest: float, min_step: float) -> None:
    axis = axis_steps(highest, min_step)
    assert axis[0] == 0
    assert axis[-1] >= highest * (1 - 1e-9)
    assert 2 <= len(axis) <= 6
    steps = [after - before for before, after in pairwise(axis)]
    assert min(steps) >= min_step * (1 - 1e-9)
    assert max(steps) - min(steps) <= 1e-9 * max(1.0, highest)


def test_the_label_of_a_bucket_is_its_hour_or_day() -> None:
    at = 1_790_000_000_000_000 // DAY_US * DAY_US + 5 * HOUR_US
    assert bucket_label(HOUR_US, at) == "05:00"
    assert bucket_label(DAY_US, at) == "Sep 21"
