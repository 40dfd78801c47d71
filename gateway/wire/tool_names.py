"""A prompt's tools as any upstream can take them, and the way back from a call to its tool.

Upstreams want short plain names and know no namespaces. It must not know any format.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from gateway.core.parts import ToolCall
from gateway.core.prompt import ChoiceMode, Prompt, Tool, ToolChoice, ToolKind, Turn
from gateway.core.value import replace
from gateway.errors import UnsupportedField
from gateway.wire.ids import sanitize_name

JSON_OUTPUT_TOOL: Final = "json_output"
"""The tool that stands in for a schema of the answer; see `Rendering.json_tool`."""
CUSTOM_TOOL_ARG: Final = "input"
"""The one property of the function that a custom tool becomes where free text is not known."""


def upstream_name(name: str, namespace: str | None = None) -> str:
    """The name under which a tool, or a call of it in the history, goes upstream."""
    return sanitize_name(f"{namespace}__{name}" if namespace else name)


def tool_type_name(tool: Tool) -> str:
    """What a client calls a tool that has no other word: the type of its definition. Every kind of
    search of the web is one and the same."""
    if tool.search is not None:
        return "web_search"
    data = tool.definition.data if tool.definition else None
    kind = data.get("type") if isinstance(data, dict) else None
    return kind if isinstance(kind, str) else tool.name


class UpstreamTools:
    """`tools` are those to be sent, each by its sent name: the prompt's own but for repeated names,
    narrowed to what the choice allows unless `keep_all`; and a stub for every tool that the history
    calls where there would be none at all, for upstreams refuse such a history. `choice` is the
    prompt's, its name as sent; None where there is nothing to choose from.

    Raises `CannotConvert` where the choice forces a tool that is not there.
    """

    __slots__ = ("choice", "tools")

    def __init__(self, prompt: Prompt, *, keep_all: bool = False) -> None:
        tools = _unique(prompt.tools)
        choice = prompt.tool_choice
        if choice and choice.allowed is not None and not keep_all:
            allowed = set(choice.allowed)
            tools = {
                sent: tool
                for sent, tool in tools.items()
                if tool.name in allowed or sent in allowed
            }
        self.choice = _upstream_choice(choice, tools)
        if not tools and (stubs := _placeholder_tools(prompt)):
            tools, self.choice = stubs, ToolChoice(ChoiceMode.NONE)
        self.tools = tools


def has_tool_calls(turns: Iterable[Turn]) -> bool:
    """Whether the history holds a call of the client's tools."""
    for turn in turns:
        for part in turn.parts:
            if type(part) is ToolCall:
                return True
    return False


def tools_by_upstream_name(tools: Iterable[Tool]) -> dict[str, Tool]:
    """The client's tools by the names that an upstream's calls have."""
    return {sent: tool for sent, tool in _unique(tools).items() if tool.kind is not ToolKind.SERVER}


def _unique(tools: Iterable[Tool]) -> dict[str, Tool]:
    unique: dict[str, Tool] = {}
    for tool in tools:
        unique.setdefault(upstream_name(tool.name, tool.namespace), tool)
    return unique


def _upstream_choice(choice: ToolChoice | None, tools: dict[str, Tool]) -> ToolChoice | None:
    """The choice by sent name."""
    if choice is None or choice.mode is ChoiceMode.PROVIDER_SPECIFIC:
        return choice
    if choice.mode is ChoiceMode.NAMED:
        for sent, tool in tools.items():
            if choice.name in (tool.name, sent):
                return replace(choice, name=sent, kind=tool.kind)
        raise UnsupportedField("tool_choice", f"there is no tool '{choice.name}'")
    if choice.mode is ChoiceMode.REQUIRED and not tools:
        raise UnsupportedField("tool_choice", "there is no tool to call")
    return choice if tools else None


def _placeholder_tools(prompt: Prompt) -> dict[str, Tool]:
    called = (part for turn in prompt.turns for part in turn.parts if isinstance(part, ToolCall))
    return {
        upstream_name(call.name, call.namespace): Tool(
            kind=ToolKind(call.kind), name=call.name, namespace=call.namespace
        )
        for call in called
    }
