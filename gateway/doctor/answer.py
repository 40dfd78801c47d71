"""An answer of the gateway as a client reads it.

This reader shares no code with the gateway, as it would repeat the codecs' mistakes.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import orjson


class Answer:
    """`is_complete`: the body ended as HTTP wants it. `reads` counts the pieces in which it
    arrived."""

    def __init__(
        self, status: int, headers: Mapping[str, str], body: bytes, *, is_complete: bool, reads: int
    ) -> None:
        self.status = status
        self.headers = headers
        self.body = body
        self.is_complete = is_complete
        self.reads = reads

    @property
    def request_id(self) -> str:
        return self.headers.get("x-request-id", "")

    @property
    def channel(self) -> str | None:
        """Only where `server.show_channel` is on."""
        return self.headers.get("x-gateway-channel")

    @property
    def is_stream(self) -> bool:
        return self.headers.get("content-type", "").startswith("text/event-stream")

    @cached_property
    def json(self) -> Any:
        """An empty object where the body is none."""
        try:
            value = orjson.loads(self.body)
        except orjson.JSONDecodeError:
            return {}
        return value if isinstance(value, dict) else {}

    @cached_property
    def events(self) -> list[dict[str, Any]]:
        """The data of each event that is an object. An `event:` line becomes its `type` where the
        data has none."""
        events = []
        for frame in self.body.replace(b"\r\n", b"\n").split(b"\n\n"):
            name, data = b"", []
            for line in frame.split(b"\n"):
                field, _, text = line.partition(b":")
                if field == b"event":
                    name = text.strip()
                elif field == b"data":
                    data.append(text.removeprefix(b" "))
            try:
                value = orjson.loads(b"\n".join(data))
            except orjson.JSONDecodeError:
                continue
            if isinstance(value, dict):
                events.append({"type": name.decode(errors="replace")} | value)
        return events

    @property
    def ends_with_done(self) -> bool:
        return self.body.rstrip().endswith(b"data: [DONE]")

    @property
    def error(self) -> str:
        """Code and message of an error, in either envelope."""
        error = self.json.get("error")
        if not isinstance(error, dict):
            return self.body[:200].decode(errors="replace")
        code = error.get("code") or error.get("type") or ""
        return f"{code}: {error.get('message', '')}"


def part(value: object, *path: str | int) -> Any:
    """The value at a path of keys and indexes; None where there is none."""
    for step in path:
        if isinstance(value, dict):
            value = value.get(step)
        elif isinstance(value, list) and isinstance(step, int) and -len(value) <= step < len(value):
            value = value[step]
        else:
            return None
    return value
