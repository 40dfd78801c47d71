"""How the time of one request was spent: consecutive spans from its start to its end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from gateway.admin.units import format_duration
from gateway.store.records import AttemptRow

_SUCCESS: Final = "ok"


class SpanKind(Enum):
    """A class of the style sheet, and a label."""

    GATEWAY = "c6", "in the gateway"
    FAILED = "c5", "failed attempt"
    WAITING = "c2", "waiting for the first token"
    REPLY = "c1", "receiving the reply"
    BACKOFF = "c4", "backoff before the next attempt"

    @property
    def style(self) -> str:
        return self.value[0]


@dataclass(frozen=True, slots=True)
class Span:
    """`start` and `width` are percentages of the request's duration; `account` is None for the
    gateway's own time."""

    kind: SpanKind
    account: str | None
    duration_us: int
    start: float
    width: float

    @property
    def label(self) -> str:
        account = f" of {self.account}" if self.account else ""
        return f"{format_duration(self.duration_us)} {self.kind.value[1]}{account}"


def spans(total_us: int | None, attempts: Sequence[AttemptRow]) -> list[Span]:
    """Returns the spans; none for a request that is running or took no time."""
    if not total_us:
        return []
    result: list[Span] = []
    at = 0
    for kind, account, end in (*_ends(attempts), (SpanKind.GATEWAY, None, total_us)):
        duration = min(end, total_us) - at
        if duration > 0:
            start, width = 100 * at / total_us, 100 * duration / total_us
            result.append(Span(kind, account, duration, start, width))
            at += duration
    return result


def _ends(attempts: Sequence[AttemptRow]) -> Iterator[tuple[SpanKind, str | None, int]]:
    """Kind, account and end of each span, in microseconds from the start of the request."""
    before = SpanKind.GATEWAY
    for attempt in attempts:
        account = f"{attempt.channel}/{attempt.account}"
        end = attempt.started_us + attempt.total_us
        yield before, None, attempt.started_us
        before = SpanKind.BACKOFF
        if attempt.verdict != _SUCCESS:
            yield SpanKind.FAILED, account, end
            continue
        first = attempt.first_event_us
        yield SpanKind.WAITING, account, end if first is None else attempt.started_us + first
        yield SpanKind.REPLY, account, end
