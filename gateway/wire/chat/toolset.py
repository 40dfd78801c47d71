"""Renders a prompt's tools, and the choice among them, for a chat upstream.

It must not know turns or replies.
"""

from __future__ import annotations

from typing import Any, Final

from gateway.core.formats import Format
from gateway.core.prompt import ChoiceMode, Prompt, Tool, ToolChoice, ToolKind, WebSearch
from gateway.core.target import Target
from gateway.errors import UnsupportedField
from gateway.wire.chat.tools import SEARCH_FIELD
from gateway.wire.crossing import Dropped
from gateway.wire.fields import Payload
from gateway.wire.json_schema import is_strict, parameters_schema
from gateway.wire.toolbox import CUSTOM_TOOL_ARG, UpstreamTools, tool_type_name

_STRING_SCHEMA: Final = {"type": "string"}
_QUERY_SCHEMA: Final = {
    "type": "object",
    "properties": {"query": _STRING_SCHEMA | {"description": "What to search for."}},
    "required": ["query"],
}
_CUSTOM_INSTRUCTION: Final = f"Put the whole input, as plain text, into `{CUSTOM_TOOL_ARG}`."


def render_tools(prompt: Prompt, target: Target, losses: Dropped) -> Payload:
    """The fields `tools`, `tool_choice` and `parallel_tool_calls`, as far as there is anything to
    say in them. Raises `CannotConvert` where a tool is forced that cannot be sent."""
    own = prompt.format is Format.CHAT
    box = UpstreamTools(prompt, keep_all=own)
    fields: Payload = {}
    tools: dict[str, Payload] = {}
    for name, tool in box.tools.items():
        definition = tool.definition
        if definition is None or definition.format is not Format.CHAT:
            rendered = _render_tool(name, tool, target, losses)
        elif SEARCH_FIELD in definition.data:
            rendered = None
            fields |= definition.data
        else:
            rendered = _native_definition(name, tool, definition.data)
        if rendered is not None:
            tools[name] = rendered
    if not own:
        _check_any_tools(box, tools)
    if box.choice and SEARCH_FIELD not in fields:
        _check_choice(box.choice, tools, same_format=own)
    if not tools:
        return fields
    fields["tools"] = list(tools.values())
    if box.choice:
        allowed = box.choice.allowed if own else None  # else the tools are narrowed to these
        fields["tool_choice"] = _render_tool_choice(box.choice, tools, allowed, box.tools)
    if prompt.parallel_tool_calls is False or (own and prompt.parallel_tool_calls):
        fields["parallel_tool_calls"] = prompt.parallel_tool_calls
    return fields


def _native_definition(name: str, tool: Tool, definition: Payload) -> Payload:
    """The format's own definition; deprecated functions become tools."""
    kind = tool.kind
    if kind is ToolKind.SERVER:
        return definition
    if kind not in definition:
        definition = {"type": "function", "function": definition}
    if name != tool.name:
        definition = definition | {kind: definition[kind] | {"name": name}}
    return definition


def _render_tool(name: str, tool: Tool, target: Target, losses: Dropped) -> Payload | None:
    if tool.kind is ToolKind.SERVER:
        return _render_search(name, tool, losses)
    losses.native_fields(tool.extra, "tools.")
    if tool.cache:
        losses.drop("cache_marks")
    if tool.kind is ToolKind.CUSTOM:
        return _render_custom(name, tool, target)
    function: Payload = {"name": name}
    if tool.description is not None:
        function["description"] = tool.description
    function["parameters"] = parameters_schema(tool.schema)
    if tool.strict:
        if is_strict(function["parameters"]):
            function["strict"] = True
        else:
            losses.drop("tools.strict")
    return {"type": "function", "function": function}


def _render_custom(name: str, tool: Tool, target: Target) -> Payload:
    """As it is where free text is known, else a function of one text."""
    if target.custom_tools:
        custom: Payload = {"name": name}
        if tool.description is not None:
            custom["description"] = tool.description
        if tool.grammar is not None:
            custom["format"] = {"type": "grammar", "grammar": tool.grammar}
        return {"type": "custom", "custom": custom}
    description = [tool.description, _CUSTOM_INSTRUCTION]
    if tool.grammar is not None:
        syntax, definition = tool.grammar.get("syntax"), tool.grammar.get("definition")
        description.append(f"It must fit this {syntax} grammar:\n{definition}")
    function = {
        "name": name,
        "description": "\n\n".join(filter(None, description)),
        "parameters": {"type": "object", "properties": {CUSTOM_TOOL_ARG: _STRING_SCHEMA}, "required": [CUSTOM_TOOL_ARG]},
    }
    return {"type": "function", "function": function}


def _render_search(name: str, tool: Tool, losses: Dropped) -> Payload | None:
    """A web search that the client also takes as a call of its own becomes one; every other tool
    that an upstream would have to run is lost."""
    search = tool.search
    if search is None or not search.client_executable:
        losses.drop(tool_type_name(tool))
        return None
    _drop_search_options(search, losses)
    if tool.cache:
        losses.drop("cache_marks")
    description = tool.description or "Searches the web."
    function = {"name": name, "description": description, "parameters": _QUERY_SCHEMA}
    return {"type": "function", "function": function}


def _drop_search_options(search: WebSearch, losses: Dropped) -> None:
    wishes: dict[str, Any] = {
        "allowed_domains": search.allowed_domains or None,
        "blocked_domains": search.blocked_domains or None,
        "max_uses": search.max_uses,
        "user_location": search.location,
        "search_context_size": search.context_size,
    }
    losses.names.update(f"tools.{wish}" for wish, value in wishes.items() if value is not None)


def _check_any_tools(box: UpstreamTools, tools: dict[str, Payload]) -> None:
    """A model that can only search answers without; one whose only tools are others' work cannot
    do what it is asked for."""
    if box.choice and box.choice.mode is ChoiceMode.NONE:
        return
    if box.tools and not tools and not any(tool.search for tool in box.tools.values()):
        raise UnsupportedField("tools", "none of them can be sent to this upstream")


def _check_choice(choice: ToolChoice, tools: dict[str, Payload], *, same_format: bool) -> None:
    if choice.mode is ChoiceMode.PROVIDER_SPECIFIC and not same_format:
        raise UnsupportedField("tool_choice", "this upstream knows no such choice")
    if choice.mode is ChoiceMode.NAMED and choice.name not in tools:
        raise UnsupportedField("tool_choice", f"the tool '{choice.name}' cannot be sent")
    if choice.mode is ChoiceMode.REQUIRED and not tools:
        raise UnsupportedField("tool_choice", "none of the tools can be sent")


def _render_tool_choice(
    choice: ToolChoice,
    tools: dict[str, Payload],
    allowed: tuple[str, ...] | None,
    box: dict[str, Tool],
) -> Any:
    if choice.mode is ChoiceMode.PROVIDER_SPECIFIC:
        return choice.extra.data if choice.extra else "auto"
    if choice.mode is ChoiceMode.NAMED:
        return _tool_ref(tools[choice.name or ""])
    if allowed is None:
        return str(choice.mode)
    pointers = [
        _tool_ref(tools[name])
        for name, tool in box.items()
        if name in tools and (name in allowed or tool.name in allowed)
    ]
    return {"type": "allowed_tools", "allowed_tools": {"mode": str(choice.mode), "tools": pointers}}


def _tool_ref(tool: Payload) -> Payload:
    kind = tool["type"]
    return {"type": kind, kind: {"name": tool[kind]["name"]}} if kind in tool else {"type": kind}
