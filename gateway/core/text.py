"""Unprintable characters in text that people read."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

NARROW_SPACE: Final = "\u202f"
"""A narrow no-break space: it separates digits and is not escaped."""

_UNPRINTABLE_IN_JSON: Final = re.compile(
    "[\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]"
)
"""Control and formatting characters that JSON allows in a string."""


def escape_unprintable(text: str) -> str:
    """The text with unprintable characters escaped (`\\x1b`, `\\u202e`)."""
    if text.isprintable():
        return text
    return "".join(
        character
        if character.isprintable() or character == NARROW_SPACE
        else character.encode("unicode_escape").decode()
        for character in text
    )


def escape_json(json: bytes) -> bytes:
    """Returns JSON of equal values, with unprintable characters of strings as `\\u202e`."""
    if json.isascii() and b"\x7f" not in json:
        return json
    escaped = _UNPRINTABLE_IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", json.decode())
    return escaped.encode()


def list_names(names: Sequence[str], most: int) -> str:
    """The names in one line: the first ones, and how many others there are."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} others" if more > 0 else "")
