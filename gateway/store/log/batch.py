"""What one transaction of the recorder writes, decided without a database.

The states of the rows before the batch are an argument. That keeps the decision exact however
often a settlement is repeated, and whether or not an earlier try of the same batch was committed
before its result was lost.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from operator import add, attrgetter, itemgetter
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from gateway.store.log.traffic_sums import TrafficDelta, TrafficSums
from gateway.store.records import (
    HOUR_US,
    TOKEN_TOTALS,
    USAGE_COUNTS,
    AttemptRow,
    ExchangeState,
    HourDelta,
    LogEntry,
    RequestRow,
    SearchRow,
    TokenDelta,
    sanitize_value,
)

MAX_BATCH: Final = 200
"""Entries of one transaction."""


class Batch(NamedTuple):
    """Rows by statement, in the order in which they are written.

    `complete_rows` are inserted already settled, `settled_rows` are updated; `attempts` and
    `searches` have the id of their exchange and their number, from 1, before their own fields.
    `ended_rows` are all that are settled, in the order of their attempts.
    """

    intents: Sequence[RequestRow]
    complete_rows: Sequence[RequestRow]
    settled_rows: Sequence[RequestRow]
    attempts: Sequence[tuple[Any, ...]]
    searches: Sequence[tuple[Any, ...]]
    hour_deltas: Sequence[HourDelta]
    token_deltas: Sequence[TokenDelta]
    traffic_deltas: Sequence[TrafficDelta]
    ended_rows: Sequence[RequestRow]


def settlements_without_intent(entries: Iterable[LogEntry], opened: Container[str]) -> list[str]:
    """The ids of rows whose state must be looked up: those of settlements whose intent is neither
    among the entries nor among the rows that are known to be running."""
    intents = set()
    ids = []
    for entry in entries:
        id = entry.row.id
        if entry.is_intent:
            intents.add(id)
        elif id not in opened and id not in intents:
            ids.append(id)
    return ids


def build_batch(
    entries: Iterable[LogEntry],
    states: Mapping[str, str],
    opened: Container[str] = frozenset(),
    interrupted: Mapping[str, RequestRow] = MappingProxyType({}),
) -> Batch:
    """Leaves out intents of rows that exist and settlements of rows that are settled.

    `states` are those of the rows that were looked up, `opened` the ids of others that are known to
    be running. `interrupted` are rows that were settled without their truth, by id: a settlement
    replaces them, and the difference is counted. An intent comes before its settlement. Only what
    settles a row is counted.
    """
    intents: dict[str, RequestRow] = {}
    complete: dict[str, RequestRow] = {}
    settled: dict[str, RequestRow] = {}
    attempts: list[tuple[Any, ...]] = []
    searches: list[tuple[Any, ...]] = []
    ended: list[RequestRow] = []
    sums, traffic = _HourSums(), TrafficSums()
    for entry in entries:
        row = entry.row
        id = row.id
        is_new = id not in opened and id not in states
        if entry.is_intent:
            if is_new:
                intents[id] = row
            continue
        target = complete if is_new else settled
        if id in target:
            continue
        if states.get(id, ExchangeState.RUNNING) != ExchangeState.RUNNING:
            if id not in interrupted:
                continue
            before = interrupted[id]
            traffic.subtract(before, sums.subtract(before))
        target[id] = row
        ended.append(row)
        intents.pop(id, None)
        attempts += _numbered(id, entry.attempts)
        if entry.searches:
            searches += _numbered(id, entry.searches)
        traffic.add(row, sums.add(row))
    hour_deltas = sums.hour_deltas()
    return Batch(
        list(intents.values()),
        list(complete.values()),
        list(settled.values()),
        attempts,
        searches,
        hour_deltas,
        token_deltas(hour_deltas, sums.used_at),
        traffic.deltas(),
        ended,
    )


def sums_of(
    rows: Iterable[RequestRow],
) -> tuple[list[HourDelta], list[TokenDelta], list[TrafficDelta]]:
    """Returns what is added to the hourly sums, to the totals of tokens and to the sums of traffic
    for rows that ended."""
    sums, traffic = _HourSums(), TrafficSums()
    for row in rows:
        traffic.add(row, sums.add(row))
    hours = sums.hour_deltas()
    return hours, token_deltas(hours, sums.used_at), traffic.deltas()


def _numbered(id: str, rows: Sequence[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    for number, row in enumerate(rows, 1):
        yield (id, number, *row)


_summed_fields = itemgetter(
    *(RequestRow._fields.index(name) for name in USAGE_COUNTS if name in RequestRow._fields)
)
"""The fields of a row that are summed, in the order of HourDelta; by name, each would take a
call."""


class _HourSums:
    """Sums settled exchanges by the hour of their start."""

    __slots__ = ("_counts", "used_at")

    def __init__(self) -> None:
        self._counts: dict[tuple[int, str, str, str], list[tuple[int, ...]]] = {}
        self.used_at: dict[str, int] = {}

    def add(self, row: RequestRow) -> tuple[int, ...]:
        """Returns the row's `USAGE_COUNTS`."""
        number, *counts, first, total = _summed_fields(row)
        token_id, started_at = row.token_id, row.started_at
        used_at = started_at + total
        if used_at > self.used_at.get(token_id, used_at - 1):
            self.used_at[token_id] = used_at
        key = (started_at // HOUR_US, token_id, row.group_name, row.catalog_model or "")
        failed = 0 if row.state == ExchangeState.OK else row.requests
        estimated = 1 if row.usage_source == "estimated" else 0
        times = (0, 0, 0) if first is None else (1, first, total)
        usage = number, failed, estimated, *counts, *times
        self._counts.setdefault(key, []).append(usage)
        return usage

    def subtract(self, row: RequestRow) -> tuple[int, ...]:
        """Subtracts what was added for an interrupted row, and returns that."""
        before = _HourSums()
        usage = before.add(row._replace(total_us=0))
        for key in before._counts:
            self._counts.setdefault(key, []).append(tuple(-count for count in usage))
        return usage

    def hour_deltas(self) -> list[HourDelta]:
        return [
            HourDelta._make((*key, *map(sum, zip(*counts, strict=True))))
            for key, counts in self._counts.items()
        ]


_token_totals = attrgetter(*TOKEN_TOTALS)


def token_deltas(hours: Iterable[HourDelta], used_at: Mapping[str, int]) -> list[TokenDelta]:
    """The hours summed by token, with the time of its last use (Unix µs): so a token's totals are
    always the sums of its hours."""
    sums: dict[str, Iterable[int]] = {}
    for hour in hours:
        counts = _token_totals(hour)
        so_far = sums.get(hour.token_id)
        sums[hour.token_id] = counts if so_far is None else tuple(map(add, so_far, counts))
    return [
        TokenDelta._make((token_id, *counts, used_at[token_id]))
        for token_id, counts in sums.items()
    ]


def sanitize_entry(entry: LogEntry) -> LogEntry:
    """The entry without what a database cannot hold: lone surrogates, NULs, huge integers. Header
    values may contain the first two; the row must not be lost for them."""
    attempts = tuple(AttemptRow._make(map(sanitize_value, attempt)) for attempt in entry.attempts)
    searches = tuple(SearchRow._make(map(sanitize_value, search)) for search in entry.searches)
    return LogEntry(RequestRow._make(map(sanitize_value, entry.row)), attempts, searches)
