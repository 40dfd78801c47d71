"""Reports from the sums of traffic: outcomes, tokens, costs and percentiles of times, by model or
channel and over time. The number of requests does not matter."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Final, NamedTuple

from sqlalchemy import ColumnElement, func, literal, select

from gateway.core.value import FastStrEnum
from gateway.store.database import Database, fetch_value
from gateway.store.errors import TooManyRows
from gateway.store.log.expressions import sum_of
from gateway.store.log.pages import timed_reader
from gateway.store.log.traffic import COUNTED_SINCE
from gateway.store.measures import HISTOGRAMS, OutcomeKind, histogram_columns
from gateway.store.records import DAY_US, HOUR_US, STEP_US
from gateway.store.schema import traffic


class By(FastStrEnum):
    MODEL = "model"
    CHANNEL = "channel"


class Step(FastStrEnum):
    """The width of the steps of a report; hours and days are of UTC."""

    FIVE_MINUTES = "5m"
    HOUR = "hour"
    DAY = "day"


STEPS: Final = {Step.FIVE_MINUTES: STEP_US, Step.HOUR: HOUR_US, Step.DAY: DAY_US}
MAX_STEPS: Final = 1000
"""Of a span."""

MAX_ROWS: Final = 20_000
_AT_ONCE: Final = 200


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Estimated within the bucket of a histogram as if its values were evenly spread; None of no
    values. What is above the last bound is the bound."""

    p50: float | None
    p95: float | None


NO_VALUES: Final = Percentiles(None, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficRow:
    """The settled requests of one model or channel ('' where there was none), or of all, that
    started in the step from `start` (Unix µs), or in the whole span. Times are of requests that had
    a first event, speeds, output tokens per second after it, of streams."""

    start: int | None
    name: str | None
    requests: int
    outcomes: dict[str, int]
    attempts: int
    retries: int
    input_tokens: int
    cache_read_tokens: int
    output_tokens: int
    cost_micro: int
    usd_micro: int
    first_event_ms: Percentiles
    duration_ms: Percentiles
    tokens_per_second: Percentiles


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficReport:
    """Rows in order of time, then of cost, the highest first. `complete_since` is the time (Unix
    µs) from which on all requests are counted, while earlier ones still are; 0 before the first
    are."""

    rows: list[TrafficRow]
    complete_since: int | None


_COUNTS: Final = (
    *("attempts", "retries", "input_tokens", "cache_read_tokens", "output_tokens"),
    *("cost_micro", "usd_micro"),
)


class Measured(NamedTuple):
    """Sums of the measures that were read, of one step and one model or channel."""

    start: int | None
    name: str | None
    counts: Mapping[str, int]

    def percentiles(self, histogram: str) -> Percentiles:
        counts = [self.counts[column] for column in histogram_columns(histogram)]
        return Percentiles(*(quantile(HISTOGRAMS[histogram], counts, p) for p in (0.5, 0.95)))


def add_up(rows: Sequence[Measured], measures: Sequence[str]) -> Measured:
    """The sums of the whole."""
    counts = {name: sum(row.counts[name] for row in rows) for name in map(str, measures)}
    return Measured(None, None, counts)


@dataclass(frozen=True, slots=True)
class TrafficQuery:
    """What started from `since` to before `until` (Unix µs), rounded down to five minutes; of one
    `model` or `channel`, if one is given. A row for each `step` (µs) and for each model or channel,
    if these are given.

    Sums of more than 2 days ago are of hours, of more than 8 of days: there, each belongs to the
    time at which its hour or day starts."""

    since: int
    until: int
    _: KW_ONLY
    by: By | None = None
    step: int | None = None
    model: str | None = None
    channel: str | None = None


async def read_measures(
    database: Database, measures: Sequence[str], asked: TrafficQuery
) -> list[Measured]:
    """Reads these measures in order of time, then of cost, the highest first. Raises QueryTimeout
    and TooManyRows."""
    sums, by, step = traffic.c, asked.by, asked.step
    times = [] if step is None else [sums.start // literal(step, literal_execute=True)]
    names: list[ColumnElement[Any]] = [] if by is None else [sums[by]]
    labels = [*map(str, measures)]
    counts = [sum_of(sums[name]).label(name) for name in labels]
    since, until = (time // STEP_US * STEP_US for time in (asked.since, asked.until))
    conditions = [sums.start >= since, sums.start < until]
    wanted = {sums.model: asked.model, sums.channel: asked.channel}
    conditions += [column == value for column, value in wanted.items() if value is not None]
    ranking = (sum_of(sums[name]).desc() for name in ("usd_micro", "cost_micro"))
    query = select(*times, *names, *counts).where(*conditions).group_by(*times, *names)
    query = query.having(func.count() > 0).order_by(*times, *ranking, *names).limit(MAX_ROWS + 1)
    keys = len(times) + len(names)
    rows: list[Measured] = []
    async with timed_reader(database) as connection:
        for batch in (await connection.execute(query)).partitions(_AT_ONCE):
            for values in batch:
                start = None if step is None else values[0] * step
                name = None if by is None else values[keys - 1]
                found = dict(zip(labels, values[keys:], strict=True))
                rows.append(Measured(start, name, found))
            await asyncio.sleep(0)  # others run meanwhile
    if len(rows) > MAX_ROWS:
        raise TooManyRows(MAX_ROWS)
    return rows


async def traffic_report(database: Database, asked: TrafficQuery) -> TrafficReport:
    """Reads all measures, as `read_measures`. Raises QueryTimeout and TooManyRows."""
    mark = await fetch_value(database, COUNTED_SINCE)
    rows: list[TrafficRow] = []
    for measured in await read_measures(database, _READ, asked):
        rows.append(_row(measured))
        if not len(rows) % _AT_ONCE:
            await asyncio.sleep(0)
    return TrafficReport(rows=rows, complete_since=None if mark is None else int(mark or 0))


_READ: Final = (
    *_COUNTS,
    *OutcomeKind,
    *(column for name in HISTOGRAMS for column in histogram_columns(name)),
)


def _row(measured: Measured) -> TrafficRow:
    counts = measured.counts
    outcomes = {str(kind): counts[kind] for kind in OutcomeKind}
    return TrafficRow(
        start=measured.start,
        name=measured.name,
        requests=sum(outcomes.values()),
        outcomes=outcomes,
        **{name: counts[name] for name in _COUNTS},
        first_event_ms=measured.percentiles("first_event"),
        duration_ms=measured.percentiles("duration"),
        tokens_per_second=measured.percentiles("speed"),
    )


def quantile(bounds: Sequence[int], counts: Sequence[int], share: float) -> float | None:
    """The value below which `share` of those counted are; `counts` has one more than `bounds`, that
    of values above all."""
    total = sum(counts)
    if not total:
        return None
    rank, low = share * total, 0
    for bound, count in zip(bounds, counts, strict=False):
        if count and rank <= count:
            return round(low + (bound - low) * rank / count, 1)
        rank, low = rank - count, bound
    return float(low)
