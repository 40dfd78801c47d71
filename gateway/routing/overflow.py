"""Whether an upstream refuses a prompt because it is too long, in whatever words it says so.

It must not know how a client is told.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from gateway.core.failure import Failure

_TYPES: Final = frozenset({"context_length_exceeded", "exceed_context_size_error"})
_WORDS: Final = re.compile(
    r"prompt is too long"
    r"|input length and `max_tokens` exceed context limit"
    r"|maximum context length"
    r"|exceeds? the (?:available context size|(?:model's )?context (?:window|length))",
    re.IGNORECASE,
)
_ANOTHER_FAULT: Final = re.compile(r"max_(?:completion_|output_)?tokens\W[^.]*is too large")
"""The prompt would fit: what does not is the length that was asked of the reply."""

_FIGURES: Final = (
    re.compile(r"prompt is too long: (?P<used>\d+) tokens > (?P<most>\d+) maximum"),
    re.compile(r"\((?P<used>\d+) tokens\) exceeds the available context size \((?P<most>\d+)"),
    re.compile(r'"n_prompt_tokens":\s*(?P<used>\d+),\s*"n_ctx":\s*(?P<most>\d+)'),
)
_MOST: Final = re.compile(r"maximum context length is (\d+) tokens")
_TOKENS: Final = re.compile(r"(\d+) (?:\w+ )?tokens")


@dataclass(frozen=True, slots=True)
class Overflow:
    """`used` and `most` are in tokens, both None where they are not told."""

    used: int | None = None
    most: int | None = None


def overflow(failure: Failure) -> Overflow | None:
    """The overflow that a failure speaks of; None where it is about something else."""
    said = failure.message
    if not _TYPES.intersection((failure.code, failure.type)) and not _WORDS.search(said):
        return None
    if _ANOTHER_FAULT.search(said):
        return None
    for text in (said, failure.body or ""):
        for pattern in _FIGURES:
            if figures := pattern.search(text):
                return Overflow(int(figures["used"]), int(figures["most"]))
    return _totalled(said)


def _totalled(said: str) -> Overflow:
    """Vendors of chat name the maximum first, then what was asked for, in parts and as a total."""
    limit = _MOST.search(said)
    if limit is None:
        return Overflow()
    most = int(limit[1])
    used = max((int(count) for count in _TOKENS.findall(said, limit.end())), default=0)
    return Overflow(used, most) if used > most else Overflow()
