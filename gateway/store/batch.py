"""What one transaction of the recorder writes, decided without a database.

The states of the rows before the batch are an argument. That keeps the decision exact however
often a settlement is repeated, and whether or not an earlier try of the same batch was committed
before its result was lost.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from operator import add, itemgetter
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from gateway.store.records import (
    HOUR_US,
    AttemptRow,
    Entry,
    ExchangeState,
    HourDelta,
    Intent,
    Settlement,
    TokenDelta,
    sanitize_text,
)

_MAX_INTEGER: Final = 2**53


class RowState(NamedTuple):
    """What the decision needs of a row in the database."""

    state: str
    started_at: int
    group_name: str
    catalog_model: str | None


class Batch(NamedTuple):
    """Rows by statement, in the order in which they are written.

    `complete_rows` are inserted already settled; `attempts` have the id of their exchange and
    their number, from 1, before their own fields.
    """

    intents: Sequence[Intent]
    complete_rows: Sequence[tuple[Any, ...]]
    settlements: Sequence[tuple[Any, ...]]
    attempts: Sequence[tuple[Any, ...]]
    hour_deltas: Sequence[HourDelta]
    token_deltas: Sequence[TokenDelta]


def settlements_without_intent(entries: Iterable[Entry], opened: Container[str]) -> list[str]:
    """The ids of rows whose state must be looked up: those of settlements whose intent is neither
    among the entries nor among the rows that are known to be running."""
    intents = set()
    ids = []
    for entry in entries:
        if isinstance(entry, Intent):
            intents.add(entry.id)
        elif entry.id not in opened and entry.id not in intents:
            ids.append(entry.id)
    return ids


def build_batch(
    entries: Iterable[Entry],
    states: Mapping[str, RowState],
    opened: Mapping[str, Intent] = MappingProxyType({}),
) -> Batch:
    """Leaves out intents of rows that exist and settlements of rows that are not running.

    `states` are the rows that were looked up, `opened` others that are known to be running. An
    intent comes before its settlement. Only what settles a row is counted.
    """
    intents: dict[str, Intent] = {}
    complete_rows: list[tuple[Any, ...]] = []
    settlements: dict[str, tuple[Any, ...]] = {}
    attempts: list[tuple[Any, ...]] = []
    sums = _HourSums()
    for entry in entries:
        id = entry.id
        if isinstance(entry, Intent):
            if id not in opened and id not in states:
                intents[id] = entry
        elif (intent := intents.pop(id, None)) is not None:
            complete_rows.append(_complete_row(intent, entry))
            attempts += _attempts(entry)
            sums.add(entry, intent)
        elif id not in settlements and (row := opened.get(id) or _if_running(states.get(id))):
            settlements[id] = (*entry[:-1], len(entry.attempts))
            attempts += _attempts(entry)
            sums.add(entry, row)
    hour_deltas = sums.hour_deltas()
    return Batch(
        list(intents.values()),
        complete_rows,
        list(settlements.values()),
        attempts,
        hour_deltas,
        token_deltas(hour_deltas, sums.used_at),
    )


def _if_running(row: RowState | None) -> RowState | None:
    return row if row is not None and row.state == ExchangeState.RUNNING else None


def _complete_row(intent: Intent, settlement: Settlement) -> tuple[Any, ...]:
    if settlement.channel is not None:
        intent = intent._replace(
            channel=settlement.channel,
            account=settlement.account,
            upstream_model=settlement.upstream_model,
            lane=settlement.lane,
        )
    return (*intent, *settlement[2:-5], len(settlement.attempts))


def _attempts(settlement: Settlement) -> Iterator[tuple[Any, ...]]:
    for number, attempt in enumerate(settlement.attempts, 1):
        yield (settlement.id, number, *attempt)


_summed_fields = itemgetter(
    *map(
        Settlement._fields.index,
        (
            *("token_id", "state", "usage_source", "first_event_us", "total_us"),
            *("input_tokens", "cache_read_tokens", "cache_write_tokens"),
            *("cache_write_1h_tokens", "output_tokens", "reasoning_tokens", "cost_micro"),
        ),
    )
)
"""The fields of a settlement that are summed, in the order of HourDelta; by name, each would take
a call."""


class _HourSums:
    """Sums settled exchanges by the hour of their start."""

    __slots__ = ("_counts", "used_at")

    def __init__(self) -> None:
        self._counts: dict[tuple[int, str, str, str], list[tuple[int, ...]]] = {}
        self.used_at: dict[str, int] = {}

    def add(self, settlement: Settlement, row: Intent | RowState) -> None:
        token_id, state, usage_source, first, total, *counts = _summed_fields(settlement)
        started_at = row.started_at
        used_at = started_at + total
        if used_at > self.used_at.get(token_id, used_at - 1):
            self.used_at[token_id] = used_at
        key = (started_at // HOUR_US, token_id, row.group_name, row.catalog_model or "")
        failed = 0 if state == ExchangeState.OK else 1
        estimated = 1 if usage_source == "estimated" else 0
        times = (0, 0, 0) if first is None else (1, first, total)
        self._counts.setdefault(key, []).append((1, failed, estimated, *counts, *times))

    def hour_deltas(self) -> list[HourDelta]:
        return [
            HourDelta._make((*key, *map(sum, zip(*counts, strict=True))))
            for key, counts in self._counts.items()
        ]


def token_deltas(hours: Iterable[HourDelta], used_at: Mapping[str, int]) -> list[TokenDelta]:
    """The hours summed by token, with the time of its last use (Unix µs): so a token's totals are
    always the sums of its hours."""
    sums: dict[str, Iterable[int]] = {}
    for hour in hours:
        counts = (hour.requests, hour.input_tokens, hour.output_tokens, hour.cost_micro)
        so_far = sums.get(hour.token_id)
        sums[hour.token_id] = counts if so_far is None else tuple(map(add, so_far, counts))
    return [
        TokenDelta._make((token_id, *counts, used_at[token_id]))
        for token_id, counts in sums.items()
    ]


def sanitize_entry(entry: Entry) -> Entry:
    """The entry without what a database cannot hold: lone surrogates, NULs, huge integers. Header
    values may contain the first two; the row must not be lost for them."""
    return type(entry)._make(map(_sanitize, entry))


def _sanitize(value: Any) -> Any:
    if isinstance(value, str):
        return sanitize_text(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return max(-_MAX_INTEGER, min(value, _MAX_INTEGER))
    if isinstance(value, tuple):
        return tuple(AttemptRow._make(map(_sanitize, attempt)) for attempt in value)
    return value
