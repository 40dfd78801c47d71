"""How a model talks on the wire: in small pieces, in frames, under fresh ids.

This room must not know what is said or in which format.
"""

from __future__ import annotations

import re
import secrets
from typing import Any

import orjson

# Every character belongs to exactly one piece, so the pieces join to the text again.
_PIECE = re.compile(r"\S{1,12}\s?|\s")


def new_id(prefix: str) -> str:
    """A fresh id that starts with this prefix."""
    return prefix + secrets.token_hex(12)


def split_text(text: str) -> list[str]:
    """A text as a model utters it, about a token at a time; they join to the text."""
    return _PIECE.findall(text)


def sse_frame(data: dict[str, Any], *, event: str | None = None) -> bytes:
    """One server-sent event, with an ``event:`` line where the format has one."""
    head = f"event: {event}\n".encode() if event else b""
    return head + b"data: " + orjson.dumps(data) + b"\n\n"
