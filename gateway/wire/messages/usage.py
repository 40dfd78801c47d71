"""Token counts of the messages format, both ways.

The format counts the cached and the fresh part of a prompt separately, `Usage` the whole prompt.
Reports are cumulative and partial: a field that a later one omits keeps its value.
"""

from __future__ import annotations

from typing import Any, Final

from gateway.core.events import Usage
from gateway.wire.json.fields import Payload, token_count

_NO_USAGE: Final = Usage()
_PROMPT_COUNTS: Final = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")


def merge_usage(counts: Payload | None, report: Any) -> Payload | None:
    """The counts after one more `usage` object. The last count of a field wins, except zeros for
    the whole prompt or the output."""
    if not isinstance(report, dict) or not report:
        return counts
    new = {name: value for name, value in report.items() if value is not None}
    if not any(token_count(new, name) for name in _PROMPT_COUNTS):
        new = {name: value for name, value in new.items() if name not in _PROMPT_COUNTS}
    if not token_count(new, "output_tokens"):
        new.pop("output_tokens", None)
    return new if counts is None else counts | new


def parse_usage(counts: Payload | None) -> Usage | None:
    """The usage of merged counts; None without counts other than zero."""
    if counts is None:
        return None
    fresh = token_count(counts, "input_tokens")
    read = token_count(counts, "cache_read_input_tokens")
    written = token_count(counts, "cache_creation_input_tokens")
    details = counts.get("cache_creation")
    one_hour = token_count(details, "ephemeral_1h_input_tokens")
    written = max(written, one_hour + token_count(details, "ephemeral_5m_input_tokens"))
    usage = Usage(
        input_tokens=fresh + written + read,
        cache_read_tokens=read,
        cache_write_tokens=written,
        cache_write_1h_tokens=one_hour,
        output_tokens=token_count(counts, "output_tokens"),
        reasoning_tokens=token_count(counts.get("output_tokens_details"), "thinking_tokens"),
        web_searches=token_count(counts.get("server_tool_use"), "web_search_requests"),
    )
    return usage if usage != _NO_USAGE else None


def render_usage(usage: Usage) -> Payload:
    """The counts for clients; a part never exceeds its total."""
    cached = min(usage.cache_read_tokens, usage.input_tokens)
    written = min(usage.cache_write_tokens, usage.input_tokens - cached)
    report: Payload = {
        "input_tokens": usage.input_tokens - cached - written,
        "cache_creation_input_tokens": written,
        "cache_read_input_tokens": cached,
        "output_tokens": usage.output_tokens,
    }
    if written:
        one_hour = min(usage.cache_write_1h_tokens, written)
        report["cache_creation"] = {
            "ephemeral_5m_input_tokens": written - one_hour,
            "ephemeral_1h_input_tokens": one_hour,
        }
    if usage.reasoning_tokens:
        thinking = min(usage.reasoning_tokens, usage.output_tokens)
        report["output_tokens_details"] = {"thinking_tokens": thinking}
    if usage.web_searches:
        searches = {"web_search_requests": usage.web_searches, "web_fetch_requests": 0}
        report["server_tool_use"] = searches
    return report | {"service_tier": "standard"}
