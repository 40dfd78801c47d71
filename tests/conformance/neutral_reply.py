"""What an upstream says, in no format's words, so that all three can say the very same.

It must not know who asks, nor how it is spoken.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

import orjson


class Stop(Enum):
    """`DECLINED`: the model itself says why; `FILTERED`: somebody else stopped it."""

    END = "end"
    LIMIT = "limit"
    SEQUENCE = "sequence"
    CALLS = "calls"
    DECLINED = "declined"
    FILTERED = "filtered"


@dataclass(frozen=True, slots=True)
class Thought:
    """`seal` proves it where the format signs at all; without a text it is redacted."""

    text: str
    seal: str = ""


@dataclass(frozen=True, slots=True)
class Words:
    """`source` is the address and title of a page that all of it leans on."""

    text: str
    source: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Declined:
    text: str


@dataclass(frozen=True, slots=True)
class Called:
    """`cut`: only so many characters of the arguments were written before the limit came. Only
    responses speaks of calls with free text and of namespaces here."""

    id: str
    name: str
    arguments: dict[str, Any] | str
    cut: int | None = None
    namespace: str | None = None

    @property
    def written(self) -> str:
        if isinstance(self.arguments, str):
            return self.arguments
        return orjson.dumps(self.arguments).decode()[: self.cut]


Part = Thought | Words | Declined | Called


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
class Said:
    """One answer. `sequence` is the text that stopped it."""

    parts: tuple[Part, ...]
    stop: Stop
    cost: Cost
    sequence: str | None = None

    @property
    def calls(self) -> list[Called]:
        return [part for part in self.parts if isinstance(part, Called)]

    @property
    def text(self) -> str:
        return "".join(part.text for part in self.parts if isinstance(part, Words))


def say(
    *parts: Part | str,
    stop: Stop | None = None,
    cost: Cost | None = None,
    sequence: str | None = None,
) -> Said:
    """Strings are words; it stops by itself unless told how."""
    heard = tuple(Words(part) if isinstance(part, str) else part for part in parts)
    called = any(isinstance(part, Called) for part in heard)
    declined = any(isinstance(part, Declined) for part in heard)
    reason = Stop.CALLS if called else Stop.DECLINED if declined else Stop.END
    return Said(heard, stop or reason, cost or Cost(), sequence)


def pieces(text: str, size: int = 7) -> list[str]:
    """A text as it arrives, never in one piece where it is longer."""
    return [text[start : start + size] for start in range(0, len(text), size)]
