"""Sums settled exchanges by five minutes of their start, catalog model and channel."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from operator import itemgetter
from typing import Any, Final

from gateway.store.log.outcomes import KIND_OF_CODE, KIND_OF_STATE
from gateway.store.measures import HISTOGRAMS, MEASURES, ROW_SUMS, OutcomeKind, histogram_columns
from gateway.store.records import STEP_US, RequestRow

TrafficDelta = tuple[Any, ...]
"""The start of a slot (Unix µs), a model and a channel ('' where there is none), and what is added
to each of the measures."""

_Key = tuple[int, str, str]
_Slots = dict[_Key, tuple[list[tuple[int, ...]], list[int]]]
"""For each key the summed fields of its rows, and the positions of measures to which 1 is added."""

_PLACE: Final = {name: place for place, name in enumerate(map(str, MEASURES))}
_OF_STATE: Final = {state: _PLACE[kind] for state, kind in KIND_OF_STATE.items()}
_OF_CODE: Final = {code: _PLACE[kind] for code, kind in KIND_OF_CODE.items()}
_REFUSED: Final = _PLACE[OutcomeKind.REFUSED]
_RETRY: Final = _PLACE["retries"]
_FIRST_EVENT, _DURATION, _SPEED = (_PLACE[histogram_columns(name)[0]] for name in HISTOGRAMS)
_FIRST_EVENT_BOUNDS, _DURATION_BOUNDS = (
    [bound * 1000 for bound in HISTOGRAMS[name]] for name in ("first_event", "duration")
)
_SPEED_BOUNDS: Final = HISTOGRAMS["speed"]

_FACTS: Final = (
    *("started_at", "catalog_model", "channel", "state", "requests", "attempts"),
    *("first_event_us", "total_us", "stream", "output_tokens"),
)
_facts = itemgetter(*map(RequestRow._fields.index, _FACTS))
_summed_fields = itemgetter(*map(RequestRow._fields.index, ROW_SUMS))
"""Both by position: by name, each field would take a call."""


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
            for key, (sums, places) in slots.items():
                of_key = counts.setdefault(key, [0] * len(MEASURES))
                for place, column in enumerate(zip(*sums, strict=True)):
                    of_key[place] += sign * sum(column)
                for place, count in Counter(places).items():
                    of_key[place] += sign * count
        return [(*key, *of_key) for key, of_key in counts.items()]


def _add(slots: _Slots, row: RequestRow) -> None:
    started_at, model, channel, state, requests, attempts, first, total, stream, output = _facts(
        row
    )
    key = started_at - started_at % STEP_US, model or "", channel or ""
    slot = slots.get(key)
    if slot is None:
        slot = slots[key] = [], []
    sums, places = slot
    sums.append(_summed_fields(row))
    outcome = _OF_STATE.get(state)
    if outcome is None:
        outcome = _OF_CODE.get(row.error_code, _REFUSED)
    if requests == 1:
        places.append(outcome)
    else:
        places += [outcome] * requests
    if attempts > 1:
        places += [_RETRY] * (attempts - 1)
    if first is None:
        return
    places.append(_FIRST_EVENT + bisect_right(_FIRST_EVENT_BOUNDS, first))
    places.append(_DURATION + bisect_right(_DURATION_BOUNDS, total))
    # Milliseconds: the product of the greatest count and a million would not be of 64 bits.
    if stream and output > 0 and (took := (total - first) // 1000) > 0:
        places.append(_SPEED + bisect_right(_SPEED_BOUNDS, output * 1000 // took))
