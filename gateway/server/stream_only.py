"""Upstreams that answer nothing but streams say so in many ways. It must not know what follows."""

from __future__ import annotations

import re
from typing import Final

from gateway.core.failure import Failure, FailureKind

_WORDS: Final = re.compile(
    r"stream\W{0,4}(?:\w+ ){0,4}(?:must|should|has to|needs? to) be (?:set to )?\W?true"
    r"|(?:only|must|requires?)\W+(?:\w+\W+){0,4}stream(?:ing|ed|s)?\b"
    r"|stream(?:ing)?\W+(?:\w+\W+){0,2}(?:only|is required|required|true)"
    r"|for non-streaming calls|not support http call"
    r"|non-?stream\w*\W+(?:\w+\W+){0,6}(?:not|unsupported|unavailable)",
    re.IGNORECASE,
)
_REFUSALS: Final = frozenset({400, 404, 405, 406, 415, 422, 501, 503})
_READ: Final = 2000


def wants_a_stream(failure: Failure) -> bool:
    """Whether the upstream would have answered the same prompt had it asked for a stream."""
    if failure.kind is not FailureKind.SAID or failure.status not in _REFUSALS:
        return False
    said = f"{failure.message[:_READ]}\n{(failure.body or '')[:_READ]}"
    return bool(_WORDS.search(said)) or failure.param == "stream"
