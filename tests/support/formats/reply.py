"""What a reply says, in terms that all formats have. Independent of any format."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.support.formats.frames import Object


@dataclass(frozen=True, slots=True)
class UsageCounts:
    """A format's usage as the same five numbers: the whole prompt, of it read from and written to
    a cache; the whole output, of it reasoning."""

    input: int
    cached: int
    kept: int
    output: int
    thinking: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """`stop` is the format's value; `calls` are ids, names and arguments; `sources` are addresses
    and titles; `usage` is None where the reply has none. `body` is the whole reply."""

    text: str
    stop: str | None
    model: str
    thinking: str
    refusal: str | None
    calls: tuple[tuple[str, str, dict[str, Any]], ...]
    sources: tuple[tuple[str, str], ...]
    usage: UsageCounts | None
    body: Object

    @property
    def called(self) -> list[tuple[str, dict[str, Any]]]:
        """Names and arguments of the calls."""
        return [(name, arguments) for _, name, arguments in self.calls]
