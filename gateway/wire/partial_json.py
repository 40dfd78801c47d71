r"""Reads the free text of a custom tool from the JSON around it, as it arrives: `{"input":"…"}`.

Models write this JSON themselves, so other names of the property and invalid escapes are accepted.
"""

from __future__ import annotations

import re
from enum import Enum, auto
from typing import Final

from gateway.wire.tool_names import CUSTOM_TOOL_ARG

_HEAD: Final = re.compile(rf'\s*\{{\s*"(?:{CUSTOM_TOOL_ARG}|content|patch)"\s*:\s*"')
_MAX_HEAD: Final = 256
_EMPTY: Final = re.compile(r"\s*(?:\{\s*\}\s*)?")
_COMPLETE_CHARACTERS: Final = re.compile(
    r"""(?: [^"\\]++
          | \\u [dD][89abAB][0-9a-fA-F]{2} (?! \\?\Z | \\u[0-9a-fA-F]{0,3}\Z )
          | \\u (?![dD][89abAB]) [0-9a-fA-F]{4}
          | \\u (?![0-9a-fA-F]{0,3}\Z) (?![0-9a-fA-F]{4})
          | \\[^u]
        )*+""",
    re.VERBOSE,
)
"""Characters and escapes that are complete, the second half of a surrogate pair included."""

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
    """One text. Text in any other form is returned unchanged, at the end."""

    __slots__ = ("_held", "_pieces", "_position")

    def __init__(self) -> None:
        self._position = _Position.HEAD
        self._held = ""
        self._pieces: list[str] = []

    def add(self, piece: str) -> str:
        """The text in a piece of the JSON, maybe none."""
        if self._position is _Position.TEXT:
            return self._read(self._held + piece)
        if self._position is _Position.UNWRAPPED:
            self._pieces.append(piece)
        elif self._position is _Position.HEAD:
            self._held += piece
            if head := _HEAD.match(self._held):
                self._position = _Position.TEXT
                return self._read(self._held[head.end() :])
            if len(self._held) > _MAX_HEAD:
                self._position = _Position.UNWRAPPED
        return ""

    def close(self) -> str:
        """The rest of the text, at the end of the JSON."""
        if self._position in (_Position.TEXT, _Position.TAIL):
            return ""  # half an escape is no character
        text = self._held + "".join(self._pieces)
        return "" if _EMPTY.fullmatch(text) else text

    def _read(self, raw: str) -> str:
        match = _COMPLETE_CHARACTERS.match(raw)
        end = match.end() if match else 0
        self._held = raw[end:]
        if self._held.startswith('"'):
            self._position = _Position.TAIL
        return _ESCAPE.sub(_unescape, raw[:end])


def _unescape(escape: re.Match[str]) -> str:
    first, second, single, letter = escape.groups()
    if first:
        return chr(0x10000 + ((int(first, 16) - 0xD800) << 10) + (int(second, 16) - 0xDC00))
    if single:
        code = int(single, 16)
        return "\ufffd" if 0xD800 <= code < 0xE000 else chr(code)
    return _LETTERS.get(letter, letter)
