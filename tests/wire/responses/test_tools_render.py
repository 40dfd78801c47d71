"""Tools of other formats as definitions, and unchanged ones of this format."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.core.formats import Format
from gateway.core.parts import CacheBreakpoint, ProviderData
from gateway.core.prompt import ChoiceMode, Prompt, Tool, ToolChoice, ToolKind, WebSearch
from gateway.core.target import Target
from gateway.errors import UnsupportedField
from gateway.wire.prompt.dropped import Dropped
from gateway.wire.responses.parse_prompt import parse_prompt
from gateway.wire.responses.tools import render_tools

TARGET = Target(model="up", custom_tools=True)
EMPTY = {"type": "object", "properties": {}}
STRICT = {
    "type": "object",
    "properties": {"a": {"type": "string"}},
    "required": ["a"],
    "additionalProperties": False,
}


def rendered(
    *tools: Tool, target: Target = TARGET, **fields: Any
) -> tuple[dict[str, Any], set[str]]:
    dropped = Dropped(Format.RESPONSES)
    prompt = Prompt(format=Format.CHAT, model="m", turns=(), tools=tools, **fields)
    return render_tools(prompt, target, dropped), dropped.names


def tool(**fields: Any) -> Tool:
    return Tool(**({"kind": ToolKind.FUNCTION, "name": "f"} | fields))


def one(*tools: Tool, target: Target = TARGET) -> dict[str, Any]:
    body, dropped = rendered(*tools, target=target)
    assert dropped == set()
    (definition,) = body["tools"]
    assert isinstance(definition, dict)
    return definition


FUNCTION = {"type": "function", "name": "f", "parameters": EMPTY, "strict": False}
SERVER = tool(
    kind=ToolKind.SERVER,
    name="code_execution",
    definition=ProviderData(Format.MESSAGES, {"type": "code_execution_20250825"}),
)
SEARCH = tool(kind=ToolKind.SERVER, name="web_search", search=WebSearch())


def test_functions() -> None:
    assert one(tool()) == FUNCTION
    assert one(tool(description="D", schema=STRICT, strict=True)) == {
        "type": "function",
        "name": "f",
        "description": "D",
        "parameters": STRICT,
        "strict": True,
    }
    assert one(tool(schema={"$schema": "x", "properties": {}}))["parameters"] == EMPTY
    assert one(tool(name="a.b", namespace="n"))["name"].startswith("n__a_b_")


def test_schema_that_cannot_be_enforced() -> None:
    body, dropped = rendered(tool(strict=True, schema={"type": "object"}))
    assert body["tools"] == [FUNCTION]
    assert dropped == {"tools.strict"}


def test_custom_tools() -> None:
    grammar = {"syntax": "lark", "definition": "start: /a/"}
    custom = tool(kind=ToolKind.CUSTOM, name="p", description="D", grammar=grammar)
    assert one(custom) == {
        "type": "custom",
        "name": "p",
        "description": "D",
        "format": {"type": "grammar"} | grammar,
    }
    assert one(tool(kind=ToolKind.CUSTOM)) == {"type": "custom", "name": "f"}
    wrapped = one(custom, target=Target(model="up"))
    assert (wrapped["type"], wrapped["name"], wrapped["strict"]) == ("function", "p", False)
    assert wrapped["parameters"]["required"] == ["input"]
    assert wrapped["description"].startswith("D\n\n")
    assert wrapped["description"].endswith("It must follow this lark grammar:\nstart: /a/")


def test_web_search() -> None:
    assert one(SEARCH) == {"type": "web_search"}
    full = tool(
        kind=ToolKind.SERVER,
        name="web_search",
        search=WebSearch(
            allowed_domains=("a.org",),
            max_uses=8,
            location={"city": "Oslo"},
            context_size="low",
            client_executable=True,
        ),
    )
    body, dropped = rendered(full)
    assert body["tools"] == [
        {
            "type": "web_search",
            "filters": {"allowed_domains": ["a.org"]},
            "user_location": {"type": "approximate", "city": "Oslo"},
            "search_context_size": "low",
        }
    ]
    assert body["max_tool_calls"] == 8
    assert dropped == set()


def test_a_search_with_blocked_domains_is_refused() -> None:
    search = WebSearch(blocked_domains=("b.org",), client_executable=True)
    with pytest.raises(UnsupportedField) as refused:
        rendered(tool(kind=ToolKind.SERVER, name="web_search", search=search))
    assert refused.value.param == "tools.blocked_domains"


def test_unsupported_parts_are_recorded() -> None:
    body, dropped = rendered(
        SERVER,
        tool(cache=CacheBreakpoint(), extra=ProviderData(Format.MESSAGES, {"input_examples": [1]})),
    )
    assert body == {"tools": [FUNCTION]}
    assert dropped == {"code_execution_20250825", "cache_marks", "tools.input_examples"}
    assert rendered(SERVER, tool_choice=ToolChoice(ChoiceMode.NONE))[0] == {}
    assert rendered()[0] == {}


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (ToolChoice(ChoiceMode.AUTO), "auto"),
        (ToolChoice(ChoiceMode.NONE), "none"),
        (ToolChoice(ChoiceMode.REQUIRED), "required"),
        (ToolChoice(ChoiceMode.NAMED, "f"), {"type": "function", "name": "f"}),
        (ToolChoice(ChoiceMode.NAMED, "p"), {"type": "custom", "name": "p"}),
        (
            ToolChoice(ChoiceMode.NAMED, "web_search"),
            {"type": "allowed_tools", "mode": "required", "tools": [{"type": "web_search"}]},
        ),
        (
            ToolChoice(ChoiceMode.AUTO, allowed=("p", "web_search", "gone")),
            {
                "type": "allowed_tools",
                "mode": "auto",
                "tools": [{"type": "custom", "name": "p"}, {"type": "web_search"}],
            },
        ),
    ],
)
def test_choices(choice: ToolChoice, expected: Any) -> None:
    custom = tool(kind=ToolKind.CUSTOM, name="p")
    body, dropped = rendered(tool(), custom, SEARCH, tool_choice=choice, parallel_tool_calls=False)
    assert body["tool_choice"] == expected
    assert body["parallel_tool_calls"] is False
    assert len(body["tools"]) == 3
    assert dropped == set()


@pytest.mark.parametrize(
    ("tools", "choice"),
    [
        ([tool(), SERVER], ToolChoice(ChoiceMode.NAMED, "code_execution")),
        ([tool()], ToolChoice(ChoiceMode.NAMED, "gone")),
        ([SERVER], ToolChoice(ChoiceMode.REQUIRED)),
        ([tool(), SERVER], ToolChoice(ChoiceMode.AUTO, allowed=("code_execution",))),
        (
            [tool()],
            ToolChoice(
                ChoiceMode.PROVIDER_SPECIFIC, extra=ProviderData(Format.CHAT, {"type": "x"})
            ),
        ),
    ],
)
def test_impossible_choices(tools: list[Tool], choice: ToolChoice) -> None:
    with pytest.raises(UnsupportedField) as refused:
        rendered(*tools, tool_choice=choice)
    assert refused.value.param == "tool_choice"


def test_unsupported_tools() -> None:
    """Dropped where there are other tools, or none may be called; else an error."""
    with pytest.raises(UnsupportedField) as refused:
        rendered(SERVER)
    assert refused.value.param == "tools"
    nothing = ToolChoice(ChoiceMode.NONE)
    assert rendered(SERVER, tool_choice=nothing)[1] == {"code_execution_20250825"}


NATIVE_TOOLS: list[dict[str, Any]] = [
    {"type": "function", "name": "f", "parameters": {}, "defer_loading": True},
    {
        "type": "namespace",
        "name": "n",
        "description": "D",
        "tools": [
            {"type": "function", "name": "g", "description": "G"},
            {"type": "custom", "name": "h"},
        ],
    },
    {"type": "shell"},
    {"type": "mcp", "server_label": "x"},
    {"type": "custom", "name": "p", "format": {"type": "grammar", "definition": "a"}},
]


def same_format(target: Target = TARGET, **fields: Any) -> dict[str, Any]:
    dropped = Dropped(Format.RESPONSES)
    body = render_tools(parse_prompt({"model": "m", "input": "hi"} | fields), target, dropped)
    assert dropped.names == set()
    return body


@pytest.mark.parametrize(
    "choice",
    [
        "auto",
        "whim",
        {"type": "function", "name": "f"},
        {"type": "custom", "name": "p"},
        {"type": "web_search_preview"},
        {"type": "shell"},
        {"type": "mcp", "server_label": "x"},
        {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "f"}]},
    ],
)
def test_same_format_tools_are_unchanged(choice: Any) -> None:
    request = {"tools": NATIVE_TOOLS, "tool_choice": choice, "parallel_tool_calls": True}
    assert same_format(**request) == request


def test_same_format_tools_within_the_input() -> None:
    function = {"type": "function", "name": "f"}
    more = {"type": "additional_tools", "role": "developer", "tools": [function]}
    assert same_format(input=[more]) == {"tools": [function]}
    search_output = {"type": "tool_search_output", "call_id": "c", "tools": [function]}
    assert same_format(input=[search_output]) == {}, "they stay in their item"


def test_same_format_custom_tools_as_functions() -> None:
    body = same_format(
        Target(model="up"), tools=NATIVE_TOOLS, tool_choice={"type": "custom", "name": "p"}
    )
    f, space, shell, mcp, p = body["tools"]
    assert [f, shell, mcp] == [NATIVE_TOOLS[0], NATIVE_TOOLS[2], NATIVE_TOOLS[3]]
    assert [inner["type"] for inner in space["tools"]] == ["function", "function"]
    assert (p["type"], p["name"]) == ("function", "p")
    assert body["tool_choice"] == {"type": "function", "name": "p"}
    assert NATIVE_TOOLS[1]["tools"][1]["type"] == "custom", "what the client sent is not touched"
