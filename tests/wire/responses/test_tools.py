"""Tool definitions and tool choices of requests."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.core.formats import Format
from gateway.core.parts import ProviderData
from gateway.core.prompt import ChoiceMode, Tool, ToolChoice, ToolKind, WebSearch
from gateway.errors import InvalidRequest
from gateway.wire.responses.client_tools import CLIENT_TOOLS
from gateway.wire.responses.tools import parse_tool_choice, parse_tools


def parsed(*tools: Any) -> list[Tool]:
    return list(parse_tools(list(tools), "tools"))


def native(data: Any) -> ProviderData:
    return ProviderData(Format.RESPONSES, data)


def test_unknown_tool_fields_are_kept() -> None:
    function = {
        "type": "function",
        "name": "f",
        "parameters": {"type": "object"},
        "strict": True,
        "defer_loading": True,
        "output_schema": {"type": "string"},
        "allowed_callers": None,
    }
    (tool,) = parsed(function)
    assert tool == Tool(
        kind=ToolKind.FUNCTION,
        name="f",
        schema={"type": "object"},
        strict=True,
        extra=native({"defer_loading": True, "output_schema": {"type": "string"}}),
        definition=native(function),
    )
    assert parsed({"type": "custom", "name": "c", "format": {"type": "text"}})[0].extra is None


def test_web_search() -> None:
    (tool,) = parsed(
        {
            "type": "web_search_2025_08_26",
            "filters": {"allowed_domains": ["example.org"]},
            "user_location": {"type": "approximate", "city": "Oslo", "region": None},
            "search_context_size": "low",
        }
    )
    assert (tool.kind, tool.name) == (ToolKind.SERVER, "web_search_2025_08_26")
    assert tool.search == WebSearch(
        allowed_domains=("example.org",), location={"city": "Oslo"}, context_size="low"
    )


@pytest.mark.parametrize("type_", ["web_search", "web_search_preview"])
def test_web_search_without_options(type_: str) -> None:
    assert parsed({"type": type_, "user_location": None})[0].search == WebSearch()


def test_invalid_web_search() -> None:
    with pytest.raises(InvalidRequest) as refused:
        parsed({"type": "web_search", "filters": []})
    assert refused.value.param == "tools.0.filters"


def test_namespace() -> None:
    space: dict[str, Any] = {"type": "namespace", "name": "crm", "description": "Customers."}
    first = {"type": "function", "name": "find", "description": "Finds one."}
    second = {"type": "custom", "name": "query"}
    find, query = parsed(space | {"tools": [first, second]})
    assert (find.namespace, find.description) == ("crm", "Customers.\n\nFinds one.")
    assert (query.kind, query.description) == (ToolKind.CUSTOM, "Customers.")
    assert (find.definition, query.definition) == (native(first), native(second))
    whole = native(space | {"tools": [first, second]})
    assert find.namespace_definition == query.namespace_definition == whole


def test_the_first_tool_alone_gets_a_long_description_of_its_namespace() -> None:
    tools = [{"type": "function", "name": name} for name in ("find", "query")]
    space = {"type": "namespace", "name": "crm", "description": "x" * 1001, "tools": tools}
    assert [tool.description for tool in parsed(space)] == ["x" * 1001, None]


@pytest.mark.parametrize("type_", ["local_shell", "shell", "apply_patch"])
def test_client_tools_are_functions(type_: str) -> None:
    (tool,) = parsed({"type": type_})
    assert (tool.kind, tool.name) == (ToolKind.FUNCTION, type_)
    assert tool.schema == CLIENT_TOOLS[type_].schema
    assert tool.description == CLIENT_TOOLS[type_].description


def test_tool_search() -> None:
    schema = {"type": "object", "properties": {"goal": {"type": "string"}}}
    definition = {
        "type": "tool_search",
        "execution": "client",
        "description": "D",
        "parameters": schema,
    }
    (tool,) = parsed(definition)
    assert (tool.kind, tool.name) == (ToolKind.FUNCTION, "tool_search")
    assert (tool.description, tool.schema) == ("D", schema)


@pytest.mark.parametrize(
    "definition",
    [
        {"type": "tool_search"},
        {"type": "tool_search", "execution": "server"},
        {"type": "shell", "environment": {"type": "container_auto"}},
        {"type": "file_search"},
    ],
)
def test_server_tools(definition: Any) -> None:
    (tool,) = parsed(definition)
    assert (tool.kind, tool.schema, tool.search) == (ToolKind.SERVER, None, None)


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (
            {"type": "web_search"},
            ToolChoice(
                ChoiceMode.NAMED,
                "web_search",
                kind=ToolKind.SERVER,
                extra=native({"type": "web_search"}),
            ),
        ),
        (
            {"type": "apply_patch"},
            ToolChoice(ChoiceMode.NAMED, "apply_patch", extra=native({"type": "apply_patch"})),
        ),
        (
            {"type": "file_search"},
            ToolChoice(ChoiceMode.PROVIDER_SPECIFIC, extra=native({"type": "file_search"})),
        ),
    ],
)
def test_tool_choice_by_type(choice: Any, expected: ToolChoice) -> None:
    assert parse_tool_choice(choice) == expected
