"""Passes a reply's texts through something that may hold back the end of each.

It must not know what is looked for. Only what the model says aloud is text here: neither its
thinking nor what it says to tools.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

from gateway.core.events import Close, Delta, Event, Open
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
