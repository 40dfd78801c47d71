"""A reply as a client understands it, and what the client misses in it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import orjson

from gateway.doctor.answer import Answer
from gateway.doctor.remedies import TRANSLATE
from gateway.doctor.replay import Fault


@dataclass(slots=True)
class Call:
    """`arguments` is None where it is no JSON object; free text of a custom tool is in `text`."""

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
    thinks: bool = False
    deltas: int = 0
    faults: list[Fault] = field(default_factory=list)

    def fault(self, text: str, remedy: str = TRANSLATE) -> None:
        self.faults.append(Fault(text, remedy))

    def warn(self, text: str, remedy: str = TRANSLATE) -> None:
        self.faults.append(Fault(text, remedy, breaks=False))


def check_transport(answer: Answer, reply: Reply) -> None:
    if not answer.is_stream:
        kind = answer.headers.get("content-type", "none")
        reply.fault(f"a stream was requested, the answer has the content type {kind}")
    if not answer.is_complete:
        reply.fault(
            "the connection was cut inside the stream: the client tries again",
            "a proxy in between, or the upstream: gateway logs show ID names the end",
        )


def parse_arguments(text: str) -> dict[str, Any] | None:
    try:
        value = orjson.loads(text or "{}")
    except orjson.JSONDecodeError:
        return None
    return value if isinstance(value, dict) else None
