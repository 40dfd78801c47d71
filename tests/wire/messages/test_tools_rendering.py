"""Tools and tool choices of all formats as definitions of this one."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.core.formats import Format
from gateway.core.parts import CacheBreakpoint, CallKind, ProviderData, Text, ToolCall
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
from gateway.wire.messages.tools import is_forced, parse_tools, render_tool_choice, render_tools
from gateway.wire.prompt.dropped import Dropped
from gateway.wire.prompt.tool_names import UpstreamTools

CITY = {"type": "object", "properties": {"city": {"type": "string"}}}
EMPTY = {"type": "object", "properties": {}}
F = Tool(kind=ToolKind.FUNCTION, name="f")
G = Tool(kind=ToolKind.FUNCTION, name="g", schema=CITY)
SEARCH = Tool(
    kind=ToolKind.SERVER,
    name="web_search",
    search=WebSearch(),
    definition=ProviderData(Format.RESPONSES, {"type": "web_search"}),
)
INTERPRETER = Tool(
    kind=ToolKind.SERVER,
    name="box",
    definition=ProviderData(Format.RESPONSES, {"type": "code_interpreter"}),
)
NEEDED = ToolChoice(ChoiceMode.REQUIRED)


def rendered(
    *tools: Tool,
    choice: ToolChoice | None = None,
    parallel: bool | None = None,
    target: Target | None = None,
    format: Format = Format.RESPONSES,
    turns: tuple[Turn, ...] = (),
) -> tuple[list[Any], Any, set[str]]:
    prompt = Prompt(
        format=format,
        model="m",
        turns=turns,
        tools=tools,
        tool_choice=choice,
        parallel_tool_calls=parallel,
    )
    dropped = Dropped(Format.MESSAGES)
    box = UpstreamTools(prompt)
    sent = render_tools(box, prompt, target or Target(model="m"), dropped)
    return sent, render_tool_choice(box, prompt, sent, dropped), dropped.names


def only(tool: Tool, target: Target | None = None) -> tuple[Any, set[str]]:
    (sent,), _, dropped_names = rendered(tool, target=target)
    return sent, dropped_names


def test_functions() -> None:
    tool = Tool(
        kind=ToolKind.FUNCTION,
        name="weather",
        description="Weather of a city",
        schema=CITY | {"$schema": "x"},
        strict=False,
        namespace="out",
        extra=ProviderData(Format.RESPONSES, {"defer_loading": True}),
    )
    assert only(tool) == (
        {"name": "out__weather", "description": "Weather of a city", "input_schema": CITY},
        {"tools.defer_loading"},
    )
    assert only(F) == ({"name": "f", "input_schema": EMPTY}, set())


def test_strict_functions_where_supported() -> None:
    strict = Tool(kind=ToolKind.FUNCTION, name="f", schema=CITY, strict=True)
    closed = CITY | {"required": [], "additionalProperties": False}
    assert only(strict) == ({"name": "f", "input_schema": closed, "strict": True}, set())
    assert only(strict, Target(model="m", structured=False)) == (
        {"name": "f", "input_schema": CITY},
        {"tools.strict"},
    )


def test_custom_tool_becomes_a_function_of_one_string() -> None:
    custom = Tool(
        kind=ToolKind.CUSTOM,
        name="apply_patch",
        description="Edits files.",
        grammar={"syntax": "lark", "definition": 'start: "x"'},
    )
    sent, dropped_names = only(custom)
    assert sent == {
        "name": "apply_patch",
        "description": "Edits files.\n\n"
        "'input' is the tool's whole input, as plain text.\n\n"
        'It must follow this lark grammar:\nstart: "x"',
        "input_schema": {
            "type": "object",
            "properties": {"input": {"type": "string"}},
            "required": ["input"],
        },
    }
    assert dropped_names == set()


def test_web_searches() -> None:
    full = WebSearch(
        allowed_domains=("a.example",),
        max_uses=3,
        location={"city": "Oslo", "country": "NO"},
        context_size="high",
    )
    search = {"type": "web_search_20250305", "name": "web_search"}
    assert only(Tool(kind=ToolKind.SERVER, name="web_search", search=full)) == (
        search
        | {
            "max_uses": 3,
            "allowed_domains": ["a.example"],
            "user_location": {"type": "approximate", "city": "Oslo", "country": "NO"},
        },
        {"tools.search_context_size"},
    )
    blocking = WebSearch(blocked_domains=("b.example",), context_size="medium")
    assert only(Tool(kind=ToolKind.SERVER, name="s", search=blocking)) == (
        search | {"blocked_domains": ["b.example"]},
        set(),
    )


def test_other_server_tools_are_dropped() -> None:
    sent, choice, dropped_names = rendered(F, INTERPRETER)
    assert [tool["name"] for tool in sent] == ["f"]
    assert (choice, dropped_names) == (None, {"code_interpreter"})


def test_no_remaining_tools_are_refused() -> None:
    with pytest.raises(UnsupportedField) as refused:
        rendered(INTERPRETER)
    assert refused.value.param == "tools"
    none = ToolChoice(ChoiceMode.NONE)
    assert rendered(INTERPRETER, choice=none) == ([], None, {"code_interpreter"})


def test_native_tools_are_unchanged() -> None:
    definitions: list[Any] = [
        {
            "name": "f",
            "input_schema": {"anyOf": []},
            "input_examples": [1],
            "cache_control": {"type": "ephemeral"},
        },
        {"type": "bash_20250124", "name": "bash"},
        {"type": "mcp_toolset", "mcp_server_name": "files"},
        {"type": "web_search_20260209", "name": "web_search", "max_uses": 2},
    ]
    tools = parse_tools({"tools": definitions})
    sent, _, dropped_names = rendered(*tools, format=Format.MESSAGES)
    assert sent == definitions
    assert dropped_names == set()
    (renamed,), _, _ = rendered(
        *parse_tools({"tools": [{"name": "a.b", "input_schema": {}}]}), format=Format.MESSAGES
    )
    assert renamed == {"name": "a_b_2e7336dc", "input_schema": {}}


def test_cache_breakpoints_on_tools() -> None:
    marked = Tool(kind=ToolKind.FUNCTION, name="f", cache=CacheBreakpoint("1h"))
    assert only(marked) == ({"name": "f", "input_schema": EMPTY}, {"cache_marks"})
    assert only(marked, Target(model="m", cache_marks=True)) == (
        {
            "name": "f",
            "input_schema": EMPTY,
            "cache_control": {"type": "ephemeral", "ttl": "1h"},
        },
        set(),
    )


def test_history_with_calls_gets_placeholder_tools() -> None:
    called = (
        ToolCall("1", "f"),
        ToolCall("2", "patch", "x", CallKind.CUSTOM),
        ToolCall("3", "f"),
        Text("x"),
    )
    sent, choice, dropped_names = rendered(turns=(Turn(Role.ASSISTANT, called),))
    assert [tool["name"] for tool in sent] == ["f", "patch"]
    assert choice == {"type": "none"}
    assert dropped_names == set()


@pytest.mark.parametrize(
    ("choice", "parallel", "expected"),
    [
        (None, None, None),
        (None, True, None),
        (None, False, {"type": "auto", "disable_parallel_tool_use": True}),
        (ToolChoice(ChoiceMode.AUTO), None, {"type": "auto"}),
        (ToolChoice(ChoiceMode.NONE), False, {"type": "none"}),
        (NEEDED, None, {"type": "any"}),
        (NEEDED, False, {"type": "any", "disable_parallel_tool_use": True}),
        (ToolChoice(ChoiceMode.NAMED, "g"), None, {"type": "tool", "name": "g"}),
        (
            ToolChoice(ChoiceMode.NAMED, "web_search", ToolKind.SERVER),
            False,
            {"type": "tool", "name": "web_search", "disable_parallel_tool_use": True},
        ),
    ],
)
def test_choices(choice: ToolChoice | None, parallel: bool | None, expected: Any) -> None:
    _, sent, dropped_names = rendered(F, G, SEARCH, choice=choice, parallel=parallel)
    assert sent == expected
    assert dropped_names == set()


def test_only_allowed_tools_are_sent() -> None:
    allowed = ToolChoice(ChoiceMode.REQUIRED, allowed=("g", "web_search"))
    sent, choice, dropped_names = rendered(F, G, SEARCH, choice=allowed)
    assert [tool["name"] for tool in sent] == ["g", "web_search"]
    assert (choice, dropped_names) == ({"type": "any"}, set())


@pytest.mark.parametrize(
    "choice",
    [
        ToolChoice(ChoiceMode.NAMED, "box", ToolKind.SERVER),
        ToolChoice(ChoiceMode.NAMED, "missing"),
        ToolChoice(ChoiceMode.PROVIDER_SPECIFIC, extra=ProviderData(Format.CHAT, "whim")),
    ],
)
def test_impossible_choices_are_refused(choice: ToolChoice) -> None:
    with pytest.raises(UnsupportedField) as refused:
        rendered(F, INTERPRETER, choice=choice)
    assert refused.value.param == "tool_choice"


def test_native_choices_are_unchanged() -> None:
    whim = {"type": "whim"}
    choice = ToolChoice(ChoiceMode.PROVIDER_SPECIFIC, extra=ProviderData(Format.MESSAGES, whim))
    assert rendered(F, choice=choice)[1] == whim


def test_no_choice_without_tools() -> None:
    assert rendered(choice=ToolChoice(ChoiceMode.AUTO), parallel=False) == ([], None, set())


def test_is_forced() -> None:
    kinds = ["auto", "none", "any", "tool"]
    assert [is_forced({"type": kind}) for kind in kinds] == [False, False, True, True]
    assert not is_forced(None)
