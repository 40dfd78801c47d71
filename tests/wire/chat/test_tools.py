"""Tools as chat upstreams get them, and the choice among them."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.core.formats import Format
from gateway.core.parts import CacheBreakpoint, ProviderData, Text, ToolCall
from gateway.core.prompt import (
    ChoiceMode,
    Prompt,
    Role,
    Tool,
    ToolChoice,
    ToolKind,
    Turn,
    WebSearch,
)
from gateway.core.target import Target
from gateway.errors import UnsupportedField
from gateway.wire.chat.tools import render_tools
from gateway.wire.prompt.dropped import Dropped

EMPTY = {"type": "object", "properties": {}}
SCHEMA = EMPTY | {"required": [], "additionalProperties": False}
F = Tool(kind=ToolKind.FUNCTION, name="f")
G = Tool(kind=ToolKind.FUNCTION, name="g")
SEARCH = Tool(
    kind=ToolKind.SERVER,
    name="web_search",
    search=WebSearch(allowed_domains=("a.org",), max_uses=5, client_executable=True),
)
CODE = Tool(kind=ToolKind.SERVER, name="code_execution")


def rendered(
    *tools: Tool,
    format: Format = Format.MESSAGES,
    turns: tuple[Turn, ...] = (),
    dropped_names: set[str] | None = None,
    custom_tools: bool = False,
    **fields: Any,
) -> dict[str, Any]:
    dropped = Dropped(Format.CHAT)
    prompt = Prompt(format=format, model="m", turns=turns, tools=tools, **fields)
    fields = render_tools(prompt, Target(model="m", custom_tools=custom_tools), dropped)
    assert dropped.names == (dropped_names or set())
    return fields


def function(name: str, **more: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": EMPTY} | more}


def test_no_tools() -> None:
    assert rendered(tool_choice=ToolChoice(ChoiceMode.AUTO), parallel_tool_calls=False) == {}


def test_functions() -> None:
    described = Tool(
        kind=ToolKind.FUNCTION,
        name="list.files",
        namespace="fs",
        description="Lists files",
        schema=SCHEMA,
        strict=True,
        cache=CacheBreakpoint(),
        extra=ProviderData(Format.MESSAGES, {"defer_loading": True}),
    )
    fields = rendered(F, described, dropped_names={"cache_marks", "tools.defer_loading"})
    (plain, named) = fields["tools"]
    assert plain == function("f")
    name = named["function"].pop("name")
    assert name.startswith("fs__list_files_")
    assert named == {
        "type": "function",
        "function": {"description": "Lists files", "parameters": SCHEMA, "strict": True},
    }


def test_strict_only_where_the_schema_allows_it() -> None:
    loose = Tool(kind=ToolKind.FUNCTION, name="f", schema=EMPTY, strict=True)
    assert rendered(loose, dropped_names={"tools.strict"}) == {"tools": [function("f")]}
    unstrict = Tool(kind=ToolKind.FUNCTION, name="f", schema=SCHEMA, strict=False)
    assert rendered(unstrict) == {"tools": [function("f", parameters=SCHEMA)]}


def test_custom_tools_native_and_as_function() -> None:
    grammar = {"syntax": "lark", "definition": 'start: "x"'}
    patch = Tool(kind=ToolKind.CUSTOM, name="patch", description="Edits.", grammar=grammar)
    bare = Tool(kind=ToolKind.CUSTOM, name="note")
    choice = ToolChoice(ChoiceMode.NAMED, name="patch", kind=ToolKind.CUSTOM)
    parameters = {
        "type": "object",
        "properties": {"input": {"type": "string"}},
        "required": ["input"],
    }
    note = "Put the whole input, as plain text, into `input`."
    assert rendered(patch, bare, format=Format.RESPONSES, tool_choice=choice) == {
        "tools": [
            function(
                "patch",
                description=f'Edits.\n\n{note}\n\nIt must fit this lark grammar:\nstart: "x"',
                parameters=parameters,
            ),
            function("note", description=note, parameters=parameters),
        ],
        "tool_choice": {"type": "function", "function": {"name": "patch"}},
    }
    native = rendered(patch, bare, format=Format.RESPONSES, tool_choice=choice, custom_tools=True)
    assert native == {
        "tools": [
            {
                "type": "custom",
                "custom": {
                    "name": "patch",
                    "description": "Edits.",
                    "format": {"type": "grammar", "grammar": grammar},
                },
            },
            {"type": "custom", "custom": {"name": "note"}},
        ],
        "tool_choice": {"type": "custom", "custom": {"name": "patch"}},
    }


def test_client_executed_search_becomes_a_function() -> None:
    (tool,) = rendered(SEARCH, dropped_names={"tools.allowed_domains", "tools.max_uses"})["tools"]
    assert tool["function"]["name"] == "web_search"
    assert tool["function"]["parameters"]["required"] == ["query"]
    choice = ToolChoice(ChoiceMode.NAMED, name="web_search")
    dropped_names = {"tools.allowed_domains", "tools.max_uses"}
    assert rendered(SEARCH, tool_choice=choice, dropped_names=dropped_names)["tool_choice"] == {
        "type": "function",
        "function": {"name": "web_search"},
    }


def test_server_tools_are_dropped() -> None:
    search = Tool(kind=ToolKind.SERVER, name="web_search", search=WebSearch())
    assert rendered(CODE, F, search, dropped_names={"code_execution", "web_search"}) == {
        "tools": [function("f")]
    }
    assert rendered(search, dropped_names={"web_search"}) == {}
    nothing = ToolChoice(ChoiceMode.NONE)
    assert rendered(CODE, tool_choice=nothing, dropped_names={"code_execution"}) == {}


@pytest.mark.parametrize(
    ("tools", "choice", "param"),
    [
        ((CODE,), None, "tools"),
        ((F, CODE), ToolChoice(ChoiceMode.NAMED, name="code_execution"), "tool_choice"),
        ((F,), ToolChoice(ChoiceMode.NAMED, name="g"), "tool_choice"),
        (
            (F,),
            ToolChoice(
                ChoiceMode.PROVIDER_SPECIFIC, extra=ProviderData(Format.RESPONSES, {"type": "mcp"})
            ),
            "tool_choice",
        ),
        (
            (Tool(kind=ToolKind.SERVER, name="web_search", search=WebSearch()),),
            ToolChoice(ChoiceMode.REQUIRED),
            "tool_choice",
        ),
    ],
)
def test_forced_tool_that_cannot_be_sent(
    tools: tuple[Tool, ...], choice: ToolChoice | None, param: str
) -> None:
    with pytest.raises(UnsupportedField) as refused:
        rendered(*tools, tool_choice=choice)
    assert refused.value.param == param


@pytest.mark.parametrize(
    ("choice", "fields"),
    [
        (None, None),
        (ToolChoice(ChoiceMode.AUTO), "auto"),
        (ToolChoice(ChoiceMode.NONE), "none"),
        (ToolChoice(ChoiceMode.REQUIRED), "required"),
        (
            ToolChoice(ChoiceMode.NAMED, name="g"),
            {"type": "function", "function": {"name": "g"}},
        ),
    ],
)
def test_choices(choice: ToolChoice | None, fields: Any) -> None:
    assert rendered(F, G, tool_choice=choice).get("tool_choice") == fields


def test_allowed_tools() -> None:
    choice = ToolChoice(ChoiceMode.REQUIRED, allowed=("g",))
    assert rendered(F, G, tool_choice=choice) == {
        "tools": [function("g")],
        "tool_choice": "required",
    }
    assert rendered(F, G, format=Format.CHAT, tool_choice=choice) == {
        "tools": [function("f"), function("g")],
        "tool_choice": {
            "type": "allowed_tools",
            "allowed_tools": {
                "mode": "required",
                "tools": [{"type": "function", "function": {"name": "g"}}],
            },
        },
    }


def test_parallel_calls() -> None:
    assert rendered(F, parallel_tool_calls=False)["parallel_tool_calls"] is False
    assert "parallel_tool_calls" not in rendered(F, parallel_tool_calls=True)
    native = rendered(F, format=Format.CHAT, parallel_tool_calls=True)
    assert native["parallel_tool_calls"] is True


def test_history_with_calls_gets_placeholder_tools() -> None:
    turns = (
        Turn(Role.USER, (Text("Hi"),)),
        Turn(Role.ASSISTANT, (ToolCall("c", "f", namespace="ns"),)),
    )
    assert rendered(turns=turns) == {"tools": [function("ns__f")], "tool_choice": "none"}


def test_chat_tool_definitions_round_trip() -> None:
    def native_tool(data: dict[str, Any], kind: ToolKind, name: str) -> Tool:
        search = WebSearch() if name == "web_search" else None
        definition = ProviderData(Format.CHAT, data)
        return Tool(kind=kind, name=name, search=search, definition=definition)

    malformed = function("my.tool") | {"cache_control": {"type": "ephemeral"}}
    custom = {"type": "custom", "custom": {"name": "patch"}}
    browser = {"type": "browser", "depth": 3}
    options = {"web_search_options": {"search_context_size": "low"}}
    choice = ToolChoice(ChoiceMode.AUTO, allowed=("browser",))
    fields = rendered(
        native_tool(malformed, ToolKind.FUNCTION, "my.tool"),
        native_tool(custom, ToolKind.CUSTOM, "patch"),
        native_tool(browser, ToolKind.SERVER, "browser"),
        native_tool({"name": "old"}, ToolKind.FUNCTION, "old"),
        native_tool(options, ToolKind.SERVER, "web_search"),
        format=Format.CHAT,
        tool_choice=choice,
    )
    renamed = fields["tools"][0]["function"]["name"]
    assert renamed.startswith("my_tool_")
    assert fields == {
        "tools": [
            function(renamed) | {"cache_control": {"type": "ephemeral"}},
            custom,
            browser,
            {"type": "function", "function": {"name": "old"}},
        ],
        "tool_choice": {
            "type": "allowed_tools",
            "allowed_tools": {"mode": "auto", "tools": [{"type": "browser"}]},
        },
        **options,
    }
    assert malformed["function"]["name"] == "my.tool"


def test_chat_tool_choice_round_trip() -> None:
    choice = ToolChoice(
        ChoiceMode.PROVIDER_SPECIFIC, extra=ProviderData(Format.CHAT, {"type": "browser"})
    )
    assert rendered(F, format=Format.CHAT, tool_choice=choice)["tool_choice"] == {"type": "browser"}
