"""Token counts of responses. Input includes cached tokens and output includes reasoning, as in
`core.events.Usage`.
"""

from __future__ import annotations

from typing import Final

from gateway.core.events import Usage
from gateway.wire.json.fields import Payload, lenient_object, lenient_objects, token_count

_ZERO: Final = Usage()
_NO_IMAGES: Final[Payload] = {
    "input_tokens": 0,
    "input_tokens_details": {"image_tokens": 0, "text_tokens": 0},
    "output_tokens": 0,
    "total_tokens": 0,
}
"""Tool usage lists all kinds of tools as soon as one kind was used."""


def parse_usage(
    response: Payload, previous: Usage | None = None, searches: int = 0
) -> Usage | None:
    """The usage of a response object; counts that are missing or zero are taken from `previous`.
    Most upstreams do not report searches: they are `searches`, or those among the items."""
    counts = response.get("usage")
    if not isinstance(counts, dict) or not counts:
        return previous
    old = previous or _ZERO
    read = counts.get("input_tokens_details")
    tools = response.get("tool_usage")
    reported = tools.get("web_search") if isinstance(tools, dict) else None
    if isinstance(reported, dict):
        searches = token_count(reported, "num_requests")
    else:
        items = lenient_objects(response.get("output"))
        searches = max(searches, sum([is_search(item) for item in items]))
    reasoning = token_count(counts.get("output_tokens_details"), "reasoning_tokens")
    usage = Usage(
        input_tokens=token_count(counts, "input_tokens") or old.input_tokens,
        cache_read_tokens=token_count(read, "cached_tokens") or old.cache_read_tokens,
        cache_write_tokens=token_count(read, "cache_write_tokens") or old.cache_write_tokens,
        output_tokens=token_count(counts, "output_tokens") or old.output_tokens,
        reasoning_tokens=reasoning or old.reasoning_tokens,
        web_searches=searches or old.web_searches,
    )
    return usage if usage != _ZERO else None


def is_search(item: Payload) -> bool:
    """Tells whether an item is a search of the web. One that failed is none, nor is a page that the
    model opened: vendors charge for neither."""
    action = lenient_object(item.get("action")).get("type")
    is_call = item.get("type") == "web_search_call" and action in (None, "search")
    return is_call and item.get("status") != "failed"


def render_usage(usage: Usage) -> Payload:
    """The fields of a response with its usage; searches only where there were any. Parts never
    exceed their total."""
    cached = min(usage.cache_read_tokens, usage.input_tokens)
    written = min(usage.cache_write_tokens, usage.input_tokens - cached)
    reasoning = min(usage.reasoning_tokens, usage.output_tokens)
    fields: Payload = {
        "usage": {
            "input_tokens": usage.input_tokens,
            "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": written},
            "output_tokens": usage.output_tokens,
            "output_tokens_details": {"reasoning_tokens": reasoning},
            "total_tokens": usage.total_tokens,
        }
    }
    if usage.web_searches:
        searches = {"num_requests": usage.web_searches}
        fields["tool_usage"] = {"image_gen": _NO_IMAGES, "web_search": searches}
    return fields
