"""Which figures of the overview are drawn, and how. It must not know pages, nor where figures come
from.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Final

from gateway.admin.figures import grouped, lasting, units
from gateway.console.charts import Series, Tone, lines, stacked
from gateway.core.limits import MICRO
from gateway.store.overview import DAY, Figures, Overview, Slice

_MILLION: Final = 1_000_000
_THOUSAND: Final = 1000

Draw = Callable[[str, Sequence[str], Sequence[Series], Callable[[float], str]], bytes]
Value = Callable[[Figures], float | None]


@dataclass(frozen=True, slots=True)
class Plot:
    """A chart over time: its curves with their values, and in words what comes of it in all."""

    title: str
    draw: Draw
    curves: Sequence[tuple[str, Tone, Value]]
    spelled: Callable[[float], str]
    in_all: Callable[[Figures], str]

    def drawn(self, overview: Overview) -> bytes:
        """As an SVG."""
        labels = [label(overview.step, each) for each in overview.series]
        series = [
            Series(name, tone, [value(each) for each in overview.series])
            for name, tone, value in self.curves
        ]
        return self.draw(self.title, labels, series, self.spelled)


def label(step: int, each: Slice) -> str:
    """When it began: its hour, or its day."""
    moment = datetime.fromtimestamp(each.at // _MILLION, UTC)
    return f"{moment:%b} {moment.day}" if step >= DAY else f"{moment:%H:%M}"


def _requests(figures: Figures) -> str:
    return f"{grouped(figures.requests)}, {grouped(figures.errors)} of them failed"


def _tokens(figures: Figures) -> str:
    return f"{grouped(figures.input_tokens)} in, {grouped(figures.output_tokens)} out"


def _times(figures: Figures) -> str:
    first, whole = lasting(figures.mean_first_event_us), lasting(figures.mean_total_us)
    if first is None:
        return "no reply"
    return f"the first event after {first}, the whole reply after {whole}, on average"


def _cached(figures: Figures) -> str:
    share = figures.cached_share
    return "no input" if share is None else f"{share * 100:.0f} % of the input"


def _seconds(microseconds: int | None) -> float | None:
    return None if microseconds is None else microseconds / _MILLION


def _percent(share: float | None) -> float | None:
    return None if share is None else share * 100


def _short(number: float) -> str:
    """`950`, `1.5k`, `20M`: for an axis."""
    for scale, letter in ((_MILLION * _THOUSAND, "G"), (_MILLION, "M"), (_THOUSAND, "k")):
        if number >= scale:
            return f"{number / scale:g}{letter}"
    return f"{number:g}"


PLOTS: Final[Mapping[str, Plot]] = {
    "requests": Plot(
        "Requests",
        stacked,
        (
            ("Succeeded", Tone.MAIN, lambda each: each.requests - each.errors),
            ("Failed", Tone.BAD, lambda each: each.errors),
        ),
        _short,
        _requests,
    ),
    "tokens": Plot(
        "Tokens",
        stacked,
        (
            ("Input", Tone.MAIN, lambda each: each.input_tokens - each.cache_read_tokens),
            ("Input from the cache", Tone.THIRD, lambda each: each.cache_read_tokens),
            ("Output", Tone.SECOND, lambda each: each.output_tokens),
        ),
        _short,
        _tokens,
    ),
    "units": Plot(
        "Units",
        stacked,
        (("Units", Tone.MAIN, lambda each: each.cost_micro / MICRO),),
        _short,
        lambda figures: units(figures.cost_micro),
    ),
    "times": Plot(
        "Time",
        lines,
        (
            ("First event", Tone.MAIN, lambda each: _seconds(each.mean_first_event_us)),
            ("Whole reply", Tone.SECOND, lambda each: _seconds(each.mean_total_us)),
        ),
        lambda seconds: lasting(round(seconds * _MILLION)) or "",
        _times,
    ),
    "cache": Plot(
        "Input read from the cache",
        partial(lines, least=25),
        (("Share of the input", Tone.THIRD, lambda each: _percent(each.cached_share)),),
        lambda percent: f"{percent:g} %",
        _cached,
    ),
}
"""By the name that its address has."""
