"""One event of a stream as bytes. Independent of any format."""

from __future__ import annotations

from typing import Any

import orjson


def frame(data: dict[str, Any] | str, event: str | None = None) -> bytes:
    encoded = data.encode() if isinstance(data, str) else orjson.dumps(data)
    named = b"event: " + event.encode() + b"\n" if event else b""
    return named + b"data: " + encoded + b"\n\n"
