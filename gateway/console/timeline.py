"""How the time of one request was spent: consecutive spans from its start to its end, and those of
each attempt on a line of its own.
"""

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
    """`start` and `width` are percentages of the request's duration; `attempt` counts from 1, and
    is 0 for the gateway's own time, which has no `account`."""

    kind: SpanKind
    attempt: int
    account: str | None
    duration_us: int
    start: float
    width: float

    @property
    def label(self) -> str:
        account = f" of {self.account}" if self.account else ""
        return f"{format_duration(self.duration_us)} {self.kind.value[1]}{account}"


@dataclass(frozen=True, slots=True)
class Line:
    """An attempt, or the gateway. `result` is a status and a verdict."""

    name: str
    result: str
    total_us: int
    spans: Sequence[Span]


def waterfall(total_us: int | None, attempts: Sequence[AttemptRow]) -> list[Line]:
    """Returns a line for the gateway and one for each attempt; none without attempts."""
    found = spans(total_us, attempts) if attempts else []
    if not found:
        return []
    own = [span for span in found if not span.attempt]
    lines = [Line("gateway", "", sum(span.duration_us for span in own), own)]
    for number, attempt in enumerate(attempts, 1):
        name = f"{number}. {attempt.channel}/{attempt.account}"
        verdict = None if attempt.verdict == _SUCCESS else attempt.verdict
        result = " ".join(str(each) for each in (attempt.status, verdict) if each)
        of_attempt = [span for span in found if span.attempt == number]
        lines.append(Line(name, result, attempt.total_us, of_attempt))
    return lines


def ticks(total_us: int) -> list[tuple[int, str]]:
    """Percentages and labels of an axis of this length."""
    return [(each, format_duration(total_us * each // 100) or "") for each in range(0, 101, 25)]


def spans(total_us: int | None, attempts: Sequence[AttemptRow]) -> list[Span]:
    """Returns the spans; none for a request that is running or took no time."""
    if not total_us:
        return []
    result: list[Span] = []
    at = 0
    for kind, attempt, end in (*_ends(attempts), (SpanKind.GATEWAY, 0, total_us)):
        duration = min(end, total_us) - at
        if duration > 0:
            start, width = 100 * at / total_us, 100 * duration / total_us
            made = attempts[attempt - 1] if attempt else None
            account = None if made is None else f"{made.channel}/{made.account}"
            result.append(Span(kind, attempt, account, duration, start, width))
            at += duration
    return result


def _ends(attempts: Sequence[AttemptRow]) -> Iterator[tuple[SpanKind, int, int]]:
    """Kind, attempt and end of each span, in microseconds from the start of the request."""
    before = SpanKind.GATEWAY
    for number, attempt in enumerate(attempts, 1):
        end = attempt.started_us + attempt.total_us
        yield before, 0, attempt.started_us
        before = SpanKind.BACKOFF
        if attempt.verdict != _SUCCESS:
            yield SpanKind.FAILED, number, end
            continue
        first = attempt.first_event_us
        yield SpanKind.WAITING, number, end if first is None else attempt.started_us + first
        yield SpanKind.REPLY, number, end
