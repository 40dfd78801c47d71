r"""Takes free text out of the JSON that wraps it, while it arrives: `{"input":"…"}`.

Models write such JSON themselves, so other names for the one property and faulty escapes are met
with patience. It must not know which tool the text is for.
"""

from __future__ import annotations

import re
from enum import Enum, auto
from typing import Final

from gateway.wire.tool_names import CUSTOM_TOOL_ARG

_HEAD: Final = re.compile(rf'\s*\{{\s*"(?:{CUSTOM_TOOL_ARG}|content|patch)"\s*:\s*"')
_MAX_HEAD: Final = 256
_NOTHING: Final = re.compile(r"\s*(?:\{\s*\}\s*)?")
_WHOLE_UNITS: Final = re.compile(
    r"""(?: [^"\\]++
          | \\u [dD][89abAB][0-9a-fA-F]{2} (?! \\?\Z | \\u[0-9a-fA-F]{0,3}\Z )
          | \\u (?![dD][89abAB]) [0-9a-fA-F]{4}
          | \\u (?![0-9a-fA-F]{0,3}\Z) (?![0-9a-fA-F]{4})
          | \\[^u]
        )*+""",
    re.VERBOSE,
)
"""Characters and escapes of which nothing is missing, not even the other half of a pair."""

_ESCAPE: Final = re.compile(
    r"""\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})
      | \\u([0-9a-fA-F]{4})
      | \\(.)""",
    re.VERBOSE | re.DOTALL,
)
_LETTERS: Final = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}


class _Position(Enum):
    HEAD = auto()
    TEXT = auto()
    TAIL = auto()
    UNWRAPPED = auto()


class CustomToolArgReader:
    """One text. What is not wrapped like that is given out as it stands, at the end."""

    __slots__ = ("_at", "_held", "_pieces")

    def __init__(self) -> None:
        self._at = _Position.HEAD
        self._held = ""
        self._pieces: list[str] = []

    def add(self, piece: str) -> str:
        """The text that a piece of the JSON brings, maybe none."""
        if self._at is _Position.TEXT:
            return self._read(self._held + piece)
        if self._at is _Position.UNWRAPPED:
            self._pieces.append(piece)
        elif self._at is _Position.HEAD:
            self._held += piece
            if head := _HEAD.match(self._held):
                self._at = _Position.TEXT
                return self._read(self._held[head.end() :])
            if len(self._held) > _MAX_HEAD:
                self._at = _Position.UNWRAPPED
        return ""

    def close(self) -> str:
        """What there is left to say at the end of the JSON."""
        if self._at in (_Position.TEXT, _Position.TAIL):
            return ""  # half an escape says nothing
        whole = self._held + "".join(self._pieces)
        return "" if _NOTHING.fullmatch(whole) else whole

    def _read(self, raw: str) -> str:
        units = _WHOLE_UNITS.match(raw)
        end = units.end() if units else 0
        self._held = raw[end:]
        if self._held.startswith('"'):
            self._at = _Position.TAIL
        return _ESCAPE.sub(_character, raw[:end])


def _character(escape: re.Match[str]) -> str:
    first, second, alone, letter = escape.groups()
    if first:
        return chr(0x10000 + ((int(first, 16) - 0xD800) << 10) + (int(second, 16) - 0xDC00))
    if alone:
        code = int(alone, 16)
        return "\ufffd" if 0xD800 <= code < 0xE000 else chr(code)
    return _LETTERS.get(letter, letter)
