"""The sums of traffic counted again from rows of the request log, as expressions of both databases:
the same as `gateway.store.log.traffic_sums` in SQL."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from sqlalchemy import ColumnElement, and_, case, func, literal

from gateway.store.log.expressions import ROW_COUNTS, sum_of
from gateway.store.log.outcomes import is_of_kind
from gateway.store.measures import HISTOGRAMS, MEASURES, OutcomeKind, histogram_columns
from gateway.store.records import STEP_US, USAGE_COUNTS
from gateway.store.schema import requests

_row = requests.c
_STEP: Final = literal(STEP_US, literal_execute=True)
_THOUSAND: Final = literal(1000, literal_execute=True)
SLOT_KEY: Final[Mapping[str, ColumnElement[Any]]] = {
    # Literals: a server would take two parameters for two different expressions.
    "start": _row.started_at // _STEP * _STEP,
    "model": func.coalesce(_row.catalog_model, literal("", literal_execute=True)),
    "channel": func.coalesce(_row.channel, literal("", literal_execute=True)),
}
"""The slot that a row of `requests` is counted in."""

_STREAM_MS: Final = (_row.total_us - _row.first_event_us) // _THOUSAND


def _count_if(*conditions: ColumnElement[bool]) -> ColumnElement[int]:
    return sum_of(case((and_(*conditions), 1), else_=0))


def _histogram(
    name: str, value: ColumnElement[int], unit: int, *where: ColumnElement[bool]
) -> Iterator[tuple[str, ColumnElement[int]]]:
    bounds = [bound * unit for bound in HISTOGRAMS[name]]
    limits = zip((None, *bounds), (*bounds, None), strict=True)
    for column, (low, high) in zip(histogram_columns(name), limits, strict=True):
        above = [] if low is None else [value >= low]
        below = [] if high is None else [value < high]
        yield column, _count_if(*where, *above, *below)


def _terms() -> Iterator[tuple[str, ColumnElement[int]]]:
    for name in USAGE_COUNTS:
        yield name, sum_of(ROW_COUNTS[name])
    yield "attempts", sum_of(_row.attempts)
    yield "retries", sum_of(case((_row.attempts > 1, _row.attempts - 1), else_=0))
    for kind in OutcomeKind:
        yield kind, sum_of(case((is_of_kind(kind), _row.requests), else_=0))
    has_reply = _row.first_event_us.is_not(None)
    yield from _histogram("first_event", _row.first_event_us, 1000, has_reply)
    yield from _histogram("duration", _row.total_us, 1000, has_reply)
    speed = _row.output_tokens * _THOUSAND // func.nullif(_STREAM_MS, 0)
    is_stream = has_reply, _row.stream, _row.output_tokens > 0, _STREAM_MS > 0
    yield from _histogram("speed", speed, 1, *is_stream)


_BY_NAME: Final = dict(_terms())
COUNTED: Final = tuple(_BY_NAME[name].label(name) for name in map(str, MEASURES))
"""The measures of settled rows, grouped by a key."""
