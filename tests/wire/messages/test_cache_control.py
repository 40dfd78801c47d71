"""Breakpoints for prompt caching."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.core.parts import CacheBreakpoint
from gateway.wire.messages.cache_control import limit_breakpoints, render_cache_breakpoint

MARK = {"cache_control": {"type": "ephemeral"}}


def text(name: str, *, marked: bool = False) -> dict[str, Any]:
    return {"type": "text", "text": name} | (MARK if marked else {})


def body(**marked: bool) -> dict[str, Any]:
    """One block in each place, marked by name."""
    return {
        "system": [text("system", marked=marked.get("system", False))],
        "tools": [{"name": "f"} | (MARK if marked.get("tool") else {})],
        "messages": [
            {"role": role, "content": [text(name, marked=marked.get(name, False))]}
            for role, name in [("user", "one"), ("assistant", "two"), ("user", "three")]
        ],
    }


@pytest.mark.parametrize(
    ("ttl", "expected_ttl"),
    [(None, None), ("5m", "5m"), ("30m", "5m"), ("1h", "1h"), ("12h", "1h"), ("7d", None)],
)
def test_ttl(ttl: str | None, expected_ttl: str | None) -> None:
    expected = {"type": "ephemeral"} | ({"ttl": expected_ttl} if expected_ttl else {})
    assert render_cache_breakpoint(CacheBreakpoint(ttl)) == expected


def test_at_most_four_breakpoints_and_the_last_stay() -> None:
    all_marked = body(system=True, tool=True, one=True, two=True, three=True)
    tool = all_marked["tools"][0]
    assert limit_breakpoints(all_marked, add_defaults=False)
    assert all_marked == body(system=True, one=True, two=True, three=True)
    assert tool == {"name": "f"} | MARK  # what the client sent is not touched
    assert not limit_breakpoints(all_marked, add_defaults=False)
    automatic = body(system=True, one=True, two=True, three=True) | MARK
    assert limit_breakpoints(automatic, add_defaults=False)
    assert automatic == body(one=True, two=True, three=True) | MARK


def test_default_breakpoints() -> None:
    plain = body()
    assert not limit_breakpoints(plain, add_defaults=False)
    assert plain == body()
    assert not limit_breakpoints(plain, add_defaults=True)
    assert plain == body(system=True, tool=True, three=True)


def test_default_breakpoints_of_a_small_body() -> None:
    little = {"messages": [{"role": "user", "content": [text("one")]}]}
    assert not limit_breakpoints(little, add_defaults=True)
    assert little == {"messages": [{"role": "user", "content": [text("one", marked=True)]}]}


@pytest.mark.parametrize("marked", [body(one=True), body() | MARK])
def test_a_body_with_a_breakpoint_gets_no_others(marked: dict[str, Any]) -> None:
    before = marked | {}
    assert not limit_breakpoints(marked, add_defaults=True)
    assert marked == before
