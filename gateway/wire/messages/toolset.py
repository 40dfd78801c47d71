"""A prompt's tools and its choice among them, as messages requests say it.

It must not know the conversation or the answer's form.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from gateway.core.formats import Format
from gateway.core.prompt import ChoiceMode, Prompt, Tool, ToolChoice, ToolKind, WebSearch
from gateway.core.target import Target
from gateway.errors import UnsupportedField
from gateway.wire.crossing import Dropped
from gateway.wire.fields import Payload
from gateway.wire.json_schema import messages_schema, parameters_schema
from gateway.wire.messages.marks import render_cache_breakpoint
from gateway.wire.toolbox import CUSTOM_TOOL_ARG, UpstreamTools, tool_type_name

_SEARCH_TOOL: Final = {"type": "web_search_20250305", "name": "web_search"}
_CHOICE_NAMES: Final = {
    ChoiceMode.AUTO: "auto",
    ChoiceMode.REQUIRED: "any",
    ChoiceMode.NONE: "none",
    ChoiceMode.NAMED: "tool",
}


def render_tools(box: UpstreamTools, prompt: Prompt, target: Target, losses: Dropped) -> list[Payload]:
    """Raises `CannotConvert` where none of the tools that were asked for is known here."""
    marks = target.cache_marks or prompt.format is Format.MESSAGES
    tools: list[Payload] = []
    for sent, tool in box.tools.items():
        block = _render_tool(sent, tool, target, losses)
        if block is None:
            continue
        if tool.cache and not marks:
            losses.drop("cache_marks")
        elif tool.cache:
            block["cache_control"] = render_cache_breakpoint(tool.cache)
        tools.append(block)
    asked = box.choice is None or box.choice.mode is not ChoiceMode.NONE
    if box.tools and not tools and asked:
        raise UnsupportedField("tools", "the model's upstream has none of these")
    return tools


def render_tool_choice(
    box: UpstreamTools, prompt: Prompt, tools: Iterable[Payload], losses: Dropped
) -> Payload | None:
    """None where the choice is free. Raises `CannotConvert` where it is one that cannot be had."""
    single = prompt.parallel_tool_calls is False
    choice = box.choice
    if not tools:
        return None
    if choice is None:
        return {"type": "auto", "disable_parallel_tool_use": True} if single else None
    if choice.mode is ChoiceMode.PROVIDER_SPECIFIC:
        return _native_choice(choice, losses)
    said: Payload = {"type": _CHOICE_NAMES[choice.mode]}
    if choice.mode is ChoiceMode.NAMED:
        if not any(tool.get("name") == choice.name for tool in tools):
            raise UnsupportedField("tool_choice", f"the upstream has no tool '{choice.name}'")
        said["name"] = choice.name
    if single and choice.mode is not ChoiceMode.NONE:
        said["disable_parallel_tool_use"] = True
    return said


def is_forced(choice: Payload | None) -> bool:
    return choice is not None and choice["type"] in ("any", "tool")


def as_auto(choice: Payload) -> Payload:
    """The same choice where the model cannot be forced."""
    return {name: value for name, value in choice.items() if name != "name"} | {"type": "auto"}


def _native_choice(choice: ToolChoice, losses: Dropped) -> Payload:
    own: Payload | None = losses.native_value(choice.extra, "tool_choice")
    if own is None:
        raise UnsupportedField("tool_choice", "the model's upstream knows no such choice")
    return own


def _render_tool(sent: str, tool: Tool, target: Target, losses: Dropped) -> Payload | None:
    definition = tool.definition
    if definition is not None and definition.format is Format.MESSAGES:
        own: Payload = definition.data
        return own | {"name": sent} if "input_schema" in own else dict(own)
    losses.native_fields(tool.extra, "tools.")
    if tool.kind is ToolKind.SERVER:
        if tool.search is not None:
            return _render_search(tool.search, losses)
        losses.drop(tool_type_name(tool))
        return None
    if tool.kind is ToolKind.CUSTOM:
        return _custom_as_function(sent, tool)
    return _render_function(sent, tool, target, losses)


def _render_function(sent: str, tool: Tool, target: Target, losses: Dropped) -> Payload:
    block: Payload = {"name": sent}
    if tool.description:
        block["description"] = tool.description
    block["input_schema"] = parameters_schema(tool.schema)
    if tool.strict:
        enforced = messages_schema(block["input_schema"]) if target.structured else None
        if enforced is None:
            losses.drop("tools.strict")
        else:
            block |= {"input_schema": enforced, "strict": True}
    return block


def _custom_as_function(sent: str, tool: Tool) -> Payload:
    """A tool for free text as a function of one string, with its grammar told in words."""
    told = [tool.description] if tool.description else []
    told.append(f"'{CUSTOM_TOOL_ARG}' is the tool's whole input, as plain text.")
    if tool.grammar:
        syntax, grammar = tool.grammar.get("syntax"), tool.grammar.get("definition")
        told.append(f"It must follow this {syntax or ''} grammar:\n{grammar}")
    schema = {"type": "object", "properties": {CUSTOM_TOOL_ARG: {"type": "string"}}, "required": [CUSTOM_TOOL_ARG]}
    return {"name": sent, "description": "\n\n".join(told), "input_schema": schema}


def _render_search(search: WebSearch, losses: Dropped) -> Payload:
    tool: Payload = dict(_SEARCH_TOOL)
    if search.max_uses is not None:
        tool["max_uses"] = search.max_uses
    if search.allowed_domains:
        tool["allowed_domains"] = list(search.allowed_domains)
        if search.blocked_domains:
            losses.drop("tools.blocked_domains")
    elif search.blocked_domains:
        tool["blocked_domains"] = list(search.blocked_domains)
    if search.location:
        tool["user_location"] = {"type": "approximate", **search.location}
    if search.context_size not in (None, "medium"):
        losses.drop("tools.search_context_size")
    return tool
