"""An answer of the gateway as a client reads it, and what the client misses in it.

The readers share no code with the gateway, as they would repeat the codecs' mistakes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import orjson

from gateway.core.value import value
from gateway.doctor.clients.remedies import TRANSLATE


@value
class Fault:
    """A fault of a reply: what breaks and why; `breaks` is false if the client can live with it."""

    text: str
    remedy: str
    breaks: bool = True


class Answer:
    """`is_complete`: the body ended as HTTP wants it."""

    def __init__(
        self, status: int, headers: Mapping[str, str], body: bytes, *, is_complete: bool
    ) -> None:
        self.status = status
        self.headers = headers
        self.body = body
        self.is_complete = is_complete

    @property
    def request_id(self) -> str:
        return self.headers.get("x-request-id", "")

    @property
    def channel(self) -> str | None:
        """Returns the channel; it is known only if `server.show_channel` is on."""
        return self.headers.get("x-gateway-channel")

    @cached_property
    def json(self) -> dict[str, Any]:
        """An empty object if the body is none."""
        return parse_object(self.body) or {}

    @cached_property
    def events(self) -> list[dict[str, Any]]:
        """The data of each event that is an object. An `event:` line becomes its `type` if the
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
            if (event := parse_object(b"\n".join(data))) is not None:
                kind = text_at(event, "type") or name.decode(errors="replace")
                events.append(event | {"type": kind})
        return events

    @property
    def error(self) -> str:
        """Code and message of an error, in either envelope."""
        error = self.json.get("error")
        if not isinstance(error, dict):
            return self.body[:200].decode(errors="replace")
        code = error.get("code") or error.get("type") or ""
        return f"{code}: {error.get('message', '')}"


@dataclass(slots=True)
class Call:
    """`arguments` is None if it is no JSON object; free text of a custom tool is in `text`."""

    id: str
    name: str
    arguments: dict[str, Any] | None = None
    text: str = ""


@dataclass(slots=True)
class Reply:
    """`history` is what the client sends back of it: blocks, a message or items. `deltas` counts
    the pieces of its text."""

    text: str = ""
    stop: str | None = None
    calls: list[Call] = field(default_factory=list)
    history: list[dict[str, Any]] = field(default_factory=list)
    deltas: int = 0
    faults: list[Fault] = field(default_factory=list)

    def fault(self, text: str, remedy: str = TRANSLATE) -> None:
        self.faults.append(Fault(text, remedy))

    def warn(self, text: str, remedy: str = TRANSLATE) -> None:
        self.faults.append(Fault(text, remedy, breaks=False))


def parse_object(text: bytes | str) -> dict[str, Any] | None:
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    return value if isinstance(value, dict) else None


def part(value: object, *path: str | int) -> Any:
    """The value at a path of keys and indexes; None if there is none."""
    for step in path:
        if isinstance(value, dict):
            value = value.get(step)
        elif isinstance(value, list) and isinstance(step, int) and -len(value) <= step < len(value):
            value = value[step]
        else:
            return None
    return value


def text_at(value: object, *path: str | int) -> str:
    """The string at a path; empty if there is none."""
    found = part(value, *path)
    return found if isinstance(found, str) else ""


def objects_at(value: object, *path: str | int) -> list[dict[str, Any]]:
    """The objects of the list at a path."""
    found = part(value, *path)
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []
