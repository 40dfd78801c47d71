"""Reads the tools of chat requests, and the choice among them. It must not know any turns.

Renders a prompt's tools, and the choice among them, for a chat upstream.

It must not know turns or replies.
"""

from __future__ import annotations

from typing import Any, Final

from gateway.core.formats import Format
from gateway.core.parts import ProviderData
from gateway.core.prompt import ChoiceMode, Prompt, Tool, ToolChoice, ToolKind, WebSearch
from gateway.core.target import Target
from gateway.wire.chat.content import CACHE_FIELDS, parse_cache_breakpoint
from gateway.wire.dropped import Dropped
from gateway.wire.json_fields import (
    Payload,
    as_list,
    as_object,
    invalid_field,
    lenient_object,
    lenient_str,
    optional_bool,
    optional_list,
    optional_object,
    optional_str,
    required,
    required_str,
)
from gateway.wire.json_schema import is_strict, parameters_schema
from gateway.wire.render_rules import (
    CUSTOM_TOOL_SCHEMA,
    check_any_tool,
    check_choice,
    describe_custom_tool,
    search_options,
)
from gateway.wire.tool_names import UpstreamTools, tool_type_name

SEARCH_TYPE: Final = "web_search"
SEARCH_FIELD: Final = "web_search_options"

_TOOL_FIELDS: Final = {
    *("type", "function", "custom", *CACHE_FIELDS),
    *("name", "description", "parameters", "strict", "format"),
}


def parse_tools(body: Payload) -> tuple[Tool, ...]:
    """`tools`, the deprecated `functions`, and the search that has a field of its own."""
    tools = [
        _parse_tool(as_object(tool, f"tools.{index}"), f"tools.{index}")
        for index, tool in enumerate(optional_list(body, "tools") or ())
    ]
    for index, function in enumerate(optional_list(body, "functions") or ()):
        path = f"functions.{index}"
        tools.append(_parse_function(as_object(function, path), path, function))
    search = optional_object(body, SEARCH_FIELD)
    if search is not None:
        tools.append(_parse_search(SEARCH_TYPE, search, {SEARCH_FIELD: search}))
    return tuple(tools)


def parse_tool_choice(body: Payload) -> ToolChoice | None:
    """`tool_choice`, else the deprecated `function_call`."""
    choice = body.get("tool_choice")
    if choice is None:
        return _parse_function_call(body)
    if isinstance(choice, str):
        return _parse_mode(choice)
    path = "tool_choice"
    said = as_object(choice, path)
    match required_str(said, "type", path):
        case "function" | "custom" as kind:
            named = as_object(required(said, kind, path), f"{path}.{kind}")
            return ToolChoice(
                ChoiceMode.NAMED,
                name=required_str(named, "name", f"{path}.{kind}"),
                kind=ToolKind(kind),
            )
        case "allowed_tools":
            return _parse_allowed_tools(said, path)
        case _:
            return ToolChoice(ChoiceMode.PROVIDER_SPECIFIC, extra=ProviderData(Format.CHAT, choice))


def _parse_tool(tool: Payload, path: str) -> Tool:
    kind = required_str(tool, "type", path)
    if kind not in ("function", "custom"):
        if kind.startswith(SEARCH_TYPE):
            return _parse_search(kind, tool, tool)
        return Tool(kind=ToolKind.SERVER, name=kind, definition=ProviderData(Format.CHAT, tool))
    said = as_object(required(tool, kind, path), f"{path}.{kind}")
    parse = _parse_function if kind == "function" else _parse_custom
    return parse(said, f"{path}.{kind}", tool)


def _parse_search(name: str, said: Payload, definition: Payload) -> Tool:
    """Where the searcher is stands within an object of its own, or is spread out."""
    location = lenient_object(said.get("user_location"))
    location = lenient_object(location.get("approximate")) or location
    place = {name: value for name, value in location.items() if name != "type" and value}
    search = WebSearch(
        location=place or None, context_size=lenient_str(said.get("search_context_size")) or None
    )
    return Tool(
        kind=ToolKind.SERVER,
        name=name,
        search=search,
        definition=ProviderData(Format.CHAT, definition),
    )


def _parse_function(function: Payload, path: str, definition: Payload) -> Tool:
    return Tool(
        kind=ToolKind.FUNCTION,
        name=required_str(function, "name", path),
        description=optional_str(function, "description", path),
        schema=optional_object(function, "parameters", path),
        strict=optional_bool(function, "strict", path),
        cache=parse_cache_breakpoint(definition),
        extra=ProviderData.unknown_set_fields(Format.CHAT, definition | function, _TOOL_FIELDS),
        definition=ProviderData(Format.CHAT, definition),
    )


def _parse_custom(custom: Payload, path: str, definition: Payload) -> Tool:
    form = optional_object(custom, "format", path) or {}
    return Tool(
        kind=ToolKind.CUSTOM,
        name=required_str(custom, "name", path),
        description=optional_str(custom, "description", path),
        grammar=optional_object(form, "grammar", f"{path}.format"),
        cache=parse_cache_breakpoint(definition),
        extra=ProviderData.unknown_set_fields(Format.CHAT, definition | custom, _TOOL_FIELDS),
        definition=ProviderData(Format.CHAT, definition),
    )


def _parse_mode(word: str) -> ToolChoice:
    if word in ("auto", "none", "required"):
        return ToolChoice(ChoiceMode(word))
    return ToolChoice(ChoiceMode.PROVIDER_SPECIFIC, extra=ProviderData(Format.CHAT, word))


def _parse_allowed_tools(choice: Payload, above: str) -> ToolChoice:
    path = f"{above}.allowed_tools"
    allowed = as_object(required(choice, "allowed_tools", above), path)
    mode = required_str(allowed, "mode", path)
    if mode not in ("auto", "required"):
        raise invalid_field(f"{path}.mode", "Input should be 'auto' or 'required'")
    tools = as_list(required(allowed, "tools", path), f"{path}.tools")
    return ToolChoice(
        ChoiceMode(mode),
        allowed=tuple(
            _allowed_name(as_object(tool, f"{path}.tools.{index}"), f"{path}.tools.{index}")
            for index, tool in enumerate(tools)
        ),
    )


def _allowed_name(tool: Payload, path: str) -> str:
    """The tool that an entry points at: nested as in `tools`, or flat."""
    kind = required_str(tool, "type", path)
    nested = tool.get(kind)
    if isinstance(nested, dict):
        return required_str(nested, "name", f"{path}.{kind}")
    return optional_str(tool, "name", path) or kind


def _parse_function_call(body: Payload) -> ToolChoice | None:
    choice = body.get("function_call")
    if choice is None:
        return None
    if isinstance(choice, str):
        return _parse_mode(choice)
    said = as_object(choice, "function_call")
    return ToolChoice(ChoiceMode.NAMED, name=required_str(said, "name", "function_call"))


_STRING_SCHEMA: Final = {"type": "string"}
_QUERY_SCHEMA: Final = {
    "type": "object",
    "properties": {"query": _STRING_SCHEMA | {"description": "What to search for."}},
    "required": ["query"],
}


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
        check_any_tool(box, tools, search_optional=True)
    if box.choice and SEARCH_FIELD not in fields:
        check_choice(box.choice, tools, same_format=own)
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
    description = describe_custom_tool(Format.CHAT, tool.description, tool.grammar)
    function = {"name": name, "description": description, "parameters": CUSTOM_TOOL_SCHEMA}
    return {"type": "function", "function": function}


def _render_search(name: str, tool: Tool, losses: Dropped) -> Payload | None:
    """A web search that the client also takes as a call of its own becomes one; every other tool
    that an upstream would have to run is lost."""
    search = tool.search
    if search is None or not search.client_executable:
        losses.drop(tool_type_name(tool))
        return None
    search_options(search, Format.CHAT, losses)  # none of them
    if tool.cache:
        losses.drop("cache_marks")
    description = tool.description or "Searches the web."
    function = {"name": name, "description": description, "parameters": _QUERY_SCHEMA}
    return {"type": "function", "function": function}


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
