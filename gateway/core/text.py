"""Text of others, made fit to be shown: nothing of it moves a cursor, turns the direction of
writing or hides. It must not know where it is shown.
"""

from __future__ import annotations

from typing import Final

NARROW_SPACE: Final = "\u202f"
"""A blank too narrow to end a number, at which no line breaks; it stays as it is."""


def escape_unprintable(text: str) -> str:
    """The text with every unprintable character spelled out (`\\x1b`, `\\u202e`)."""
    if text.isprintable():
        return text
    return "".join(
        character
        if character.isprintable() or character == NARROW_SPACE
        else character.encode("unicode_escape").decode()
        for character in text
    )
