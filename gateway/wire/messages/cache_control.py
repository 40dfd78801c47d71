"""Breakpoints for prompt caching. It must not know what stands between them.

The format takes four in a request (Messages, "Prompt caching"), counted over tools, system and
messages, in this order, and one more way to ask for one of them at the request's top level.
"""

from __future__ import annotations

from typing import Any, Final

from gateway.core.parts import (
    CacheBreakpoint,
)
from gateway.wire.json_fields import (
    Payload,
    join_path,
    optional_object,
    optional_str,
)


def parse_cache_breakpoint(block: Payload, path: str) -> CacheBreakpoint | None:
    control = optional_object(block, "cache_control", path)
    if control is None:
        return None
    return CacheBreakpoint(optional_str(control, "ttl", join_path(path, "cache_control")))


MAX_BREAKPOINTS: Final = 4
_FIELD: Final = "cache_control"
_TTLS: Final = {"5m": "5m", "30m": "5m", "1h": "1h", "12h": "1h"}
"""The lifetimes that clients ask for, and the nearest that this format has."""


def render_cache_breakpoint(mark: CacheBreakpoint) -> Payload:
    control = {"type": "ephemeral"}
    if ttl := _TTLS.get(mark.ttl or ""):
        control["ttl"] = ttl
    return control


def has_breakpoints(body: Payload) -> bool:
    return _FIELD in body or bool(_breakpoints(body))


def enforce_limit(body: Payload) -> bool:
    """Takes the earliest marks out where there are too many; whether it did."""
    marked = _breakpoints(body)
    spare = len(marked) + (_FIELD in body) - MAX_BREAKPOINTS
    for blocks, at in marked[: max(0, spare)]:
        blocks[at] = {name: value for name, value in blocks[at].items() if name != _FIELD}
    return spare > 0


def add_default_breakpoints(body: Payload) -> None:
    """Marks what the next turn will begin with, for clients whose own format caches unasked: the
    tools, the system's text, and the conversation up to here."""
    lists = [body.get("tools"), body.get("system")]
    users = [message for message in body["messages"] if message["role"] == "user"]
    if users:
        lists.append(users[-1]["content"])
    for blocks in lists:
        if blocks:
            blocks[-1] = blocks[-1] | {_FIELD: {"type": "ephemeral"}}


def _breakpoints(body: Payload) -> list[tuple[list[Any], int]]:
    """Where the marks stand."""
    lists = [body.get("tools") or [], body.get("system") or []]
    lists += [message["content"] for message in body["messages"]]
    return [(blocks, at) for blocks in lists for at, block in enumerate(blocks) if _FIELD in block]
