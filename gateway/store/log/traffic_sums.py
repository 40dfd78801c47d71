"""Sums settled exchanges by five minutes of their start, catalog model and channel."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from operator import itemgetter
from typing import Any, Final

from gateway.store.log.outcomes import KIND_OF_CODE, KIND_OF_STATE
from gateway.store.measures import HISTOGRAMS, MEASURES, OutcomeKind, histogram_columns
from gateway.store.records import STEP_US, USAGE_COUNTS, RequestRow

TrafficDelta = tuple[Any, ...]
"""The start of a slot (Unix µs), a model and a channel ('' where there is none), and what is added
to each of the measures."""

_Key = tuple[int, str, str]

_PLACE: Final = {name: place for place, name in enumerate(map(str, MEASURES), -len(USAGE_COUNTS))}
"""The places of measures after the counts of usage."""
_OF_STATE: Final = {state: _PLACE[kind] for state, kind in KIND_OF_STATE.items()}
_OF_CODE: Final = {code: _PLACE[kind] for code, kind in KIND_OF_CODE.items()}
_REFUSED: Final = _PLACE[OutcomeKind.REFUSED]
_ATTEMPT: Final = _PLACE["attempts"]
_RETRY: Final = _PLACE["retries"]
_FIRST_EVENT, _DURATION, _SPEED = (_PLACE[histogram_columns(name)[0]] for name in HISTOGRAMS)
_FIRST_EVENT_BOUNDS, _DURATION_BOUNDS = (
    [bound * 1000 for bound in HISTOGRAMS[name]] for name in ("first_event", "duration")
)
_SPEED_BOUNDS: Final = HISTOGRAMS["speed"]

_FACTS: Final = (
    *("started_at", "catalog_model", "channel", "state", "attempts"),
    *("first_event_us", "total_us", "stream", "output_tokens"),
)
_facts = itemgetter(*map(RequestRow._fields.index, _FACTS))
"""By position: by name, each field would take a call."""


class _Slot:
    """The counts of usage of its rows, the places of measures to which 1 is added, and what else is
    added by place."""

    __slots__ = ("added", "places", "usage")

    def __init__(self) -> None:
        self.usage: list[Sequence[int]] = []
        self.places: list[int] = []
        self.added: Counter[int] = Counter()


class TrafficSums:
    __slots__ = ("_added", "_subtracted")

    def __init__(self) -> None:
        self._added: dict[_Key, _Slot] = {}
        self._subtracted: dict[_Key, _Slot] = {}

    def add(self, row: RequestRow, usage: Sequence[int]) -> None:
        """`usage` has the row's `USAGE_COUNTS`."""
        _add(self._added, row, usage)

    def subtract(self, row: RequestRow, usage: Sequence[int]) -> None:
        """Subtracts what was added for an interrupted row."""
        _add(self._subtracted, row, usage)

    def deltas(self) -> list[TrafficDelta]:
        sums: dict[_Key, list[int]] = {}
        for sign, slots in ((1, self._added), (-1, self._subtracted)):
            for key, slot in slots.items():
                of_key = sums.setdefault(key, [0] * len(MEASURES))
                for place, column in enumerate(zip(*slot.usage, strict=True)):
                    of_key[place] += sign * sum(column)
                slot.added.update(slot.places)
                for place, count in slot.added.items():
                    of_key[len(USAGE_COUNTS) + place] += sign * count
        return [(*key, *of_key) for key, of_key in sums.items()]


def _add(slots: dict[_Key, _Slot], row: RequestRow, usage: Sequence[int]) -> None:
    at, model, channel, state, attempts, first, total, stream, output = _facts(row)
    key = at - at % STEP_US, model or "", channel or ""
    slot = slots.get(key)
    if slot is None:
        slot = slots[key] = _Slot()
    slot.usage.append(usage)
    places = slot.places
    outcome = _OF_STATE.get(state)
    if outcome is None:
        outcome = _OF_CODE.get(row.error_code, _REFUSED)
    if usage[0] == 1:
        places.append(outcome)
    else:
        slot.added[outcome] += usage[0]
    if attempts == 1:
        places.append(_ATTEMPT)
    elif attempts:
        slot.added.update({_ATTEMPT: attempts, _RETRY: attempts - 1})
    if first is None:
        return
    places += (
        _FIRST_EVENT + bisect_right(_FIRST_EVENT_BOUNDS, first),
        _DURATION + bisect_right(_DURATION_BOUNDS, total),
    )
    # Milliseconds: the product of the greatest count and a million would not be of 64 bits.
    if stream and output > 0 and (took := (total - first) // 1000) > 0:
        places.append(_SPEED + bisect_right(_SPEED_BOUNDS, output * 1000 // took))
