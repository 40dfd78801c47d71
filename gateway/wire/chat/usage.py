"""Token counts as chat reports them, both ways. It must not know prices or limits.

The prompt includes what the cache served, and the completion includes the reasoning, as in
`core.usage`. Stream reports are cumulative: the last count per field wins, and a zero that follows
a count is an upstream's habit, not news.
"""

from __future__ import annotations

from typing import Final

from gateway.core.events import Usage
from gateway.wire.json_fields import Payload, token_count

_NO_USAGE: Final = Usage()


def parse_usage(counts: object, before: Usage | None = None) -> Usage | None:
    """The usage after `counts`, one `usage` object as it stood on the wire; `before` where it
    counts nothing."""
    if not isinstance(counts, dict):
        return before
    known = before or _NO_USAGE
    prompt = counts.get("prompt_tokens_details")
    completion = counts.get("completion_tokens_details")
    usage = Usage(
        input_tokens=token_count(counts, "prompt_tokens") or known.input_tokens,
        cache_read_tokens=token_count(prompt, "cached_tokens") or known.cache_read_tokens,
        cache_write_tokens=token_count(prompt, "cache_write_tokens") or known.cache_write_tokens,
        output_tokens=token_count(counts, "completion_tokens") or known.output_tokens,
        reasoning_tokens=token_count(completion, "reasoning_tokens") or known.reasoning_tokens,
    )
    return before if usage == _NO_USAGE else usage


def render_usage(usage: Usage) -> Payload:
    """The counts as clients read them; a part never exceeds the whole that it is of."""
    cached = min(usage.cache_read_tokens, usage.input_tokens)
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens,
        "prompt_tokens_details": {
            "cached_tokens": cached,
            "cache_write_tokens": min(usage.cache_write_tokens, usage.input_tokens - cached),
            "audio_tokens": 0,
        },
        "completion_tokens_details": {
            "reasoning_tokens": min(usage.reasoning_tokens, usage.output_tokens),
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }
