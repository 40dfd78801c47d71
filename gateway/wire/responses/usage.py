"""Reads and writes token counts as responses report them. It must not know prices or limits.

The input includes what caches served and kept, and the output includes the reasoning, as in
`core.usage`.
"""

from __future__ import annotations

from typing import Final

from gateway.core.events import Usage
from gateway.wire.json_fields import Payload, token_count

_ZERO: Final = Usage()
_NO_IMAGES: Final[Payload] = {
    "input_tokens": 0,
    "input_tokens_details": {"image_tokens": 0, "text_tokens": 0},
    "output_tokens": 0,
    "total_tokens": 0,
}
"""Kinds of tools that did nothing are told as well, where any did something."""


def parse_usage(response: Payload, previous: Usage | None = None) -> Usage | None:
    """The usage that a response object reports; `before` where it reports none but zeros."""
    counts = response.get("usage")
    if not isinstance(counts, dict) or not counts:
        return previous
    known = previous or _ZERO
    read = counts.get("input_tokens_details")
    tools = response.get("tool_usage")
    searches = tools.get("web_search") if isinstance(tools, dict) else None
    reasoning = token_count(counts.get("output_tokens_details"), "reasoning_tokens")
    usage = Usage(
        input_tokens=token_count(counts, "input_tokens") or known.input_tokens,
        cache_read_tokens=token_count(read, "cached_tokens") or known.cache_read_tokens,
        cache_write_tokens=token_count(read, "cache_write_tokens") or known.cache_write_tokens,
        output_tokens=token_count(counts, "output_tokens") or known.output_tokens,
        reasoning_tokens=reasoning or known.reasoning_tokens,
        web_searches=token_count(searches, "num_requests") or known.web_searches,
    )
    return usage if usage != _ZERO else None


def render_usage(usage: Usage) -> Payload:
    """The fields of a response that tell its usage; searches only where there were any. A part
    never exceeds the whole that it is of."""
    cached = min(usage.cache_read_tokens, usage.input_tokens)
    written = min(usage.cache_write_tokens, usage.input_tokens - cached)
    reasoning = min(usage.reasoning_tokens, usage.output_tokens)
    told: Payload = {
        "usage": {
            "input_tokens": usage.input_tokens,
            "input_tokens_details": {
                "cached_tokens": cached,
                "cache_write_tokens": written,
            },
            "output_tokens": usage.output_tokens,
            "output_tokens_details": {"reasoning_tokens": reasoning},
            "total_tokens": usage.total_tokens,
        }
    }
    if usage.web_searches:
        told["tool_usage"] = {
            "image_gen": _NO_IMAGES,
            "web_search": {"num_requests": usage.web_searches},
        }
    return told
