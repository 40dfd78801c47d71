"""Takes the code fence off an answer that is JSON. It must not know what the JSON should be.

Models that were asked for JSON in words like to fence it all the same. No line within JSON begins
with a fence, so the first one that does is the end of the answer.
"""

from __future__ import annotations

import re
from enum import Enum, auto
from typing import Final

from gateway.wire.restore.prose import TextFilter

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
