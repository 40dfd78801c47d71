"""What one transaction of the recorder writes on a database server, where money is kept by period.

Everything is sorted by its key: all transactions lock rows in this order.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from functools import lru_cache
from operator import itemgetter
from typing import Any, Final, NamedTuple

from gateway.store.log.batch import Batch
from gateway.store.log.links import digest_rows, join_ids
from gateway.store.log.traffic_sums import TrafficDelta
from gateway.store.records import (
    BUDGET_DIMENSIONS,
    DAY_US,
    HOUR_US,
    STEP_US,
    HourDelta,
    RequestRow,
    TokenDelta,
    dimension_holders,
    start_of_month,
)

KEY: Final = "key"
GROUP: Final = "group"

_Cost = tuple[int, int]


class SpendingDelta(NamedTuple):
    """An amount that is added to the spending of one key (by id) or group (by name) in the period
    `total`, `month`, `day`, `hour` or `step` that began at `start` (Unix µs); of an end user or a
    session of a key only in a `day`."""

    holder_kind: str
    holder_id: str
    period: str
    start: int
    units: int
    usd: int


class LeaseDelta(NamedTuple):
    """An amount that is taken from a replica's lease of a budget: it is spent now."""

    holder_kind: str
    holder_id: str
    units: int
    usd: int


class FunctionArguments(NamedTuple):
    """The arguments of `server_function`, in their order."""

    inserted: list[RequestRow]
    settled: list[RequestRow]
    attempts: list[tuple[Any, ...]]
    searches: list[tuple[Any, ...]]
    hours: list[HourDelta]
    tokens: list[TokenDelta]
    spending: list[SpendingDelta]
    leases: list[LeaseDelta]
    traffic: list[TrafficDelta]
    linked_ids: str
    rows_digest: str


def function_arguments(
    batch: Batch, interrupted: Mapping[str, RequestRow], own: Container[str] | None
) -> FunctionArguments:
    """`interrupted` are the rows that some of the batch's replace. `own`: the ids of the rows that
    spend leases, None for all; those of an earlier boot's do not, as its leases end at once."""
    ended = [*batch.complete_rows, *batch.settled_rows]
    replaced = [interrupted[row.id] for row in batch.settled_rows if row.id in interrupted]
    leased = ended, replaced
    if own is not None:
        leased = [row for row in ended if row.id in own], [row for row in replaced if row.id in own]
    return FunctionArguments(
        sorted([*batch.intents, *batch.complete_rows]),
        sorted(batch.settled_rows),
        sorted(batch.attempts, key=itemgetter(0, 1)),
        sorted(batch.searches, key=itemgetter(0, 1)),
        sorted(batch.hour_deltas),
        sorted(batch.token_deltas),
        spending_deltas(ended, replaced),
        lease_deltas(*leased),
        sorted(batch.traffic_deltas),
        join_ids(batch.ended_rows),
        digest_rows(batch.ended_rows, batch.attempts, batch.searches),
    )


def spending_deltas(
    ended: Iterable[RequestRow], replaced: Iterable[RequestRow] = ()
) -> list[SpendingDelta]:
    """Returns, by key, the cost of rows that ended, less that of the rows which they replace."""
    by_step: dict[tuple[str, str, int], _Cost] = {}
    for rows, sign in ((ended, 1), (replaced, -1)):
        for row in rows:
            if row.cost_micro or row.usd_micro:
                step = row.started_at // STEP_US
                cost = sign * row.cost_micro, sign * row.usd_micro
                _add(by_step, (KEY, row.token_id, step), cost)
                _add(by_step, (GROUP, row.group_name, step), cost)
                for kind, id in dimension_holders(row):
                    _add(by_step, (kind, id, step), cost)
    by_period: dict[tuple[str, str, str, int], _Cost] = {}
    for (kind, id, step), cost in by_step.items():
        for period, start in _periods(step):
            if period == "day" or kind not in BUDGET_DIMENSIONS:
                _add(by_period, (kind, id, period, start), cost)
    return [SpendingDelta(*key, *by_period[key]) for key in sorted(by_period)]


def lease_deltas(
    ended: Iterable[RequestRow], replaced: Iterable[RequestRow] = ()
) -> list[LeaseDelta]:
    """Returns what is taken from leases: the cost of rows that ended, less that of the rows which
    they replace."""
    costs: dict[tuple[str, str], _Cost] = {}
    for rows, sign in ((ended, 1), (replaced, -1)):
        for row in rows:
            if row.cost_micro or row.usd_micro:
                cost = sign * row.cost_micro, sign * row.usd_micro
                _add(costs, (KEY, row.token_id), cost)
                _add(costs, (GROUP, row.group_name), cost)
                for holder in dimension_holders(row):
                    _add(costs, holder, cost)
    return [LeaseDelta(*holder, *costs[holder]) for holder in sorted(costs)]


def _add(costs: dict[Any, _Cost], key: Any, cost: _Cost) -> None:
    units, usd = costs.get(key, (0, 0))
    costs[key] = units + cost[0], usd + cost[1]


@lru_cache(64)
def _periods(step: int) -> tuple[tuple[str, int], ...]:
    """The periods that the step is in, and their starts."""
    start = step * STEP_US
    return (
        ("total", 0),
        ("month", start_of_month(start)),
        ("day", start - start % DAY_US),
        ("hour", start - start % HOUR_US),
        ("step", start),
    )
