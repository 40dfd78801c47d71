"""Upstreams that answer nothing but streams say so in many ways. It must not know what follows."""

from __future__ import annotations

import re
from typing import Final

from gateway.core.failure import Failure, FailureKind

_STREAM_ONLY_PATTERN: Final = re.compile(
    r"stream\W{0,4}(?:\w+ ){0,4}(?:must|should|has to|needs? to) be (?:set to )?\W?true"
    r"|(?:only|must|requires?)\W+(?:\w+\W+){0,4}stream(?:ing|ed|s)?\b"
    r"|stream(?:ing)?\W+(?:\w+\W+){0,2}(?:only|is required|required|true)"
    r"|for non-streaming calls|not support http call"
    r"|non-?stream\w*\W+(?:\w+\W+){0,6}(?:not|unsupported|unavailable)",
    re.IGNORECASE,
)
_STREAM_ONLY_STATUSES: Final = frozenset({400, 404, 405, 406, 415, 422, 501, 503})
_MAX_STREAM_ONLY_CHARS: Final = 2000


def requires_streaming(failure: Failure) -> bool:
    """Whether the upstream would have answered the same prompt had it asked for a stream."""
    if failure.kind is not FailureKind.RESPONSE or failure.status not in _STREAM_ONLY_STATUSES:
        return False
    text = f"{failure.message[:_MAX_STREAM_ONLY_CHARS]}\n{(failure.body or '')[:_MAX_STREAM_ONLY_CHARS]}"
    return bool(_STREAM_ONLY_PATTERN.search(text)) or failure.param == "stream"
