"""Passes a reply's texts through something that may hold back the end of each.

It must not know what is looked for. Only what the model says aloud is text here: neither its
thinking nor what it says to tools.

Takes the code fence off an answer that is JSON. It must not know what the JSON should be.

Models that were asked for JSON in words like to fence it all the same. No line within JSON begins
with a fence, so the first one that does is the end of the answer.

Ends a reply at a stop sequence that its upstream could not watch for.

It must not know why, nor whether the upstream goes on talking.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from enum import Enum, auto
from typing import Final

from gateway.core.events import Begin, Close, Delta, End, Event, Open, StopReason, Usage
from gateway.core.parts import Text
from gateway.core.value import replace


class TextFilter(ABC):
    __slots__ = ("_index",)

    finished = False

    def __init__(self) -> None:
        self._index: int | None = None

    @abstractmethod
    def begin(self) -> None:
        """A text begins."""

    @abstractmethod
    def add(self, piece: str) -> str:
        """What may be said of the text that came so far, and was not yet."""

    @abstractmethod
    def flush(self) -> str:
        """What is left to say at the text's end."""

    def transforms(self, index: int) -> bool:
        return index == self._index

    def apply(self, event: Event) -> Sequence[Event]:
        if type(event) is Delta:
            if event.index != self._index or not isinstance(event.piece, str):
                return (event,)
            return [*_piece(event.index, self.add(event.piece))]
        if type(event) is Open and type(event.part) is Text:
            self._index = event.index
            self.begin()
            opening = Open(event.index, replace(event.part, text=""))
            return [opening, *_piece(event.index, self.add(event.part.text))]
        if type(event) is Close and event.index == self._index:
            self._index = None
            return [*_piece(event.index, self.flush()), event]
        return (event,)


def _piece(index: int, text: str) -> Iterator[Event]:
    if text:
        yield Delta(index, text)


_HEAD: Final = re.compile(r"\s*```[A-Za-z]*[ \t\r]*(?:\n\s*(?=\S)|(?=[^\sA-Za-z`]))")
_MAYBE_HEAD: Final = re.compile(r"\s*(?:`{1,2}|```[A-Za-z]*[ \t\r]*(?:\n\s*)?)?")
_MAX_HEAD: Final = 256
_FOOT: Final = re.compile(r"\n[ \t]*```")
_MAX_FOOT: Final = 4096
"""Characters that are held back at most: models get lost in blanks where they must write JSON."""


class _Position(Enum):
    BEFORE = auto()
    INSIDE = auto()
    AFTER = auto()
    UNFENCED = auto()


class CodeFenceStripper(TextFilter):
    """Whatever may be the fence, at either end, is held back until it is told apart."""

    __slots__ = ("_at", "_held")

    def __init__(self) -> None:
        super().__init__()
        self.begin()

    def begin(self) -> None:
        self._at = _Position.BEFORE
        self._held = ""

    def add(self, piece: str) -> str:
        if self._at is _Position.UNFENCED:
            return piece
        if self._at is _Position.AFTER:
            return ""
        text = self._held + piece
        if self._at is _Position.BEFORE:
            head = _HEAD.match(text)
            if head is None:
                return self._undecided(text)
            self._at = _Position.INSIDE
            text = text[head.end() :]
        return self._within(text)

    def flush(self) -> str:
        if self._at is _Position.INSIDE and self._held.strip() == "```":
            return ""
        return self._held

    def _undecided(self, text: str) -> str:
        if len(text) <= _MAX_HEAD and _MAYBE_HEAD.fullmatch(text):
            self._held = text
            return ""
        self._at = _Position.UNFENCED
        self._held = ""
        return text

    def _within(self, text: str) -> str:
        if foot := _FOOT.search(text):
            self._at = _Position.AFTER
            self._held = ""
            return text[: foot.start()].rstrip()
        said = text.rstrip().rstrip("`").rstrip()
        free = max(len(said), len(text) - _MAX_FOOT)
        self._held = text[free:]
        return text[:free]


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
