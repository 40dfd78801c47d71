"""One request as an upstream got it. It must not know what is done to it, nor who sent it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import orjson
from multidict import CIMultiDict

from gateway.core.formats import Format
from tests.resilience.faults.response import Answer

_ENDPOINTS = {
    Format.CHAT: "/chat/completions",
    Format.MESSAGES: "/messages",
    Format.RESPONSES: "/responses",
}


class Left(Enum):
    """How a peer hangs up."""

    FIN = "fin"
    RESET = "reset"


@dataclass(slots=True, kw_only=True)
class Call:
    """`path` is without the plan, `step` what was done to it. Times are those of the loop's clock,
    in seconds: `answered_at` when the answer was at its end, sound or not; `left_at` and `left_by`
    when and how the peer closed the connection, if it did so first: `gone` is set then."""

    method: str
    path: str
    query: str
    headers: CIMultiDict[str]
    body: bytes
    connection: int
    nth: int
    """Of its connection, from 1."""
    arrived_at: float
    plan: str
    answer: Answer
    fields: dict[str, Any] = field(init=False)
    """The body's object; empty where it is none."""
    step: str = ""
    answered_at: float | None = None
    left_at: float | None = None
    left_by: Left | None = None
    gone: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        try:
            value = orjson.loads(self.body)
        except orjson.JSONDecodeError:
            value = None
        self.fields = value if isinstance(value, dict) else {}

    @property
    def key(self) -> str:
        """The account's key."""
        bearer = self.headers.get("authorization", "")
        return self.headers.get("x-api-key") or bearer.removeprefix("Bearer ")

    @property
    def model(self) -> str:
        return str(self.fields.get("model", ""))

    @property
    def streamed(self) -> bool:
        """Whether a stream is asked for."""
        return self.fields.get("stream") is True

    @property
    def format(self) -> Format:
        """That of the path, also of its minor endpoints; chat where it tells none."""
        for format, end in _ENDPOINTS.items():
            if end in self.path:
                return format
        return Format.CHAT

    @property
    def generates(self) -> bool:
        """Whether a reply of a model is asked for."""
        return self.path.endswith(_ENDPOINTS[self.format])

    @property
    def sent(self) -> int:
        """Bytes of the answer's body that the peer's end of the connection took."""
        return self.answer.sent

    def left(self, how: Left) -> None:
        self.left_at, self.left_by = asyncio.get_running_loop().time(), how
        self.gone.set()
