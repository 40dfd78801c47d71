"""Breakpoints for prompt caching."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.core.parts import CacheMark
from gateway.wire.messages.marks import is_marked, mark_stable, render_mark, trim

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
    ("asked", "said"),
    [(None, None), ("5m", "5m"), ("30m", "5m"), ("1h", "1h"), ("12h", "1h"), ("7d", None)],
)
def test_lifetimes(asked: str | None, said: str | None) -> None:
    expected = {"type": "ephemeral"} | ({"ttl": said} if said else {})
    assert render_mark(CacheMark(asked)) == expected


def test_four_marks_at_most_and_the_latest_stay() -> None:
    all_marked = body(system=True, tool=True, one=True, two=True, three=True)
    tool = all_marked["tools"][0]
    assert trim(all_marked)
    assert all_marked == body(system=True, one=True, two=True, three=True)
    assert tool == {"name": "f"} | MARK  # what the client sent is not touched
    assert not trim(all_marked)
    automatic = body(system=True, one=True, two=True, three=True) | MARK
    assert trim(automatic)
    assert automatic == body(one=True, two=True, three=True) | MARK


def test_what_is_stable_is_marked() -> None:
    plain = body()
    assert not is_marked(plain)
    mark_stable(plain)
    assert plain == body(system=True, tool=True, three=True)
    assert is_marked(plain)


def test_little_to_mark() -> None:
    little = {"messages": [{"role": "user", "content": [text("one")]}]}
    mark_stable(little)
    assert little == {"messages": [{"role": "user", "content": [text("one", marked=True)]}]}
    assert is_marked({"messages": []} | MARK)
