"""Whether an upstream refuses a prompt because it is too long, in whatever words it says so.

It must not know how a client is told.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from gateway.core.failure import Failure

_OVERFLOW_CODES: Final = frozenset({"context_length_exceeded", "exceed_context_size_error"})
_OVERFLOW_PATTERN: Final = re.compile(
    r"prompt is too long"
    r"|input length and `max_tokens` exceed context limit"
    r"|maximum context length"
    r"|exceeds? the (?:available context size|(?:model's )?context (?:window|length))",
    re.IGNORECASE,
)
_OUTPUT_TOO_LARGE: Final = re.compile(r"max_(?:completion_|output_)?tokens\W[^.]*is too large")
"""The prompt would fit: what does not is the length that was asked of the reply."""

_COUNT_PATTERNS: Final = (
    re.compile(r"prompt is too long: (?P<used>\d+) tokens > (?P<most>\d+) maximum"),
    re.compile(r"\((?P<used>\d+) tokens\) exceeds the available context size \((?P<most>\d+)"),
    re.compile(r'"n_prompt_tokens":\s*(?P<used>\d+),\s*"n_ctx":\s*(?P<most>\d+)'),
)
_LIMIT_PATTERN: Final = re.compile(r"maximum context length is (\d+) tokens")
_TOKEN_COUNT: Final = re.compile(r"(\d+) (?:\w+ )?tokens")


@dataclass(frozen=True, slots=True)
class ContextOverflow:
    """`used` and `most` are in tokens, both None where they are not told."""

    used: int | None = None
    limit: int | None = None


def context_overflow(failure: Failure) -> ContextOverflow | None:
    """The overflow that a failure speaks of; None where it is about something else."""
    message = failure.message
    if not _OVERFLOW_CODES.intersection((failure.code, failure.type)) and not _OVERFLOW_PATTERN.search(message):
        return None
    if _OUTPUT_TOO_LARGE.search(message):
        return None
    for text in (message, failure.body or ""):
        for pattern in _COUNT_PATTERNS:
            if match := pattern.search(text):
                return ContextOverflow(int(match["used"]), int(match["most"]))
    return _parse_total(message)


def _parse_total(message: str) -> ContextOverflow:
    """Vendors of chat name the maximum first, then what was asked for, in parts and as a total."""
    limit = _LIMIT_PATTERN.search(message)
    if limit is None:
        return ContextOverflow()
    most = int(limit[1])
    used = max((int(count) for count in _TOKEN_COUNT.findall(message, limit.end())), default=0)
    return ContextOverflow(used, most) if used > most else ContextOverflow()
