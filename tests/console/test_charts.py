"""A chart is an image and nothing else: no script, nothing from elsewhere, text that stays text."""

from __future__ import annotations

from itertools import pairwise
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.console import charts
from gateway.console.charts import Colour, Series, line_chart, stacked_bars

HOURS = [f"{hour:02d}:00" for hour in range(24)]
NAMES = {"svg", "defs", "style", "title", "g", "rect", "path", "text", "circle"}


def whole(value: float) -> str:
    return f"{value:.0f}"


def drawn(name: str = "Succeeded") -> list[bytes]:
    good = Series(name, Colour.MAIN, [float(hour) for hour in range(24)])
    gaps = Series("Failed", Colour.BAD, [None if hour % 5 == 0 else 3.0 for hour in range(24)])
    return [chart("Requests", HOURS, [good, gaps], whole) for chart in (stacked_bars, line_chart)]


@pytest.mark.parametrize("svg", drawn(), ids=["stacked", "lines"])
def test_there_is_only_what_is_drawn(svg: bytes) -> None:
    root = ElementTree.fromstring(svg)
    elements = list(root.iter())
    assert {element.tag.rpartition("}")[2] for element in elements} <= NAMES
    attributes = {name for element in elements for name in element.attrib}
    assert not {name for name in attributes if name.startswith("on") or "href" in name}
    assert "style" not in attributes
    assert b"http" not in svg.replace(b'xmlns="http://www.w3.org/2000/svg"', b"")
    assert b"<!--" not in svg


def test_names_stay_text() -> None:
    hostile = "</svg><script>alert(1)</script>"
    for svg in drawn(hostile):
        texts = [element.text for element in ElementTree.fromstring(svg).iter()]
        assert hostile in texts
        assert b"<script" not in svg


def test_it_says_what_it_shows_and_has_both_schemes() -> None:
    for svg in drawn():
        assert b"<title>Requests</title>" in svg
        assert b"prefers-color-scheme:dark" in svg


@pytest.mark.parametrize("values", [[], [0.0], [None], [0.0, None]])
def test_nothing_at_all_can_be_drawn(values: list[float | None]) -> None:
    series = Series("Failed", Colour.BAD, values)
    for chart in (stacked_bars, line_chart):
        assert chart("Requests", HOURS[: len(values)], [series], whole).endswith(b"</svg>")


@given(st.floats(0, 1e15), st.sampled_from([1.0, 0.001]))
def test_the_axis_reaches_the_top_in_a_few_even_steps(top: float, least: float) -> None:
    axis = charts._axis(top, least)
    assert axis[0] == 0
    assert axis[-1] >= top * (1 - 1e-9)
    assert 2 <= len(axis) <= 6
    steps = [after - before for before, after in pairwise(axis)]
    assert min(steps) >= least * (1 - 1e-9)
    assert max(steps) - min(steps) <= 1e-9 * max(1.0, top)
