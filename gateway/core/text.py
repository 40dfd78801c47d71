"""Unprintable characters in text that people read."""

from __future__ import annotations

from typing import Final

NARROW_SPACE: Final = "\u202f"
"""A narrow no-break space: it separates digits and is not escaped."""


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
