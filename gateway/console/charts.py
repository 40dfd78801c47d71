"""Charts of metrics over time: where everything is that `templates/chart.svg` draws, and the charts
of the overview.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from math import ceil, floor, log10
from typing import Final

from gateway.admin.units import format_count, format_duration, format_units, format_usd
from gateway.core.limits import MICRO_PER_UNIT
from gateway.store.log.overview import Overview, TimeBucket
from gateway.store.log.usage import Metrics
from gateway.store.records import DAY_US

WIDTH: Final = 480
HEIGHT: Final = 220
"""The height of the view box: the page scales it."""

_TOP: Final = 12
_BASELINE: Final = 166
_RIGHT: Final = WIDTH - 28  # half of the last label follows
_MIN_LEFT: Final = 28  # the same of the first one
_CHARACTER_WIDTH: Final = 9.0
_BAR_SHARE: Final = 0.7  # of the width of a column

_MAX_X_LABELS: Final = 7
_MAX_Y_STEPS: Final = 4


class Colour(StrEnum):
    """A class of the template's style sheet."""

    MAIN = "main"
    SECOND = "second"
    THIRD = "third"
    BAD = "bad"


class Kind(StrEnum):
    """Bars are stacked; lines have gaps where there is no value."""

    BARS = "bars"
    LINES = "lines"


@dataclass(frozen=True, slots=True)
class Series:
    """A value for each label, None if there is none."""

    name: str
    colour: Colour
    values: Sequence[float | None]


@dataclass(frozen=True, slots=True)
class Label:
    """A text of an axis or of the legend, and its coordinate."""

    at: float
    text: str


@dataclass(frozen=True, slots=True)
class Mark:
    """A bar, from its upper left corner, or a dot around its centre; the text is the tooltip."""

    x: float
    y: float
    height: float
    text: str


@dataclass(frozen=True, slots=True)
class Curve:
    """A series as it is drawn; `path` goes through the dots of lines."""

    colour: Colour
    legend: Label
    marks: Sequence[Mark]
    path: str


@dataclass(frozen=True, slots=True)
class Chart:
    """Everything that the template draws."""

    title: str
    kind: Kind
    left: float
    right: float
    bar_width: float
    x_axis: Sequence[Label]
    y_axis: Sequence[Label]
    curves: Sequence[Curve]

    @property
    def is_empty(self) -> bool:
        return not any(curve.marks for curve in self.curves)


def build_chart(
    title: str,
    labels: Sequence[str],
    series: Sequence[Series],
    format_value: Callable[[float], str],
    *,
    kind: Kind = Kind.BARS,
    min_step: float = 1,
) -> Chart:
    """The y axis begins at 0 and has steps of `min_step` or more."""
    steps = axis_steps(_highest(series, kind), min_step)
    names = [format_value(step) for step in steps]
    left = max(_MIN_LEFT, 10 + _CHARACTER_WIDTH * max(map(len, names)))
    column = (_RIGHT - left) / max(1, len(labels))
    scale = (_BASELINE - _TOP) / steps[-1]
    is_bars = kind is Kind.BARS
    first_x = left + column * ((1 - _BAR_SHARE) / 2 if is_bars else 0.5)
    bases = [0.0] * len(labels)
    legend_at = left
    curves = []
    for one in series:
        marks: list[Mark | None] = []
        for number, value in enumerate(one.values):
            if value is None or (is_bars and not value):
                marks.append(None)
                continue
            top = _BASELINE - (bases[number] + value) * scale
            text = f"{labels[number]}, {one.name}: {format_value(value)}"
            marks.append(_mark(first_x + number * column, top, value * scale, text))
            bases[number] += value if is_bars else 0
        legend = Label(round(legend_at, 1), one.name)
        drawn = [mark for mark in marks if mark is not None]
        curves.append(Curve(one.colour, legend, drawn, "" if is_bars else _path(marks)))
        legend_at += 30 + _CHARACTER_WIDTH * len(one.name)
    every = ceil(len(labels) / _MAX_X_LABELS) or 1
    return Chart(
        title=title,
        kind=kind,
        left=round(left, 1),
        right=_RIGHT,
        bar_width=round(column * _BAR_SHARE, 1),
        x_axis=[
            Label(round(left + column * (number + 0.5), 1), labels[number])
            for number in range(0, len(labels), every)
        ],
        y_axis=[
            Label(round(_BASELINE - step * scale, 1), name)
            for step, name in zip(steps, names, strict=True)
        ],
        curves=curves,
    )


def _highest(series: Sequence[Series], kind: Kind) -> float:
    columns = zip(*(one.values for one in series), strict=True)
    combine = sum if kind is Kind.BARS else max
    return max((combine(value or 0 for value in column) for column in columns), default=0)


def axis_steps(highest: float, min_step: float) -> list[float]:
    """Round numbers from 0 to at least the highest value."""
    rough = max(highest / _MAX_Y_STEPS, min_step)
    magnitude = 10 ** floor(log10(rough))
    step = next(n for n in (1, 2, 2.5, 5, 10) if n * magnitude >= rough) * magnitude
    if step < 5 * min_step:
        step = ceil(step / min_step) * min_step
    return [step * number for number in range(max(1, ceil(highest / step)) + 1)]


def _mark(x: float, y: float, height: float, text: str) -> Mark:
    return Mark(round(x, 1), round(y, 1), round(height, 1), text)


def _path(marks: Sequence[Mark | None]) -> str:
    """`M` begins a line, `L` continues it."""
    previous = [None, *marks]
    return "".join(
        f"{'L' if before else 'M'}{mark.x} {mark.y}"
        for before, mark in zip(previous, marks, strict=False)
        if mark is not None
    )


@dataclass(frozen=True, slots=True)
class MetricChart:
    """A chart of the overview; `summary` describes it in words."""

    title: str
    curves: Sequence[tuple[str, Colour, Callable[[Metrics], float | None]]]
    summary: Callable[[Metrics], str]
    format_value: Callable[[float], str]
    kind: Kind = Kind.BARS
    min_step: float = 1

    def build(self, overview: Overview) -> Chart:
        buckets = overview.series
        return build_chart(
            self.title,
            [bucket_label(overview.step, bucket) for bucket in buckets],
            [
                Series(name, colour, [value(bucket) for bucket in buckets])
                for name, colour, value in self.curves
            ],
            self.format_value,
            kind=self.kind,
            min_step=self.min_step,
        )


def bucket_label(step: int, bucket: TimeBucket) -> str:
    """The hour or the day at which it begins."""
    moment = datetime.fromtimestamp(bucket.at // 1_000_000, UTC)
    return f"{moment:%b} {moment.day}" if step >= DAY_US else f"{moment:%H:%M}"


def short_number(number: float) -> str:
    """`950`, `1.5k`, `20M`."""
    for scale, letter in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if number >= scale:
            return f"{number / scale:g}{letter}"
    return f"{number:g}"


def _latency_summary(metrics: Metrics) -> str:
    first = format_duration(metrics.mean_first_event_us)
    duration = format_duration(metrics.mean_total_us)
    if first is None:
        return "no reply"
    return f"mean time to first token {first}, mean duration {duration}"


def _cache_summary(metrics: Metrics) -> str:
    share = metrics.cached_share
    return "no input" if share is None else f"{share * 100:.0f} % of the input"


def _times(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


CHARTS: Final[Mapping[str, MetricChart]] = {
    "usd": MetricChart(
        "US dollars",
        (("US dollars", Colour.MAIN, lambda m: m.usd_micro / MICRO_PER_UNIT),),
        lambda m: format_usd(m.usd_micro),
        short_number,
        min_step=0.01,
    ),
    "units": MetricChart(
        "Units",
        (("Units", Colour.MAIN, lambda m: m.cost_micro / MICRO_PER_UNIT),),
        lambda m: format_units(m.cost_micro),
        short_number,
    ),
    "requests": MetricChart(
        "Requests",
        (
            ("Succeeded", Colour.MAIN, lambda m: m.requests - m.errors),
            ("Failed", Colour.BAD, lambda m: m.errors),
        ),
        lambda m: f"{format_count(m.requests)}, {format_count(m.errors)} of them failed",
        short_number,
    ),
    "tokens": MetricChart(
        "Tokens",
        (
            ("Input", Colour.MAIN, lambda m: m.input_tokens - m.cache_read_tokens),
            ("Cached input", Colour.THIRD, lambda m: m.cache_read_tokens),
            ("Output", Colour.SECOND, lambda m: m.output_tokens),
        ),
        lambda m: f"{format_count(m.input_tokens)} in, {format_count(m.output_tokens)} out",
        short_number,
    ),
    "times": MetricChart(
        "Latency",
        (
            ("Time to first token", Colour.MAIN, lambda m: _times(m.mean_first_event_us, 1e-6)),
            ("Duration", Colour.SECOND, lambda m: _times(m.mean_total_us, 1e-6)),
        ),
        _latency_summary,
        lambda seconds: format_duration(round(seconds * 1e6)) or "",
        kind=Kind.LINES,
        min_step=0.001,
    ),
    "cache": MetricChart(
        "Cached input",
        (("Share of the input", Colour.THIRD, lambda m: _times(m.cached_share, 100)),),
        _cache_summary,
        lambda percent: f"{percent:.3g} %",
        kind=Kind.LINES,
        min_step=25,
    ),
}
"""Charts by the name in the path of the image."""
