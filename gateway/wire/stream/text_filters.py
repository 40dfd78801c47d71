"""Filters of a reply's texts that may hold back the end of each: code fences, stop sequences.

Only the model's answer is text here, neither its reasoning nor the arguments of its calls.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Final

from gateway.core.events import Begin, Close, Delta, End, Event, Open, Ping, StopReason, Usage
from gateway.core.parts import Text
from gateway.core.value import replace

_OPENING_FENCE: Final = re.compile(r"\s*```[A-Za-z]*[ \t\r]*(?:\n\s*(?=\S)|(?=[^\sA-Za-z`]))")
_MAYBE_OPENING_FENCE: Final = re.compile(r"\s*(?:`{1,2}|```[A-Za-z]*[ \t\r]*(?:\n\s*)?)?")
_MAX_OPENING_FENCE: Final = 256
_CLOSING_FENCE: Final = re.compile(r"\n[ \t]*```")
_MAX_FENCED: Final = 1024 * 1024
"""Characters held back at most: models that must write JSON may write blanks without end."""


def text_delta(index: int, text: str) -> tuple[Delta, ...]:
    """One delta, or none for an empty text."""
    return (Delta(index, text),) if text else ()


class TextFilter(ABC):
    """`_held` is the end of the text so far, which is held back."""

    __slots__ = ("_held", "_index")

    finished = False

    def __init__(self) -> None:
        self._index: int | None = None
        self._held = ""

    def begin(self) -> None:
        """A text begins."""
        self._held = ""

    @abstractmethod
    def add(self, piece: str) -> str:
        """Returns what can be sent now of the text so far."""

    def flush(self) -> str:
        """The remaining text, at its end."""
        return self._held

    def transforms(self, index: int) -> bool:
        return index == self._index

    def apply(self, event: Event) -> Sequence[Event]:
        if type(event) is Delta:
            if event.index != self._index or not isinstance(event.piece, str):
                return (event,)
            return text_delta(event.index, self.add(event.piece))
        if type(event) is Open and type(event.part) is Text:
            self._index = event.index
            self.begin()
            opening = Open(event.index, replace(event.part, text=""))
            return (opening, *text_delta(event.index, self.add(event.part.text)))
        if type(event) is Close and event.index == self._index:
            self._index = None
            return (*text_delta(event.index, self.flush()), event)
        return (event,)


class CodeFenceStripper(TextFilter):
    """Removes the code fence around a JSON text, and what follows it: models add one even when told
    not to. A text that begins with a fence is held to its end, as one that is not closed has to
    stay as it is. No line of JSON begins with a fence, so the first one inside ends the text."""

    __slots__ = ("_pieces", "_size", "keeps_text")

    def __init__(self) -> None:
        super().__init__()
        self.begin()

    def begin(self) -> None:
        self._pieces: list[str] = []
        self._size = 0
        self.keeps_text = False
        """Whether the rest of the text stays as it is."""

    def transforms(self, index: int) -> bool:
        return super().transforms(index) and not self.keeps_text

    def add(self, piece: str) -> str:
        if self.keeps_text:
            return piece
        self._pieces.append(piece)
        self._size += len(piece)
        is_short = self._size - len(piece) <= _MAX_OPENING_FENCE
        if self._size <= _MAX_FENCED and not (is_short and self._is_unfenced()):
            return ""
        self.keeps_text = True
        return self._taken()

    def flush(self) -> str:
        text = self._taken()
        opening = _OPENING_FENCE.match(text)
        if opening is None or self.keeps_text:
            return text
        start, end = opening.end(), len(text.rstrip())
        if closing := _CLOSING_FENCE.search(text, start):
            end = closing.start()
        elif text.endswith("```", start, end):
            end -= 3
        else:
            return text
        return text[start:end].rstrip()

    def _taken(self) -> str:
        text, self._pieces = "".join(self._pieces), []
        return text

    def _is_unfenced(self) -> bool:
        """Tells whether the text so far cannot begin with a fence."""
        text = "".join(self._pieces)
        self._pieces = [text]
        if _OPENING_FENCE.match(text):
            return False
        return self._size > _MAX_OPENING_FENCE or not _MAYBE_OPENING_FENCE.fullmatch(text)


def strip_code_fence(text: str) -> str:
    """A complete JSON text without the code fence around it."""
    stripper = CodeFenceStripper()
    return stripper.add(text) + stripper.flush()


class StopSequenceFilter:
    """Ends the reply at the stop sequence that is complete first, wherever the pieces are cut, also
    into several texts that follow each other. As many characters are held back as an incomplete one
    can have, and the events between them."""

    __slots__ = ("_held", "_index", "_max_held", "_open", "_stops", "_usage", "finished")

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = stops
        self._max_held = max(map(len, stops)) - 1
        self._held: list[Event] = []
        self._index: int | None = None  # of the text that is open
        self._open: int | None = None  # the same of the events that were let through
        self._usage: Usage | None = None
        self.finished = False

    def transforms(self, index: int) -> bool:
        return self.finished or bool(self._held) or index == self._index

    def apply(self, event: Event) -> Sequence[Event]:
        if self.finished:
            return ()
        if type(event) is Delta and event.index == self._index and isinstance(event.piece, str):
            return self._add(event)
        if type(event) is Open and type(event.part) is Text:
            self._index = event.index
            opening = self._pass(Open(event.index, replace(event.part, text="")))
            text = event.part.text
            return (*opening, *self._add(Delta(event.index, text))) if text else opening
        if type(event) is Close and event.index == self._index:
            self._index = None
            return self._pass(event)
        if type(event) is Ping or (type(event) is Delta and event.index == self._open):
            return (event,)
        if type(event) is Begin:
            self._usage = event.usage
        return (*self._release(len(self._held_text())), event)

    def _pass(self, event: Event) -> Sequence[Event]:
        """Lets an event of a text through that comes after what is held."""
        self._held.append(event)
        return () if len(self._held) > 1 else self._release(0)

    def _add(self, delta: Delta) -> Sequence[Event]:
        last = self._held[-1] if self._held else None
        if type(last) is Delta:
            self._held[-1] = Delta(delta.index, str(last.piece) + str(delta.piece))
        else:
            self._held.append(delta)
        text = self._held_text()
        hits = [(at + len(stop), at, stop) for stop in self._stops if (at := text.find(stop)) >= 0]
        if not hits:
            return self._release(len(text) - self._max_held)
        _, at, stop = min(hits)
        events = self._release(at)
        self.finished = True
        closing = () if self._open is None else (Close(self._open),)
        return (*events, *closing, End(StopReason.STOP_SEQUENCE, self._usage, stop))

    def _held_text(self) -> str:
        return "".join([str(event.piece) for event in self._held if type(event) is Delta])

    def _release(self, count: int) -> list[Event]:
        """The first `count` characters of what is held, with the events up to the next."""
        released: list[Event] = []
        for at, event in enumerate(self._held):
            if type(event) is Delta:
                text = str(event.piece)
                if count < len(text):
                    released += text_delta(event.index, text[: max(0, count)])
                    rest = Delta(event.index, text[max(0, count) :])
                    self._held = [rest, *self._held[at + 1 :]]
                    return released
                count -= len(text)
            elif type(event) is Open:
                self._open = event.index
            else:
                self._open = None
            released.append(event)
        self._held = []
        return released
