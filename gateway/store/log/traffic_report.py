"""Reports from the sums of traffic: outcomes, tokens, costs and percentiles of times, by model or
channel and over time. The number of requests does not matter."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import ColumnElement, func, literal, select

from gateway.core.value import FastStrEnum
from gateway.store.database import Database
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
_READ: Final = (
    *_COUNTS,
    *OutcomeKind,
    *(column for name in HISTOGRAMS for column in histogram_columns(name)),
)


async def traffic_report(
    database: Database,
    since: int,
    until: int,
    *,
    by: By | None = None,
    step: int | None = None,
    model: str | None = None,
    channel: str | None = None,
) -> TrafficReport:
    """Reads what started from `since` to before `until` (Unix µs), rounded down to five minutes.
    Sums of more than 3 days ago are of hours, of more than 62 of days: there, each belongs to the
    time at which its hour or day starts. Raises QueryTimeout and TooManyRows."""
    sums = traffic.c
    key: list[ColumnElement[Any]] = []
    if step is not None:
        key.append(sums.start // literal(step, literal_execute=True))
    if by is not None:
        key.append(sums[by])
    counts = {str(name): sum_of(sums[name]).label(str(name)) for name in _READ}
    conditions = [sums.start >= since // STEP_US * STEP_US, sums.start < until // STEP_US * STEP_US]
    wanted = {sums.model: model, sums.channel: channel}
    conditions += [column == value for column, value in wanted.items() if value is not None]
    times, names = key[: step is not None], key[step is not None :]
    ranking = (counts[name].desc() for name in ("usd_micro", "cost_micro"))
    query = select(*key, *counts.values()).where(*conditions).group_by(*key)
    query = query.having(func.count() > 0).order_by(*times, *ranking, *names).limit(MAX_ROWS + 1)
    rows: list[TrafficRow] = []
    async with timed_reader(database) as connection:
        mark = await connection.scalar(COUNTED_SINCE)
        for batch in (await connection.execute(query)).partitions(_AT_ONCE):
            rows += [_row(tuple(values), step, by) for values in batch]
            await asyncio.sleep(0)  # others run meanwhile
    if len(rows) > MAX_ROWS:
        raise TooManyRows(MAX_ROWS)
    return TrafficReport(rows=rows, complete_since=None if mark is None else int(mark or 0))


def _row(values: tuple[Any, ...], step: int | None, by: By | None) -> TrafficRow:
    keys = len(values) - len(_READ)
    of = dict(zip(map(str, _READ), values[keys:], strict=True))
    outcomes = {str(kind): of[kind] for kind in OutcomeKind}
    return TrafficRow(
        start=None if step is None else values[0] * step,
        name=None if by is None else values[keys - 1],
        requests=sum(outcomes.values()),
        outcomes=outcomes,
        **{name: of[name] for name in _COUNTS},
        first_event_ms=_percentiles("first_event", of),
        duration_ms=_percentiles("duration", of),
        tokens_per_second=_percentiles("speed", of),
    )


def _percentiles(name: str, of: dict[str, int]) -> Percentiles:
    counts = [of[column] for column in histogram_columns(name)]
    return Percentiles(*(quantile(HISTOGRAMS[name], counts, share) for share in (0.5, 0.95)))


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
