"""A reply independent of any format, so that all three upstreams can return the same one."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

import orjson


class Stop(Enum):
    """`DECLINED`: the model refuses itself; `FILTERED`: a filter stopped it."""

    END = "end"
    LIMIT = "limit"
    SEQUENCE = "sequence"
    CALLS = "calls"
    DECLINED = "declined"
    FILTERED = "filtered"


@dataclass(frozen=True, slots=True)
class Thinking:
    """`seal` is the signature in formats that sign; without a text it is redacted."""

    text: str
    seal: str = ""


@dataclass(frozen=True, slots=True)
class Text:
    """`source` is the address and title of the page that the text cites."""

    text: str
    source: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Refusal:
    text: str


@dataclass(frozen=True, slots=True)
class ToolCall:
    """`cut`: the number of characters of the arguments before the output limit. Only responses
    has calls with free text and namespaces."""

    id: str
    name: str
    arguments: dict[str, Any] | str
    cut: int | None = None
    namespace: str | None = None

    @property
    def arguments_text(self) -> str:
        if isinstance(self.arguments, str):
            return self.arguments
        return orjson.dumps(self.arguments).decode()[: self.cut]


Part = Thinking | Text | Refusal | ToolCall


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """In tokens. `input` is the whole prompt, of which `cached` was read from a cache and `kept`
    written to one; `output` includes `thinking`."""

    input: int = 120
    cached: int = 0
    kept: int = 0
    output: int = 30
    thinking: int = 0

    @property
    def fresh(self) -> int:
        return self.input - self.cached - self.kept


@dataclass(frozen=True, slots=True)
class NeutralReply:
    """One reply. `sequence` is the stop sequence that ended it."""

    parts: tuple[Part, ...]
    stop: Stop
    cost: Cost
    sequence: str | None = None

    @property
    def calls(self) -> list[ToolCall]:
        return [part for part in self.parts if isinstance(part, ToolCall)]

    @property
    def text(self) -> str:
        return "".join(part.text for part in self.parts if isinstance(part, Text))


def make_reply(
    *parts: Part | str,
    stop: Stop | None = None,
    cost: Cost | None = None,
    sequence: str | None = None,
) -> NeutralReply:
    """Strings become texts. The default of `stop` depends on the parts."""
    received = tuple(Text(part) if isinstance(part, str) else part for part in parts)
    called = any(isinstance(part, ToolCall) for part in received)
    declined = any(isinstance(part, Refusal) for part in received)
    reason = Stop.CALLS if called else Stop.DECLINED if declined else Stop.END
    return NeutralReply(received, stop or reason, cost or Cost(), sequence)


def split_text(text: str, size: int = 7) -> list[str]:
    """The text in deltas of `size` characters."""
    return [text[start : start + size] for start in range(0, len(text), size)]
