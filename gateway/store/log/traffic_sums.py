"""Sums settled exchanges by five minutes of their start, catalog model and channel."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from operator import itemgetter
from typing import Any, Final

from gateway.store.log.outcomes import KIND_OF_CODE, KIND_OF_STATE
from gateway.store.measures import (
    HISTOGRAMS,
    MEASURES,
    ROW_SUMS,
    TIMES,
    OutcomeKind,
    histogram_columns,
)
from gateway.store.records import STEP_US, RequestRow

TrafficDelta = tuple[Any, ...]
"""The start of a slot (Unix µs), a model and a channel ('' where there is none), and what is added
to each of the measures."""

_Key = tuple[int, str, str]

_PLACE: Final = {name: place for place, name in enumerate(map(str, MEASURES))}
_OF_STATE: Final = {state: _PLACE[kind] for state, kind in KIND_OF_STATE.items()}
_OF_CODE: Final = {code: _PLACE[kind] for code, kind in KIND_OF_CODE.items()}
_REFUSED: Final = _PLACE[OutcomeKind.REFUSED]
_RETRY: Final = _PLACE["retries"]
_ESTIMATED: Final = _PLACE["estimated"]
_TIMES: Final = _PLACE[TIMES[0]]
_FIRST_EVENT, _DURATION, _SPEED = (_PLACE[histogram_columns(name)[0]] for name in HISTOGRAMS)
_FIRST_EVENT_BOUNDS, _DURATION_BOUNDS = (
    [bound * 1000 for bound in HISTOGRAMS[name]] for name in ("first_event", "duration")
)
_SPEED_BOUNDS: Final = HISTOGRAMS["speed"]

_FACTS: Final = (
    *("started_at", "catalog_model", "channel", "state", "requests", "attempts"),
    *("first_event_us", "total_us", "stream", "output_tokens", "usage_source"),
)
_facts = itemgetter(*map(RequestRow._fields.index, _FACTS))
_summed_fields = itemgetter(*map(RequestRow._fields.index, ROW_SUMS))
"""Both by position: by name, each field would take a call."""


class _Slot:
    """The summed fields of its rows, the times of those that have them, the positions of measures
    to which 1 is added, and what else is added by position."""

    __slots__ = ("counts", "places", "sums", "times")

    def __init__(self) -> None:
        self.sums: list[tuple[int, ...]] = []
        self.times: list[tuple[int, int]] = []
        self.places: list[int] = []
        self.counts: Counter[int] = Counter()


_Slots = dict[_Key, _Slot]


class TrafficSums:
    __slots__ = ("_added", "_subtracted")

    def __init__(self) -> None:
        self._added: _Slots = {}
        self._subtracted: _Slots = {}

    def add(self, row: RequestRow) -> None:
        _add(self._added, row)

    def subtract(self, row: RequestRow) -> None:
        """Subtracts what was added for an interrupted row."""
        _add(self._subtracted, row)

    def deltas(self) -> list[TrafficDelta]:
        counts: dict[_Key, list[int]] = {}
        for sign, slots in ((1, self._added), (-1, self._subtracted)):
            for key, slot in slots.items():
                of_key = counts.setdefault(key, [0] * len(MEASURES))
                for first, rows in ((0, slot.sums), (_TIMES, slot.times)):
                    for place, column in enumerate(zip(*rows, strict=True), first):
                        of_key[place] += sign * sum(column)
                slot.counts.update(slot.places)
                for place, count in slot.counts.items():
                    of_key[place] += sign * count
        return [(*key, *of_key) for key, of_key in counts.items()]


def _add(slots: _Slots, row: RequestRow) -> None:
    at, model, channel, state, requests, attempts, first, total, stream, output, source = _facts(
        row
    )
    key = at - at % STEP_US, model or "", channel or ""
    slot = slots.get(key)
    if slot is None:
        slot = slots[key] = _Slot()
    slot.sums.append(_summed_fields(row))
    places = slot.places
    outcome = _OF_STATE.get(state)
    if outcome is None:
        outcome = _OF_CODE.get(row.error_code, _REFUSED)
    if requests == 1:
        places.append(outcome)
    else:
        slot.counts[outcome] += requests
    if attempts > 1:
        slot.counts[_RETRY] += attempts - 1
    if source == "estimated":
        places.append(_ESTIMATED)
    if first is None:
        return
    slot.times.append((first, total))
    places.append(_FIRST_EVENT + bisect_right(_FIRST_EVENT_BOUNDS, first))
    places.append(_DURATION + bisect_right(_DURATION_BOUNDS, total))
    # Milliseconds: the product of the greatest count and a million would not be of 64 bits.
    if stream and output > 0 and (took := (total - first) // 1000) > 0:
        places.append(_SPEED + bisect_right(_SPEED_BOUNDS, output * 1000 // took))
