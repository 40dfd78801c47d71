"""Breakpoints for prompt caching (Messages, "Prompt caching").

A request may have four, counted over tools, system and messages in this order; one at the top level
of the request counts too.
"""

from __future__ import annotations

from typing import Any, Final

from gateway.core.parts import CacheBreakpoint
from gateway.wire.json.fields import Payload, join_path, optional_object, optional_str

MAX_BREAKPOINTS: Final = 4
_FIELD: Final = "cache_control"
_TTLS: Final = {"5m": "5m", "30m": "5m", "1h": "1h", "12h": "1h"}
"""Requested lifetimes to the nearest one of this format."""


def parse_cache_breakpoint(block: Payload, path: str) -> CacheBreakpoint | None:
    control = optional_object(block, _FIELD, path)
    if control is None:
        return None
    return CacheBreakpoint(optional_str(control, "ttl", join_path(path, _FIELD)))


def render_cache_breakpoint(breakpoint: CacheBreakpoint) -> Payload:
    control = {"type": "ephemeral"}
    if ttl := _TTLS.get(breakpoint.ttl or ""):
        control["ttl"] = ttl
    return control


def limit_breakpoints(body: Payload, *, add_defaults: bool) -> bool:
    """Removes the earliest breakpoints above the limit; returns whether there were any. A body
    without a breakpoint gets the default ones if `add_defaults`."""
    breakpoints = _breakpoints(body)
    excess = len(breakpoints) + (_FIELD in body) - MAX_BREAKPOINTS
    if add_defaults and excess == -MAX_BREAKPOINTS:
        _add_default_breakpoints(body)
    for blocks, at in breakpoints[: max(0, excess)]:
        blocks[at] = {name: value for name, value in blocks[at].items() if name != _FIELD}
    return excess > 0


def _add_default_breakpoints(body: Payload) -> None:
    """Marks the prefix of the next request, for clients whose format caches by default: the tools,
    the system text and the conversation."""
    lists = [body.get("tools"), body.get("system")]
    users = [message for message in body["messages"] if message["role"] == "user"]
    if users:
        lists.append(users[-1]["content"])
    for blocks in lists:
        if blocks:
            blocks[-1] = blocks[-1] | {_FIELD: {"type": "ephemeral"}}


def _breakpoints(body: Payload) -> list[tuple[list[Any], int]]:
    """The list and the index of each marked block."""
    lists = [body.get("tools") or [], body.get("system") or []]
    lists += [message["content"] for message in body["messages"]]
    return [(blocks, at) for blocks in lists for at, block in enumerate(blocks) if _FIELD in block]
