"""Draws a chart as an SVG that is shown as an image: no script, nothing from elsewhere, light or
dark as the reader's system is. It must not know what the figures mean.

Which figures of the overview are drawn, and how. It must not know pages, nor where figures come
from.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from math import ceil, floor, log10
from typing import TYPE_CHECKING, Any, Final

from gateway.admin.units import format_count, format_duration, format_units
from gateway.core.limits import MICRO_PER_UNIT
from gateway.store.overview import DAY_US, Overview, TimeBucket
from gateway.store.usage import Metrics

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element


WIDTH: Final = 480
HEIGHT: Final = 220
"""Of the view box: the page gives the size."""

_MOST_LABELS: Final = 7
"""On the time axis: more would run into each other."""

_STEPS: Final = 4
"""On the axis of values."""

_FONT: Final = "system-ui, sans-serif"

_LOOK: Final = """
:root { --ink: #566173; --line: #d5dae2;
  --main: #3b74c4; --second: #c07a1a; --third: #3d8f5f; --bad: #b5484a; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #a3aebd; --line: #38424f;
    --main: #6ba0ea; --second: #e0a04a; --third: #6cc18e; --bad: #e67f80; }
}
text { fill: var(--ink); }
text.no_data, .axis.x text { text-anchor: middle; }
.axis.y text { text-anchor: end; }
.background { fill: none; }
.line { fill: none; stroke: var(--line); stroke-width: 1; }
.axis.x .guide { display: none; }
"""


class Colour(StrEnum):
    """What a series looks like; the colours are those of the style sheet."""

    MAIN = "main"
    SECOND = "second"
    THIRD = "third"
    BAD = "bad"


@dataclass(frozen=True, slots=True)
class Series:
    """One figure over time, a value for each label; None where there is none."""

    name: str
    colour: Colour
    values: Sequence[float | None]


def stacked_bars(
    title: str,
    labels: Sequence[str],
    series: Sequence[Series],
    format_value: Callable[[float], str],
) -> bytes:
    """Bars that add up, of whole numbers. `told` spells a value for the axis."""
    return _draw_with_pygal("StackedBar", title, labels, series, format_value, 1, spacing=4)


def line_chart(
    title: str,
    labels: Sequence[str],
    series: Sequence[Series],
    format_value: Callable[[float], str],
    *,
    min_step: float = 0.001,
) -> bytes:
    """Lines from nought upwards, with gaps where there is no value; `least` is how far apart the
    figures of the axis are at least."""
    return _draw_with_pygal(
        "Line",
        title,
        labels,
        series,
        format_value,
        min_step,
        include_x_axis=True,
        allow_interruptions=True,
        dots_size=3,
        stroke_style={"width": 2},
    )


def _draw_with_pygal(
    kind: str,
    title: str,
    labels: Sequence[str],
    series: Sequence[Series],
    told: Callable[[float], str],
    least: float,
    **look: Any,
) -> bytes:
    pygal = _library()
    chart = getattr(pygal, kind)(
        width=WIDTH,
        height=HEIGHT,
        margin=6,
        style=_style(pygal),
        css=(f"inline:{_LOOK}{_colours(series)}",),
        js=(),
        no_prefix=True,
        legend_at_bottom=True,
        legend_box_size=10,
        truncate_legend=-1,
        truncate_label=-1,
        show_minor_x_labels=False,
        x_labels_major_every=-(-len(labels) // _MOST_LABELS) or 1,
        value_formatter=told,
        **look,
    )
    chart.title = None
    chart.x_labels = list(labels)
    chart.y_labels = _axis(_highest(series, kind == "StackedBar"), least)
    for each in series:
        chart.add(each.name, list(each.values))
    chart.add_xml_filter(lambda root: _plain(root, title))
    drawn: bytes = chart.render()
    return drawn


def _library() -> Any:
    """Imported for the first chart: most gateways that start will draw none soon."""
    import pygal  # type: ignore[import-untyped]  # it ships no types

    # It leaves a finder for its maps behind, which every import that fails would ask in a way that
    # Python warns of.
    sys.meta_path[:] = [
        finder for finder in sys.meta_path if not isinstance(finder, pygal.PluginImportFixer)
    ]
    return pygal


def _highest(series: Sequence[Series], added: bool) -> float:
    """Of all values or, where they are added up, of the sums."""
    columns = zip(*(each.values for each in series), strict=True)
    heights = ([value or 0 for value in column] for column in columns)
    return max((sum(each) if added else max(each) for each in heights), default=0)


def _axis(top: float, least: float) -> list[float]:
    """Round figures from nought to above the top, `_STEPS` or fewer and none of them closer than
    the least."""
    rough = max(top / _STEPS, least)
    magnitude = 10 ** floor(log10(rough))
    step = next(each for each in (1, 2, 2.5, 5, 10) if each * magnitude >= rough) * magnitude
    if step < 5 * least:
        step = ceil(step / least) * least
    return [step * number for number in range(max(1, ceil(top / step)) + 1)]


def _style(pygal: Any) -> Any:
    return pygal.style.Style(
        font_family=_FONT,
        label_font_size=11,
        major_label_font_size=11,
        legend_font_size=12,
        no_data_font_size=16,
    )


def _colours(series: Sequence[Series]) -> str:
    return "".join(
        f".color-{number} .line {{ stroke: var(--{each.colour}); stroke-width: 2; }}\n"
        f".color-{number} .rect, .color-{number} .dot, rect.color-{number}"
        f" {{ fill: var(--{each.colour}); }}\n"
        for number, each in enumerate(series)
    )


def _plain(root: Element, title: str) -> Element:
    """Without remarks and what only a script would use; its title is the chart's."""
    for parent in list(root.iter()):
        for child in list(parent):
            if (
                not isinstance(child.tag, str)
                or child.tag in ("script", "desc")
                or _is_overlay(child)
            ):
                parent.remove(child)
    named = root.find("title")
    if named is not None:
        named.text = title
    return root


def _is_overlay(element: Element) -> bool:
    """The box that a script would fill when the reader points at a value."""
    return "tooltip-overlay" in element.get("class", "").split()


_MILLION: Final = 1_000_000
_THOUSAND: Final = 1000

Draw = Callable[[str, Sequence[str], Sequence[Series], Callable[[float], str]], bytes]
Value = Callable[[Metrics], float | None]


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart over time: its curves with their values, and in words what comes of it in all."""

    title: str
    draw: Draw
    curves: Sequence[tuple[str, Colour, Value]]
    format_value: Callable[[float], str]
    total: Callable[[Metrics], str]

    def render(self, overview: Overview) -> bytes:
        """As an SVG."""
        labels = [bucket_label(overview.step, each) for each in overview.series]
        series = [
            Series(name, tone, [value(each) for each in overview.series])
            for name, tone, value in self.curves
        ]
        return self.draw(self.title, labels, series, self.format_value)


def bucket_label(step: int, each: TimeBucket) -> str:
    """When it began: its hour, or its day."""
    moment = datetime.fromtimestamp(each.at // _MILLION, UTC)
    return f"{moment:%b} {moment.day}" if step >= DAY_US else f"{moment:%H:%M}"


def _requests(figures: Metrics) -> str:
    return f"{format_count(figures.requests)}, {format_count(figures.errors)} of them failed"


def _tokens(figures: Metrics) -> str:
    return f"{format_count(figures.input_tokens)} in, {format_count(figures.output_tokens)} out"


def _times(figures: Metrics) -> str:
    first, whole = (
        format_duration(figures.mean_first_event_us),
        format_duration(figures.mean_total_us),
    )
    if first is None:
        return "no reply"
    return f"the first event after {first}, the whole reply after {whole}, on average"


def _cached(figures: Metrics) -> str:
    share = figures.cached_share
    return "no input" if share is None else f"{share * 100:.0f} % of the input"


def _seconds(microseconds: int | None) -> float | None:
    return None if microseconds is None else microseconds / _MILLION


def _percent(share: float | None) -> float | None:
    return None if share is None else share * 100


def _axis_value(number: float) -> str:
    """`950`, `1.5k`, `20M`: for an axis."""
    for scale, letter in ((_MILLION * _THOUSAND, "G"), (_MILLION, "M"), (_THOUSAND, "k")):
        if number >= scale:
            return f"{number / scale:g}{letter}"
    return f"{number:g}"


CHARTS: Final[Mapping[str, Chart]] = {
    "requests": Chart(
        "Requests",
        stacked_bars,
        (
            ("Succeeded", Colour.MAIN, lambda each: each.requests - each.errors),
            ("Failed", Colour.BAD, lambda each: each.errors),
        ),
        _axis_value,
        _requests,
    ),
    "tokens": Chart(
        "Tokens",
        stacked_bars,
        (
            ("Input", Colour.MAIN, lambda each: each.input_tokens - each.cache_read_tokens),
            ("Input from the cache", Colour.THIRD, lambda each: each.cache_read_tokens),
            ("Output", Colour.SECOND, lambda each: each.output_tokens),
        ),
        _axis_value,
        _tokens,
    ),
    "units": Chart(
        "Units",
        stacked_bars,
        (("Units", Colour.MAIN, lambda each: each.cost_micro / MICRO_PER_UNIT),),
        _axis_value,
        lambda figures: format_units(figures.cost_micro),
    ),
    "times": Chart(
        "Time",
        line_chart,
        (
            ("First event", Colour.MAIN, lambda each: _seconds(each.mean_first_event_us)),
            ("Whole reply", Colour.SECOND, lambda each: _seconds(each.mean_total_us)),
        ),
        lambda seconds: format_duration(round(seconds * _MILLION)) or "",
        _times,
    ),
    "cache": Chart(
        "Input read from the cache",
        partial(line_chart, min_step=25),
        (("Share of the input", Colour.THIRD, lambda each: _percent(each.cached_share)),),
        lambda percent: f"{percent:g} %",
        _cached,
    ),
}
"""By the name that its address has."""
