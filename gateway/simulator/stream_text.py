"""Text deltas, server-sent events and ids."""

from __future__ import annotations

import re
import secrets
from typing import Any

import orjson

# Every character belongs to exactly one delta, so that the deltas join to the text.
_DELTA = re.compile(r"\S{1,12}\s?|\s")


def new_id(prefix: str) -> str:
    """A random id with this prefix."""
    return prefix + secrets.token_hex(12)


def split_text(text: str) -> list[str]:
    """Deltas of about one token each, which join to the text."""
    return _DELTA.findall(text)


def sse_frame(data: dict[str, Any], *, event: str | None = None) -> bytes:
    """One server-sent event, with an ``event:`` line where the format has one."""
    head = f"event: {event}\n".encode() if event else b""
    return head + b"data: " + orjson.dumps(data) + b"\n\n"
