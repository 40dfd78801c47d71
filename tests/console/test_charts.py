"""A chart has every value, and is an image and nothing else: no script, no links, escaped text."""

from __future__ import annotations

from itertools import pairwise
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.console.charts import (
    HEIGHT,
    WIDTH,
    Chart,
    Colour,
    Kind,
    Series,
    axis_steps,
    build_chart,
    short_number,
)
from gateway.console.rendering import environment

HOURS = [f"{hour:02d}:00" for hour in range(24)]
ELEMENTS = {"svg", "style", "title", "g", "rect", "path", "text", "circle"}
NAMESPACE = "{http://www.w3.org/2000/svg}"


TEMPLATE = environment().get_template("chart.svg")


def draw(chart: Chart) -> str:
    return TEMPLATE.render(chart=chart, width=WIDTH, height=HEIGHT)


def requests(kind: Kind, name: str = "Succeeded") -> Chart:
    succeeded = Series(name, Colour.MAIN, [float(hour) for hour in range(24)])
    with_gaps = [None if hour % 5 == 0 else 3.0 for hour in range(24)]
    failed = Series("Failed", Colour.BAD, with_gaps)
    return build_chart("Requests", HOURS, [succeeded, failed], short_number, kind=kind)


@pytest.mark.parametrize("kind", Kind)
def test_elements_and_attributes(kind: Kind) -> None:
    svg = draw(requests(kind))
    elements = list(ElementTree.fromstring(svg).iter())
    assert {element.tag.removeprefix(NAMESPACE) for element in elements} == (
        ELEMENTS - {"circle"} if kind is Kind.BARS else ELEMENTS
    )
    attributes = {name for element in elements for name in element.attrib}
    assert not {name for name in attributes if name.startswith("on") or "href" in name}
    assert "style" not in attributes
    assert "http" not in svg.replace('xmlns="http://www.w3.org/2000/svg"', "")


@pytest.mark.parametrize("kind", Kind)
def test_names_are_escaped(kind: Kind) -> None:
    hostile = "</svg><script>alert(1)</script>"
    svg = draw(requests(kind, hostile))
    texts = [element.text for element in ElementTree.fromstring(svg).iter()]
    assert hostile in texts
    assert "<script" not in svg


@pytest.mark.parametrize("kind", Kind)
def test_title_legend_tooltips_and_both_schemes(kind: Kind) -> None:
    svg = draw(requests(kind))
    assert ElementTree.fromstring(svg)[0].text == "Requests"
    assert ">Succeeded</text>" in svg
    assert "<title>07:00, Succeeded: 7</title>" in svg
    assert "prefers-color-scheme: dark" in svg
    assert "No data" not in svg


def test_bars_are_stacked() -> None:
    series = [Series(name, Colour.MAIN, [1.0, 3.0]) for name in ("a", "b")]
    chart = build_chart("Title", ["x", "y"], series, short_number)
    lower, upper = (curve.marks for curve in chart.curves)
    assert [mark.text for mark in lower] == ["x, a: 1", "y, a: 3"]
    for below, above in zip(lower, upper, strict=True):
        assert (above.x, above.height) == (below.x, below.height)
        assert above.y == pytest.approx(below.y - above.height, abs=0.2)
    assert lower[1].height == pytest.approx(3 * lower[0].height, abs=0.2)


def test_a_line_has_gaps() -> None:
    values = [1.0, 2.0, None, 4.0]
    series = [Series("a", Colour.MAIN, values)]
    (curve,) = build_chart("Title", HOURS[:4], series, short_number, kind=Kind.LINES).curves
    assert len(curve.marks) == 3
    assert (curve.path.count("M"), curve.path.count("L")) == (2, 1)


@pytest.mark.parametrize("values", [[], [0.0], [None], [0.0, None]])
@pytest.mark.parametrize("kind", Kind)
def test_without_values(values: list[float | None], kind: Kind) -> None:
    series = Series("Failed", Colour.BAD, values)
    labels = HOURS[: len(values)]
    svg = draw(build_chart("Requests", labels, [series], short_number, kind=kind))
    assert ("No data" in svg) == (kind is Kind.BARS or 0.0 not in values)


@given(st.floats(0, 1e15), st.sampled_from([1.0, 0.001]))
def test_the_axis_has_a_few_even_steps(highest: float, min_step: float) -> None:
    axis = axis_steps(highest, min_step)
    assert axis[0] == 0
    assert axis[-1] >= highest * (1 - 1e-9)
    assert 2 <= len(axis) <= 6
    steps = [after - before for before, after in pairwise(axis)]
    assert min(steps) >= min_step * (1 - 1e-9)
    assert max(steps) - min(steps) <= 1e-9 * max(1.0, highest)
