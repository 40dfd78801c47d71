"""What one transaction of the recorder writes, decided without a database.

How the rows of a batch stand when it begins is an argument. That makes the decision exact however
often a settlement comes, and whether or not an earlier try of the same batch was committed before
its answer was lost. This room must not know SQL, tasks or clocks.
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


class RowState(NamedTuple):
    """How a row of the database stands."""

    state: str
    started_at: int
    group_name: str
    catalog_model: str | None


class Batch(NamedTuple):
    """Rows by the statement that writes them, in the order that they are written in.

    `whole` ones are opened and settled at once; those of `attempts` have the id of their exchange
    and their number, from 1, before their own fields.
    """

    intents: Sequence[Intent]
    complete_rows: Sequence[tuple[Any, ...]]
    settlements: Sequence[tuple[Any, ...]]
    attempts: Sequence[tuple[Any, ...]]
    hour_deltas: Sequence[HourDelta]
    token_deltas: Sequence[TokenDelta]


_NONE: Final[Mapping[str, Intent]] = MappingProxyType({})


def settlements_without_intent(entries: Iterable[Entry], opened: Container[str]) -> list[str]:
    """The ids whose standing decides: of settlements whose intent is neither among the entries nor
    among the rows known to be open."""
    intended = set()
    asked = []
    for entry in entries:
        if isinstance(entry, Intent):
            intended.add(entry.id)
        elif entry.id not in opened and entry.id not in intended:
            asked.append(entry.id)
    return asked


def build_batch(
    entries: Iterable[Entry],
    states: Mapping[str, RowState],
    opened: Mapping[str, Intent] = _NONE,
) -> Batch:
    """Intents of rows that are there already and settlements of rows that are not open fall out.

    `standing` is how rows were found, `opened` are others that are known to be open. An intent
    stands before its settlement. Only what really settles a row is counted.
    """
    intents: dict[str, Intent] = {}
    whole: list[tuple[Any, ...]] = []
    settlements: dict[str, tuple[Any, ...]] = {}
    attempts: list[tuple[Any, ...]] = []
    sums = _HourSums()
    for entry in entries:
        id = entry.id
        if isinstance(entry, Intent):
            if id not in opened and id not in states:
                intents[id] = entry
        elif (intent := intents.pop(id, None)) is not None:
            whole.append(_complete_row(intent, entry))
            attempts += _attempts(entry)
            sums.add(entry, intent)
        elif id not in settlements and (stands := opened.get(id) or _if_open(states.get(id))):
            settlements[id] = (*entry[:-1], len(entry.attempts))
            attempts += _attempts(entry)
            sums.add(entry, stands)
    hours = sums.hours()
    return Batch(
        list(intents.values()),
        whole,
        list(settlements.values()),
        attempts,
        hours,
        token_deltas(hours, sums.used_at),
    )


def _if_open(standing: RowState | None) -> RowState | None:
    return standing if standing is not None and standing.state == ExchangeState.RUNNING else None


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
    for number, attempted in enumerate(settlement.attempts, 1):
        yield (settlement.id, number, *attempted)


_summed_fields = itemgetter(
    *map(
        Settlement._fields.index,
        (
            "token_id",
            "state",
            "usage_source",
            "first_event_us",
            "total_us",
            *HourDelta._fields[
                HourDelta._fields.index("input_tokens") : HourDelta._fields.index("first_events")
            ],
        ),
    )
)
"""What the sums need of a settlement, at once: by its name each would take a call."""


class _HourSums:
    """Settled exchanges, summed up as the hours want them."""

    __slots__ = ("_counts", "used_at")

    def __init__(self) -> None:
        self._counts: dict[tuple[int, str, str, str], list[tuple[int, ...]]] = {}
        self.used_at: dict[str, int] = {}

    def add(self, settlement: Settlement, opened: Intent | RowState) -> None:
        token_id, state, usage_source, first, total, *counts = _summed_fields(settlement)
        started_at = opened.started_at
        used_at = started_at + total
        if used_at > self.used_at.get(token_id, used_at - 1):
            self.used_at[token_id] = used_at
        place = (started_at // HOUR_US, token_id, opened.group_name, opened.catalog_model or "")
        failed = 0 if state == ExchangeState.OK else 1
        estimated = 1 if usage_source == "estimated" else 0
        times = (0, 0, 0) if first is None else (1, first, total)
        self._counts.setdefault(place, []).append((1, failed, estimated, *counts, *times))

    def hours(self) -> list[HourDelta]:
        return [
            HourDelta._make((*place, *map(sum, zip(*counts, strict=True))))
            for place, counts in self._counts.items()
        ]


def token_deltas(hours: Iterable[HourDelta], used_at: Mapping[str, int]) -> list[TokenDelta]:
    """The same by token, which was last used at (Unix µs): so totals are the sums of hours."""
    credits: dict[str, Iterable[int]] = {}
    for hour in hours:
        counts = (hour.requests, hour.input_tokens, hour.output_tokens, hour.cost_micro)
        so_far = credits.get(hour.token_id)
        credits[hour.token_id] = counts if so_far is None else tuple(map(add, so_far, counts))
    return [
        TokenDelta._make((token_id, *counts, used_at[token_id]))
        for token_id, counts in credits.items()
    ]


def sanitize_entry(entry: Entry) -> Entry:
    """The entry without what a database cannot hold: lone surrogates, NULs, huge numbers.

    Header values may carry the first two; a row must not be lost for them.
    """
    return type(entry)._make(map(_sanitize, entry))


def _sanitize(value: Any) -> Any:
    if isinstance(value, str):
        return sanitize_text(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return max(_MIN_INTEGER, min(value, _MAX_INTEGER))
    if isinstance(value, tuple):
        return tuple(AttemptRow._make(map(_sanitize, attempted)) for attempted in value)
    return value


_MIN_INTEGER, _MAX_INTEGER = -(2**53), 2**53
