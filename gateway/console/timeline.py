"""Where the time of one request went: spans that follow each other and fill all of it.

It must not know how a span looks, nor why an attempt failed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from gateway.store.records import AttemptRow

_WELL: Final = "ok"


class SpanKind(StrEnum):
    """What a span of time was spent on."""

    GATEWAY = "gateway"
    FAILED = "failed"
    WAITING = "waiting"
    REPLY = "reply"
    PAUSE = "pause"


@dataclass(frozen=True, slots=True)
class Span:
    """`took_us` in microseconds; `start` and `width` are percent of the whole. `who` is the channel
    and account that was asked; None where it was nobody."""

    kind: SpanKind
    account: str | None
    duration_us: int
    start: float
    width: float


def spans(total_us: int | None, attempts: Sequence[AttemptRow]) -> list[Span]:
    """Of an exchange that took `total_us`; none of one that has not ended, or took no time."""
    if not total_us:
        return []
    told: list[Span] = []
    at = 0
    for stretch, who, until in (*_ends(attempts), (SpanKind.GATEWAY, None, total_us)):
        until = min(until, total_us)
        if until > at:
            took = until - at
            told.append(Span(stretch, who, took, 100 * at / total_us, 100 * took / total_us))
            at = until
    return told


def _ends(attempts: Sequence[AttemptRow]) -> Iterator[tuple[SpanKind, str | None, int]]:
    """Each stretch with the time at which it is over, in microseconds from the start."""
    before = SpanKind.GATEWAY
    for attempt in attempts:
        who = f"{attempt.channel}/{attempt.account}"
        end = attempt.started_us + attempt.total_us
        yield before, None, attempt.started_us
        before = SpanKind.PAUSE
        if attempt.verdict != _WELL:
            yield SpanKind.FAILED, who, end
            continue
        first = attempt.first_event_us
        yield SpanKind.WAITING, who, end if first is None else attempt.started_us + first
        yield SpanKind.REPLY, who, end
