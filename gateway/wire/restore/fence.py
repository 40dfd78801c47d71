"""Takes the code fence off an answer that is JSON. It must not know what the JSON should be.

Models that were asked for JSON in words like to fence it all the same. No line within JSON begins
with a fence, so the first one that does is the end of the answer.
"""

from __future__ import annotations

import re
from enum import Enum, auto
from typing import Final

from gateway.wire.restore.prose import Prose

_HEAD: Final = re.compile(r"\s*```[A-Za-z]*[ \t\r]*(?:\n\s*(?=\S)|(?=[^\sA-Za-z`]))")
_MAYBE_HEAD: Final = re.compile(r"\s*(?:`{1,2}|```[A-Za-z]*[ \t\r]*(?:\n\s*)?)?")
_LONGEST_HEAD: Final = 256
_FOOT: Final = re.compile(r"\n[ \t]*```")
_LONGEST_FOOT: Final = 4096
"""Characters that are held back at most: models get lost in blanks where they must write JSON."""


class _At(Enum):
    HEAD = auto()
    WITHIN = auto()
    BEYOND = auto()
    UNFENCED = auto()


class Fence(Prose):
    """Whatever may be the fence, at either end, is held back until it is told apart."""

    __slots__ = ("_at", "_held")

    def __init__(self) -> None:
        super().__init__()
        self.begin()

    def begin(self) -> None:
        self._at = _At.HEAD
        self._held = ""

    def add(self, piece: str) -> str:
        if self._at is _At.UNFENCED:
            return piece
        if self._at is _At.BEYOND:
            return ""
        text = self._held + piece
        if self._at is _At.HEAD:
            head = _HEAD.match(text)
            if head is None:
                return self._undecided(text)
            self._at = _At.WITHIN
            text = text[head.end() :]
        return self._within(text)

    def rest(self) -> str:
        if self._at is _At.WITHIN and self._held.strip() == "```":
            return ""
        return self._held

    def _undecided(self, text: str) -> str:
        if len(text) <= _LONGEST_HEAD and _MAYBE_HEAD.fullmatch(text):
            self._held = text
            return ""
        self._at = _At.UNFENCED
        self._held = ""
        return text

    def _within(self, text: str) -> str:
        if foot := _FOOT.search(text):
            self._at = _At.BEYOND
            self._held = ""
            return text[: foot.start()].rstrip()
        said = text.rstrip().rstrip("`").rstrip()
        free = max(len(said), len(text) - _LONGEST_FOOT)
        self._held = text[free:]
        return text[:free]
