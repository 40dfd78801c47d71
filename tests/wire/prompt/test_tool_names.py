"""Tools under names that every upstream accepts, and the tool choice."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.formats import Format
from gateway.core.parts import CallKind, ProviderData, Text, ToolCall
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
from gateway.errors import UnsupportedField
from gateway.wire.prompt.tool_names import (
    UpstreamTools,
    tool_type_name,
    tools_by_upstream_name,
    upstream_name,
)

READ = Tool(kind=ToolKind.FUNCTION, name="read")
PATCH = Tool(kind=ToolKind.CUSTOM, name="patch")
SEARCH = Tool(kind=ToolKind.SERVER, name="web_search")
LIST = Tool(kind=ToolKind.FUNCTION, name="list", namespace="files")


def prompt(*tools: Tool, choice: ToolChoice | None = None, calls: Any = ()) -> Prompt:
    turns = (Turn(Role.USER, (Text("hi"),)), Turn(Role.ASSISTANT, tuple(calls)))
    return Prompt(format=Format.CHAT, model="m", turns=turns, tools=tools, tool_choice=choice)


def test_upstream_names() -> None:
    assert upstream_name("read") == "read"
    assert upstream_name("list", "files") == "files__list"
    assert upstream_name("mcp.read:file") == "mcp_read_file_a4ae4507"
    assert len(upstream_name("x" * 60, "y" * 60)) == 64


@given(st.text(), st.none() | st.text())
def test_upstream_names_are_valid(name: str, namespace: str | None) -> None:
    assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", upstream_name(name, namespace))


def test_tools_by_upstream_name() -> None:
    box = UpstreamTools(prompt(READ, PATCH, SEARCH, LIST))
    assert box.tools == {"read": READ, "patch": PATCH, "web_search": SEARCH, "files__list": LIST}
    assert box.choice is None


def test_repeated_names() -> None:
    other = Tool(kind=ToolKind.CUSTOM, name="read")
    flat = Tool(kind=ToolKind.FUNCTION, name="files__list")
    assert UpstreamTools(prompt(READ, other, LIST, flat)).tools == {
        "read": READ,
        "files__list": LIST,
    }


def test_client_tools_by_upstream_name() -> None:
    assert tools_by_upstream_name([READ, SEARCH, LIST]) == {"read": READ, "files__list": LIST}


@pytest.mark.parametrize("mode", [ChoiceMode.AUTO, ChoiceMode.NONE, ChoiceMode.REQUIRED])
def test_open_choices_are_unchanged(mode: ChoiceMode) -> None:
    choice = ToolChoice(mode)
    assert UpstreamTools(prompt(READ, choice=choice)).choice is choice


@pytest.mark.parametrize("name", ["list", "files__list"])
def test_named_choices_get_the_upstream_name(name: str) -> None:
    box = UpstreamTools(prompt(READ, LIST, choice=ToolChoice(ChoiceMode.NAMED, name)))
    assert box.choice == ToolChoice(ChoiceMode.NAMED, "files__list")


def test_named_choices_get_the_kind_of_their_tool() -> None:
    box = UpstreamTools(prompt(PATCH, choice=ToolChoice(ChoiceMode.NAMED, "patch")))
    assert box.choice == ToolChoice(ChoiceMode.NAMED, "patch", kind=ToolKind.CUSTOM)


@pytest.mark.parametrize(
    ("tools", "choice"),
    [
        ([READ], ToolChoice(ChoiceMode.NAMED, "gone")),
        ([], ToolChoice(ChoiceMode.NAMED, "read")),
        ([], ToolChoice(ChoiceMode.REQUIRED)),
        ([READ], ToolChoice(ChoiceMode.REQUIRED, allowed=("gone",))),
        ([READ, PATCH], ToolChoice(ChoiceMode.NAMED, "read", allowed=("patch",))),
    ],
)
def test_forced_tools_must_exist(tools: list[Tool], choice: ToolChoice) -> None:
    with pytest.raises(UnsupportedField) as refused:
        UpstreamTools(prompt(*tools, choice=choice))
    assert refused.value.param == "tool_choice"


@pytest.mark.parametrize("mode", [ChoiceMode.AUTO, ChoiceMode.NONE])
def test_no_choice_without_tools(mode: ChoiceMode) -> None:
    box = UpstreamTools(prompt(choice=ToolChoice(mode)))
    assert (box.tools, box.choice) == ({}, None)


def test_provider_specific_choices_are_unchanged() -> None:
    choice = ToolChoice(
        ChoiceMode.PROVIDER_SPECIFIC, extra=ProviderData(Format.CHAT, {"type": "x"})
    )
    assert UpstreamTools(prompt(choice=choice)).choice is choice


def test_tools_are_narrowed_to_the_allowed() -> None:
    choice = ToolChoice(ChoiceMode.REQUIRED, allowed=("files__list", "patch", "gone"))
    box = UpstreamTools(prompt(READ, PATCH, LIST, choice=choice))
    assert box.tools == {"patch": PATCH, "files__list": LIST}
    assert box.choice is choice
    assert UpstreamTools(prompt(READ, PATCH, choice=choice), keep_all=True).tools.keys() == {
        "read",
        "patch",
    }


def test_history_with_calls_gets_placeholder_tools() -> None:
    calls = [
        ToolCall("1", "read"),
        ToolCall("2", "list", namespace="files"),
        ToolCall("3", "patch", "x", CallKind.CUSTOM),
        ToolCall("4", "read"),
    ]
    box = UpstreamTools(prompt(calls=calls))
    assert box.tools == {"read": READ, "files__list": LIST, "patch": PATCH}
    assert box.choice == ToolChoice(ChoiceMode.NONE)
    assert UpstreamTools(prompt(READ, calls=calls)).tools == {"read": READ}


@pytest.mark.parametrize(
    ("definition", "search", "requested"),
    [
        ({"type": "code_execution_20250825", "name": "x"}, None, "code_execution_20250825"),
        ({"type": "web_search_preview"}, WebSearch(), "web_search"),
        ({"name": "x"}, None, "x"),
        (None, None, "x"),
    ],
)
def test_tool_type_names(definition: Any, search: WebSearch | None, requested: str) -> None:
    own = ProviderData(Format.RESPONSES, definition) if definition else None
    tool = Tool(kind=ToolKind.SERVER, name="x", search=search, definition=own)
    assert tool_type_name(tool) == requested
