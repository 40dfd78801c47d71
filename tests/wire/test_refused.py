"""What is left out of a request, and what never is."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.core.formats import Format
from gateway.wire.refused import leave_out

TURN = {"role": "user", "content": [{"type": "text", "text": "Hi", "cache_control": {"ttl": "1h"}}]}
TOOL = {"name": "f", "input_schema": {"x": 1}, "input_examples": [{}], "strict": True}
BODY: dict[str, Any] = {
    "model": "m",
    "max_tokens": 9,
    "messages": [TURN],
    "context_management": {"edits": []},
    "output_config": {"effort": "low", "format": {}},
    "thinking": {"type": "adaptive", "display": "omitted"},
    "tools": [TOOL, {"type": "web_search_20260209", "name": "web_search"}],
}
HEADERS = {"anthropic-beta": "context-management-2025-06-27,b-2025-01-01", "x-app": "cli"}


@pytest.mark.parametrize(
    ("name", "canonical", "path"),
    [
        ("context_management", "context_management", ("context_management",)),
        ("tools.custom.input_examples", "tools.input_examples", ("tools", 0, "input_examples")),
        ("thinking.adaptive.display", "thinking.display", ("thinking", "display")),
        ("output_config.effort", "output_config.effort", ("output_config", "effort")),
        (
            "messages.content.text.cache_control",
            "messages.content.cache_control",
            ("messages", 0, "content", 0, "cache_control"),
        ),
    ],
)
def test_a_field(name: str, canonical: str, path: tuple[Any, ...]) -> None:
    rest = leave_out(BODY, HEADERS, [name], Format.MESSAGES)
    assert rest.left_out == (canonical,) and rest.dropped == {canonical}
    *parents, last = path
    before, after = BODY, rest.body
    for parent in parents:
        before, after = before[parent], after[parent]
    assert {k: v for k, v in before.items() if k != last} == after
    assert last in before  # the client's own body stays as it is


@pytest.mark.parametrize(
    "name",
    [
        *("model", "messages", "max_tokens", "tools", "output_config", "output_config.format"),
        *("messages.content.text", "messages.content", "tools.name", "tools.input_schema.x"),
        *("thinking", "thinking.type", "nothing", "tool:custom", "tool:nothing", "beta:nothing"),
        *(".".join("abcdefghijkl"), ".", "tools..x"),
    ],
)
def test_what_is_needed(name: str) -> None:
    rest = leave_out(BODY, HEADERS, [name], Format.MESSAGES)
    assert rest == (BODY, HEADERS, (), frozenset())
    assert rest.body is BODY and rest.headers is HEADERS


def test_compaction_is_needed() -> None:
    body = BODY | {"context_management": {"edits": [{"type": "compact_20260112"}]}}
    assert leave_out(body, {}, ["context_management"], Format.MESSAGES).body is body


def test_a_beta_goes_with_its_field() -> None:
    rest = leave_out(BODY, HEADERS, ["beta:context-management-2025-06-27"], Format.MESSAGES)
    assert rest.headers == {"anthropic-beta": "b-2025-01-01", "x-app": "cli"}
    assert "context_management" not in rest.body
    assert rest.dropped == {"beta:context-management-2025-06-27", "context_management"}
    both = leave_out(rest.body, rest.headers, ["beta:b-2025-01-01"], Format.MESSAGES)
    assert both.headers == {"x-app": "cli"}


def test_a_type_of_tools() -> None:
    name = "tool:web_search_20260209"
    rest = leave_out(BODY, HEADERS, [name], Format.MESSAGES)
    assert rest.body["tools"] == [TOOL] and rest.dropped == {name}
    call = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}
    used = BODY | {"messages": [{"role": "assistant", "content": [call]}]}
    demanded = BODY | {"tool_choice": {"type": "tool", "name": "web_search"}}
    alone = BODY | {"tools": BODY["tools"][1:]}
    for body in (used, demanded, alone):
        assert leave_out(body, HEADERS, [name], Format.MESSAGES).body is body


def test_a_field_of_chat_with_two_names() -> None:
    rest = leave_out(BODY, {}, ["max_tokens"], Format.CHAT)
    assert "max_tokens" not in rest.body and rest.body["max_completion_tokens"] == 9
    assert rest.left_out == ("max_tokens",) and not rest.dropped


def test_calls_without_a_signature() -> None:
    calls = [{"id": "a"}, {"id": "b"}]
    body = {"messages": [{"role": "assistant", "tool_calls": calls}, {"role": "user"}]}
    rest = leave_out(body, {}, ["unsigned_calls"], Format.CHAT)
    first, second = rest.body["messages"][0]["tool_calls"]
    assert "thought_signature" in first["extra_content"]["google"] and second == {"id": "b"}
    assert leave_out(rest.body, {}, ["unsigned_calls"], Format.CHAT).left_out == ()
