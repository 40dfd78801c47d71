"""Token counts of the chat format, both ways.

The prompt includes the cached tokens and the completion the reasoning, as in `Usage`. Counts in a
stream are cumulative: the last one of a field wins, except zeros.
"""

from __future__ import annotations

from typing import Final

from gateway.core.events import Usage
from gateway.wire.json.fields import Payload, token_count

USAGE_FIELD: Final = "usage"
"""The field of a request for the cost of its reply, `{"include": true}`; not sent to upstreams."""

_NO_USAGE: Final = Usage()


def parse_usage(counts: object, before: Usage | None = None) -> Usage | None:
    """The usage after one more `usage` object; `before` where it has no counts."""
    if not isinstance(counts, dict):
        return before
    last = before or _NO_USAGE
    prompt = counts.get("prompt_tokens_details")
    completion = counts.get("completion_tokens_details")
    usage = Usage(
        input_tokens=token_count(counts, "prompt_tokens") or last.input_tokens,
        cache_read_tokens=token_count(prompt, "cached_tokens") or last.cache_read_tokens,
        cache_write_tokens=token_count(prompt, "cache_write_tokens") or last.cache_write_tokens,
        output_tokens=token_count(counts, "completion_tokens") or last.output_tokens,
        reasoning_tokens=token_count(completion, "reasoning_tokens") or last.reasoning_tokens,
    )
    return before if usage == _NO_USAGE else usage


def render_usage(usage: Usage) -> Payload:
    """The counts for clients; a part never exceeds its total."""
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
