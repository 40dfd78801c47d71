"""Ends a reply at a stop sequence that its upstream could not watch for.

It must not know why, nor whether the upstream goes on talking.
"""

from __future__ import annotations

from collections.abc import Sequence

from gateway.core.events import Begin, Close, End, Event, StopReason
from gateway.core.usage import Usage
from gateway.wire.restore.prose import TextFilter


class StopSequenceFilter(TextFilter):
    """The sequence that is complete first ends the reply, wherever the pieces were cut. As many
    characters are held back as may belong to one that is not complete yet."""

    __slots__ = ("_back", "_held", "_hit", "_stops", "_usage", "finished")

    def __init__(self, stops: Sequence[str]) -> None:
        super().__init__()
        self._stops = stops
        self._back = max(map(len, stops)) - 1
        self._held = ""
        self._hit: str | None = None
        self._usage: Usage | None = None
        self.finished = False

    def transforms(self, index: int) -> bool:
        return self.finished or super().transforms(index)

    def apply(self, event: Event) -> Sequence[Event]:
        if self.finished:
            return ()
        if type(event) is Begin:
            self._usage = event.usage
        events = super().apply(event)
        if self._hit is None or self._index is None:
            return events
        self.finished = True
        end = End(StopReason.STOP_SEQUENCE, self._usage, self._hit)
        return [*events, Close(self._index), end]

    def begin(self) -> None:
        self._held = ""

    def add(self, piece: str) -> str:
        text = self._held + piece
        hits = [(at + len(stop), at, stop) for stop in self._stops if (at := text.find(stop)) >= 0]
        if hits:
            _, at, self._hit = min(hits)
            return text[:at]
        free = max(0, len(text) - self._back)
        self._held = text[free:]
        return text[:free]

    def flush(self) -> str:
        return self._held
