"""Which figures of the overview are drawn, and how. It must not know pages, nor where figures come
from.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Final

from gateway.admin.figures import format_count, format_duration, format_units
from gateway.console.charts import Series, Colour, line_chart, stacked_bars
from gateway.core.limits import MICRO_PER_UNIT
from gateway.store.overview import DAY_US, Metrics, Overview, TimeBucket

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
    first, whole = format_duration(figures.mean_first_event_us), format_duration(figures.mean_total_us)
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
