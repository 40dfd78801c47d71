"""Reads token counts as messages upstreams report them. It must not know prices or limits.

Here the cached and the fresh part of a prompt are reported apart from each other; `core.usage`
counts the whole. Reports are cumulative and partial: what a later one leaves out stays.
"""

from __future__ import annotations

from typing import Any, Final

from gateway.core.events import Usage
from gateway.wire.json_fields import Payload, token_count

_NO_USAGE: Final = Usage()
_PROMPT_COUNTS: Final = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")


def merge_usage(known: Payload | None, report: Any) -> Payload | None:
    """The counts after one more `usage` object. The last count of a field wins, but a report in
    which the whole prompt, or the output, is zero has no news of it."""
    if not isinstance(report, dict) or not report:
        return known
    news = {name: value for name, value in report.items() if value is not None}
    if not any(token_count(news, name) for name in _PROMPT_COUNTS):
        news = {name: value for name, value in news.items() if name not in _PROMPT_COUNTS}
    if not token_count(news, "output_tokens"):
        news.pop("output_tokens", None)
    return news if known is None else known | news


def parse_usage(counts: Payload | None) -> Usage | None:
    """The usage that merged counts stand for; None where nothing, or nothing but zeros, was
    reported."""
    if counts is None:
        return None
    fresh, read = (
        token_count(counts, "input_tokens"),
        token_count(counts, "cache_read_input_tokens"),
    )
    written = token_count(counts, "cache_creation_input_tokens")
    details = counts.get("cache_creation")
    an_hour = token_count(details, "ephemeral_1h_input_tokens")
    written = max(written, an_hour + token_count(details, "ephemeral_5m_input_tokens"))
    usage = Usage(
        input_tokens=fresh + written + read,
        cache_read_tokens=read,
        cache_write_tokens=written,
        cache_write_1h_tokens=an_hour,
        output_tokens=token_count(counts, "output_tokens"),
        reasoning_tokens=token_count(counts.get("output_tokens_details"), "thinking_tokens"),
        web_searches=token_count(counts.get("server_tool_use"), "web_search_requests"),
    )
    return usage if usage != _NO_USAGE else None


def render_usage(usage: Usage) -> Payload:
    """The counts as clients read them; a part never exceeds the whole that it is of."""
    cached = min(usage.cache_read_tokens, usage.input_tokens)
    written = min(usage.cache_write_tokens, usage.input_tokens - cached)
    report: Payload = {
        "input_tokens": usage.input_tokens - cached - written,
        "cache_creation_input_tokens": written,
        "cache_read_input_tokens": cached,
        "output_tokens": usage.output_tokens,
    }
    if written:
        an_hour = min(usage.cache_write_1h_tokens, written)
        report["cache_creation"] = {
            "ephemeral_5m_input_tokens": written - an_hour,
            "ephemeral_1h_input_tokens": an_hour,
        }
    if usage.reasoning_tokens:
        thinking = min(usage.reasoning_tokens, usage.output_tokens)
        report["output_tokens_details"] = {"thinking_tokens": thinking}
    if usage.web_searches:
        report["server_tool_use"] = {
            "web_search_requests": usage.web_searches,
            "web_fetch_requests": 0,
        }
    return report | {"service_tier": "standard"}
