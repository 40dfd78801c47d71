"""Reads token counts as responses upstreams report them. It must not know prices or limits.

The input includes what caches served and kept, and the output includes the reasoning, as in
`core.usage`.
"""

from __future__ import annotations

from gateway.core.usage import Usage
from gateway.wire.fields import Payload, count


def parse_usage(response: Payload, before: Usage | None = None) -> Usage | None:
    """The usage that a response object reports; `before` where it reports none."""
    counts = response.get("usage")
    if not isinstance(counts, dict) or not counts:
        return before
    known = before or Usage()
    read = counts.get("input_tokens_details")
    tools = response.get("tool_usage")
    searches = tools.get("web_search") if isinstance(tools, dict) else None
    reasoning = count(counts.get("output_tokens_details"), "reasoning_tokens")
    return Usage(
        input_tokens=count(counts, "input_tokens") or known.input_tokens,
        cache_read_tokens=count(read, "cached_tokens") or known.cache_read_tokens,
        cache_write_tokens=count(read, "cache_write_tokens") or known.cache_write_tokens,
        output_tokens=count(counts, "output_tokens") or known.output_tokens,
        reasoning_tokens=reasoning or known.reasoning_tokens,
        web_searches=count(searches, "num_requests") or known.web_searches,
    )
