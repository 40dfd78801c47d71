"""Charts of metrics over time: where everything is that `templates/chart.html` draws."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from math import ceil, floor, log10
from typing import Final

from gateway.store.records import DAY_US

WIDTH: Final = 480
HEIGHT: Final = 192
"""The size of the view box: the page scales it."""

TOP: Final = 12
BASELINE: Final = 166
_RIGHT: Final = WIDTH - 28  # half of the last label follows
_MIN_LEFT: Final = 28  # the same of the first one
_CHARACTER_WIDTH: Final = 9.0
_BAR_SHARE: Final = 0.7  # of the width of a column

SPARK_WIDTH: Final = 100
SPARK_HEIGHT: Final = 20

_MAX_X_LABELS: Final = 7
_MAX_Y_STEPS: Final = 4


class Kind(StrEnum):
    """Bars are stacked; lines have gaps where there is no value."""

    BARS = "bars"
    LINES = "lines"


@dataclass(frozen=True, slots=True)
class Bucket:
    """A place of the x axis; `url` has what happened there."""

    label: str
    url: str = ""


@dataclass(frozen=True, slots=True)
class Series:
    """A value for each bucket, None if there is none. `style` is a class of the style sheet, an
    outcome or c1 to c6; `url` has what the series is of. `describe` writes its values, if not as
    the axis has them."""

    name: str
    style: str
    values: Sequence[float | None]
    url: str = ""
    describe: Callable[[float], str] | None = None


@dataclass(frozen=True, slots=True)
class Label:
    """A text of an axis, and its coordinate."""

    at: float
    text: str


@dataclass(frozen=True, slots=True)
class Column:
    """What the pointer finds in a bucket: a line of `text` for it, and one for each value."""

    x: float
    text: str
    url: str


@dataclass(frozen=True, slots=True)
class Curve:
    """A series as it is drawn; `path` is that of an SVG."""

    name: str
    style: str
    url: str
    path: str


@dataclass(frozen=True, slots=True)
class Chart:
    """Everything that the template draws; `summary` describes it in words."""

    title: str
    summary: str
    kind: Kind
    left: float
    right: float
    column_width: float
    x_axis: Sequence[Label]
    y_axis: Sequence[Label]
    curves: Sequence[Curve]
    columns: Sequence[Column]

    @property
    def is_empty(self) -> bool:
        return not any(curve.path for curve in self.curves)


def build_chart(
    title: str,
    buckets: Sequence[Bucket],
    series: Sequence[Series],
    format_value: Callable[[float], str],
    *,
    summary: str = "",
    kind: Kind = Kind.BARS,
    min_step: float = 1,
) -> Chart:
    """The y axis begins at 0 and has steps of `min_step` or more."""
    steps = axis_steps(_highest(series, kind), min_step)
    names = [format_value(step) for step in steps]
    left = max(_MIN_LEFT, 10 + _CHARACTER_WIDTH * max(map(len, names)))
    column = (_RIGHT - left) / max(1, len(buckets))
    scale = (BASELINE - TOP) / steps[-1]
    every = ceil(len(buckets) / _MAX_X_LABELS) or 1
    draw = _draw_bars if kind is Kind.BARS else _draw_lines
    paths = draw([one.values for one in series], left, column, scale)
    return Chart(
        title=title,
        summary=summary,
        kind=kind,
        left=round(left, 1),
        right=_RIGHT,
        column_width=round(column, 2),
        x_axis=[
            Label(round(left + column * (number + 0.5), 1), buckets[number].label)
            for number in range(0, len(buckets), every)
        ],
        y_axis=[
            Label(round(BASELINE - step * scale, 1), name)
            for step, name in zip(steps, names, strict=True)
        ],
        curves=[
            Curve(one.name, one.style, one.url, path)
            for one, path in zip(series, paths, strict=True)
        ],
        columns=[
            Column(
                round(left + column * number, 1),
                _describe(bucket, number, series, format_value),
                bucket.url,
            )
            for number, bucket in enumerate(buckets)
        ],
    )


def _describe(
    bucket: Bucket, number: int, series: Sequence[Series], format_value: Callable[[float], str]
) -> str:
    lines = (
        f"{one.name}: {(one.describe or format_value)(value)}"
        for one in series
        if (value := one.values[number])
    )
    return "\n".join((bucket.label, *lines))


def _draw_bars(
    values: Sequence[Sequence[float | None]], left: float, column: float, scale: float
) -> list[str]:
    """Each series on top of the ones before it."""
    width = round(column * _BAR_SHARE, 2)
    bases = [BASELINE * 1.0] * max(map(len, values), default=0)
    paths = []
    for one in values:
        parts = []
        for number, value in enumerate(one):
            if value:
                height = round(value * scale, 2)
                x = round(left + column * (number + (1 - _BAR_SHARE) / 2), 1)
                parts.append(f"M{x} {bases[number]:.2f}h{width}v{-height}h{-width}z")
                bases[number] -= height
        paths.append("".join(parts))
    return paths


def _draw_lines(
    values: Sequence[Sequence[float | None]], left: float, column: float, scale: float
) -> list[str]:
    """`M` begins a line, `L` continues it; `h0` makes a dot of a value alone."""
    paths = []
    for one in values:
        parts: list[str] = []
        before: float | None = None
        for number, value in enumerate(one):
            if value is not None:
                x, y = left + column * (number + 0.5), BASELINE - value * scale
                parts.append(f"{'M' if before is None else 'L'}{x:.1f} {y:.1f}h0")
            before = value
        paths.append("".join(parts))
    return paths


def sparkline(values: Sequence[float | None]) -> str:
    """The path of a line of `SPARK_WIDTH` by `SPARK_HEIGHT` from 0 to the highest value; empty
    where there is nothing to compare."""
    highest = max((value or 0 for value in values), default=0)
    if len(values) < 2 or not highest:
        return ""
    column, scale = SPARK_WIDTH / (len(values) - 1), (SPARK_HEIGHT - 2) / highest
    parts: list[str] = []
    for number, value in enumerate(values):
        letter = "L" if parts else "M"
        y = SPARK_HEIGHT - 1 - (value or 0) * scale
        parts.append(f"{letter}{column * number:.1f} {y:.1f}")
    return "".join(parts)


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


def bucket_label(step: int, at: int) -> str:
    """The time or the day at which a bucket of `step` µs begins."""
    moment = datetime.fromtimestamp(at // 1_000_000, UTC)
    return f"{moment:%b} {moment.day}" if step >= DAY_US else f"{moment:%H:%M}"


def short_number(number: float) -> str:
    """`950`, `1.5k`, `20M`."""
    for scale, letter in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if number >= scale:
            return f"{number / scale:.3g}{letter}"
    return f"{number:.3g}"
