"""Tool definitions and tool choices of requests."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.core.formats import Format
from gateway.core.parts import CacheBreakpoint, ProviderData
from gateway.core.prompt import Tool, ToolKind, WebSearch
from gateway.errors import InvalidRequest
from gateway.wire.messages.tools import parse_tools


def parsed(tool: Any) -> Tool:
    (only,) = parse_tools({"tools": [tool]})
    return only


def test_native_fields() -> None:
    definition = {
        "type": "custom",
        "name": "f",
        "input_schema": {},
        "input_examples": [{"a": 1}],
        "defer_loading": True,
        "eager_input_streaming": False,
        "allowed_callers": [],
    }
    tool = parsed(definition)
    assert tool.extra == ProviderData(
        Format.MESSAGES, {"input_examples": [{"a": 1}], "defer_loading": True}
    )
    assert tool.definition == ProviderData(Format.MESSAGES, definition)
    assert parsed({"name": "f", "input_schema": {}, "defer_loading": False}).extra is None


def test_web_search() -> None:
    tool = parsed(
        {
            "type": "web_search_20260209",
            "name": "web_search",
            "max_uses": 8,
            "allowed_domains": ["a.example"],
            "blocked_domains": None,
            "user_location": {"type": "approximate", "city": "Oslo", "region": None},
            "cache_control": {"type": "ephemeral"},
        }
    )
    assert (tool.kind, tool.name, tool.cache) == (ToolKind.SERVER, "web_search", CacheBreakpoint())
    assert tool.search == WebSearch(
        allowed_domains=("a.example",),
        max_uses=8,
        location={"city": "Oslo"},
        client_executable=True,
    )


def test_web_search_without_options() -> None:
    tool = parsed({"type": "web_search_20250305", "name": "web_search", "blocked_domains": ["b"]})
    assert tool.search == WebSearch(blocked_domains=("b",), client_executable=True)


@pytest.mark.parametrize("field", ["allowed_domains", "blocked_domains"])
@pytest.mark.parametrize(
    ("value", "place"), [("a.example", ""), ({"a": 1}, ""), (["a.example", 5], ".1")]
)
def test_domains_that_are_no_list_of_names(field: str, value: object, place: str) -> None:
    """A search without them would be unrestricted."""
    with pytest.raises(InvalidRequest) as raised:
        parsed({"type": "web_search_20250305", "name": "web_search", field: value})
    assert raised.value.param == f"tools.0.{field}{place}"


@pytest.mark.parametrize(
    ("kind", "name", "required"),
    [
        ("bash_20250124", "bash", []),
        ("text_editor_20250728", "str_replace_based_edit_tool", ["command", "path"]),
        ("memory_20250818", "memory", ["command"]),
        ("computer_20251124", "computer", ["action"]),
    ],
)
def test_tools_known_by_type(kind: str, name: str, required: list[str]) -> None:
    definition = {"type": kind, "name": name, "max_characters": 9}
    tool = parsed(definition)
    assert (tool.kind, tool.name) == (ToolKind.FUNCTION, name)
    assert tool.description
    assert tool.schema is not None
    assert tool.schema["type"] == "object"
    assert tool.schema["required"] == required
    assert tool.definition == ProviderData(Format.MESSAGES, definition)
    assert tool.extra == ProviderData(Format.MESSAGES, {"max_characters": 9})
    assert tool.search is None


@pytest.mark.parametrize("kind", ["computer_toolset_20260801", "code_execution_20250825", "bash_x"])
def test_other_types_are_server_tools(kind: str) -> None:
    tool = parsed({"type": kind, "name": "x"})
    assert (tool.kind, tool.name, tool.schema) == (ToolKind.SERVER, "x", None)


@pytest.mark.parametrize(
    ("tool", "param"),
    [
        ({"type": "web_search_20250305", "max_uses": "8"}, "tools.0.max_uses"),
        ({"type": "web_search_20250305", "user_location": 1}, "tools.0.user_location"),
        ({"name": "f"}, "tools.0.input_schema"),
        ({"type": 7}, "tools.0.type"),
    ],
)
def test_errors_name_the_field(tool: Any, param: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        parse_tools({"tools": [tool]})
    assert refused.value.param == param
