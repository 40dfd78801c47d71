"""Tool definitions and tool choice, both ways."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gateway.core.formats import Format
from gateway.core.parts import ProviderData
from gateway.core.prompt import ChoiceMode, Prompt, Tool, ToolChoice, ToolKind
from gateway.core.target import Target
from gateway.wire.chat.content import CACHE_FIELDS, parse_cache_breakpoint
from gateway.wire.json.fields import (
    Payload,
    as_object,
    as_objects,
    invalid_field,
    optional_bool,
    optional_object,
    optional_str,
    required,
    required_object,
    required_str,
)
from gateway.wire.prompt.dropped import Dropped
from gateway.wire.prompt.json_schema import is_strict, parameters_schema
from gateway.wire.prompt.known_turns import parse_known, render_known_tools
from gateway.wire.prompt.render_rules import (
    CUSTOM_TOOL_SCHEMA,
    check_any_tool,
    check_choice,
    describe_custom_tool,
    may_be_called,
)
from gateway.wire.prompt.tool_names import UpstreamTools, tool_type_name
from gateway.wire.search.calls import (
    WEB_SEARCH,
    chat_options,
    client_function,
    parse_chat_search,
    search_options,
)

SEARCH_FIELD: Final = "web_search_options"
_KINDS: Final = {"function": ToolKind.FUNCTION, "custom": ToolKind.CUSTOM}
_SEARCH_FIELDS: Final = {"type", "user_location", "search_context_size"}
_MODES: Final = ("auto", "none", "required")
_KNOWN_FIELDS: Final = {
    *("type", "function", "custom", *CACHE_FIELDS),
    *("name", "description", "parameters", "strict", "format"),
}


def parse_tools(body: Payload) -> tuple[Tool, ...]:
    """`tools`, the deprecated `functions`, and web search, which has a field of its own."""
    definitions = body.get("tools")

    def parse() -> tuple[Tool, ...]:
        return tuple([_parse_tool(*each) for each in as_objects(definitions, "tools")])

    if "functions" not in body and SEARCH_FIELD not in body:
        return parse_known(definitions, Format.CHAT, parse)
    tools = [*parse()]
    for function, path in as_objects(body.get("functions"), "functions"):
        tools.append(_parse_definition(ToolKind.FUNCTION, function, path, function))
    search = optional_object(body, SEARCH_FIELD)
    if search is not None:
        tools.append(_parse_search(WEB_SEARCH, search, SEARCH_FIELD, {SEARCH_FIELD: search}))
    return tuple(tools)


def _parse_tool(tool: Payload, path: str) -> Tool:
    type_ = required_str(tool, "type", path)
    if kind := _KINDS.get(type_):
        fields = required_object(tool, type_, path)
        return _parse_definition(kind, fields, f"{path}.{type_}", tool)
    if type_.startswith(WEB_SEARCH):
        return _parse_search(type_, tool, path, tool)
    return Tool(kind=ToolKind.SERVER, name=type_, definition=ProviderData(Format.CHAT, tool))


def _parse_definition(kind: ToolKind, fields: Payload, path: str, definition: Payload) -> Tool:
    """A function or a custom tool; `fields` are a part of the definition, or all of it."""
    is_function = kind is ToolKind.FUNCTION
    form = None if is_function else optional_object(fields, "format", path)
    return Tool(
        kind=kind,
        name=required_str(fields, "name", path),
        description=optional_str(fields, "description", path),
        schema=optional_object(fields, "parameters", path) if is_function else None,
        strict=optional_bool(fields, "strict", path) if is_function else None,
        grammar=optional_object(form, "grammar", f"{path}.format") if form else None,
        cache=parse_cache_breakpoint(definition),
        extra=ProviderData.unknown_set_fields(Format.CHAT, definition | fields, _KNOWN_FIELDS),
        definition=ProviderData(Format.CHAT, definition),
    )


def _parse_search(name: str, fields: Payload, path: str, definition: Payload) -> Tool:
    return Tool(
        kind=ToolKind.SERVER,
        name=name,
        search=parse_chat_search(fields, path),
        extra=ProviderData.unknown_set_fields(Format.CHAT, fields, _SEARCH_FIELDS),
        definition=ProviderData(Format.CHAT, definition),
    )


def parse_tool_choice(body: Payload) -> ToolChoice | None:
    """`tool_choice`, else the deprecated `function_call`."""
    path = "function_call" if body.get("tool_choice") is None else "tool_choice"
    choice = body.get(path)
    if choice is None:
        return None
    if choice in _MODES:
        return ToolChoice(ChoiceMode(choice))
    if isinstance(choice, str):
        return ToolChoice(ChoiceMode.PROVIDER_SPECIFIC, extra=ProviderData(Format.CHAT, choice))
    choice = as_object(choice, path)
    if path == "function_call":
        return ToolChoice(ChoiceMode.NAMED, required_str(choice, "name", path))
    type_ = required_str(choice, "type", path)
    if kind := _KINDS.get(type_):
        fields = required_object(choice, type_, path)
        return ToolChoice(
            ChoiceMode.NAMED, required_str(fields, "name", f"{path}.{type_}"), kind=kind
        )
    if type_ == "allowed_tools":
        return _parse_allowed_tools(required_object(choice, type_, path), f"{path}.{type_}")
    return ToolChoice(ChoiceMode.PROVIDER_SPECIFIC, extra=ProviderData(Format.CHAT, choice))


def _parse_allowed_tools(allowed: Payload, path: str) -> ToolChoice:
    mode = required_str(allowed, "mode", path)
    if mode not in ("auto", "required"):
        raise invalid_field(f"{path}.mode", "Input should be 'auto' or 'required'")
    tools = as_objects(required(allowed, "tools", path), f"{path}.tools")
    return ToolChoice(ChoiceMode(mode), allowed=tuple([_allowed_name(*tool) for tool in tools]))


def _allowed_name(tool: Payload, path: str) -> str:
    """The name in a reference to a tool, which is nested as in `tools`, or flat."""
    type_ = required_str(tool, "type", path)
    nested = tool.get(type_)
    if isinstance(nested, dict):
        return required_str(nested, "name", f"{path}.{type_}")
    return optional_str(tool, "name", path) or type_


def render_tools(prompt: Prompt, target: Target, dropped: Dropped) -> Payload:
    """`tools`, `tool_choice` and `parallel_tool_calls`, as far as they are set. Raises
    `UnsupportedField` where a tool is forced that cannot be sent."""
    same_format = prompt.format is Format.CHAT
    upstream = UpstreamTools(prompt, keep_all=same_format)
    choice = upstream.choice
    fields: Payload = {}

    def render() -> list[Payload]:
        tools: dict[str, Payload] = {}
        for name, tool in upstream.tools.items():
            native = ProviderData.native_fields(tool.definition, Format.CHAT)
            if SEARCH_FIELD in native or (target.web_search and tool.search and not native):
                fields.update(_search_fields(tool, native, choice, target, dropped))
            elif rendered := _render_tool(name, tool, target, dropped):
                tools[name] = rendered
        return [tools]

    (tools,) = render_known_tools(prompt, target, dropped, render)
    if not same_format:
        check_any_tool(upstream, tools, search_optional=True)
    if choice and SEARCH_FIELD not in fields:
        check_choice(choice, tools, same_format=same_format)
    if not tools:
        return fields
    fields["tools"] = list(tools.values())
    if choice and (choice.name or "") in ("", *tools):
        fields["tool_choice"] = _render_tool_choice(upstream, tools, same_format=same_format)
    if prompt.parallel_tool_calls is False or (same_format and prompt.parallel_tool_calls):
        fields["parallel_tool_calls"] = prompt.parallel_tool_calls
    return fields


def _search_fields(
    tool: Tool, native: Payload, choice: ToolChoice | None, target: Target, dropped: Dropped
) -> Payload:
    """Renders the search options, unless no tool may be called: upstreams apply that to `tools`
    alone."""
    if target.web_search is False:
        dropped.drop(WEB_SEARCH)
        return {}
    if choice is not None and choice.mode is ChoiceMode.NONE:
        return {}
    if native or tool.search is None:
        return native
    dropped.native_fields(tool.extra, "tools.")
    return {SEARCH_FIELD: chat_options(search_options(tool.search, Format.CHAT, dropped))}


def _native_tool(name: str, tool: Tool, definition: Payload) -> Payload:
    """A definition of this format; deprecated functions become tools."""
    kind = tool.kind
    if kind is ToolKind.SERVER:
        return definition
    if kind not in definition:
        definition = _function(definition)
    if name != tool.name:
        definition = definition | {kind: definition[kind] | {"name": name}}
    return definition


def _render_tool(name: str, tool: Tool, target: Target, dropped: Dropped) -> Payload | None:
    """Renders a tool; None for one that an upstream of another format would run."""
    if native := ProviderData.native_fields(tool.definition, Format.CHAT):
        return _native_tool(name, tool, native)
    search = tool.search
    if tool.kind is ToolKind.SERVER and not search:
        dropped.drop(tool_type_name(tool))
        return None
    dropped.native_fields(tool.extra, "tools.")
    if not may_be_called(tool):
        return None
    dropped.drop_set(cache_marks=tool.cache)
    if search:
        function = client_function(search, dropped)
        if function is None:
            return None
        about = function["description"]
        return _function({"name": name, "description": about, "parameters": function["schema"]})
    fields: Payload = {"name": name}
    if tool.description is not None:
        fields["description"] = tool.description
    if tool.kind is ToolKind.CUSTOM:
        return _render_custom(fields, tool.grammar, target)
    fields["parameters"] = parameters_schema(tool.schema, dropped.schema_budget)
    if tool.strict and is_strict(fields["parameters"]):
        fields["strict"] = True
    elif tool.strict:
        dropped.drop("tools.strict")
    return _function(fields)


def _render_custom(fields: Payload, grammar: Mapping[str, Any] | None, target: Target) -> Payload:
    """A function with one text where the target has no custom tools."""
    if not target.custom_tools:
        text = describe_custom_tool(Format.CHAT, fields.get("description"), grammar)
        return _function(fields | {"description": text, "parameters": CUSTOM_TOOL_SCHEMA})
    if grammar is not None:
        fields["format"] = {"type": "grammar", "grammar": grammar}
    return {"type": "custom", "custom": fields}


def _function(fields: Payload) -> Payload:
    return {"type": "function", "function": fields}


def _render_tool_choice(
    upstream: UpstreamTools, tools: Mapping[str, Payload], *, same_format: bool
) -> str | Payload:
    """Upstreams get the allowed tools as a choice from clients of this format only: the tools of
    others are the allowed ones already."""
    choice = upstream.choice
    if choice is None or choice.mode is ChoiceMode.PROVIDER_SPECIFIC:
        data: str | Payload = choice.extra.data if choice and choice.extra else "auto"
        return data
    if choice.mode is ChoiceMode.NAMED:
        return _tool_ref(tools[choice.name or ""])
    if choice.allowed is None or not same_format:
        return choice.mode.value
    allowed = {*choice.allowed}
    names = [name for name in tools if {name, upstream.tools[name].name} & allowed]
    refs = [_tool_ref(tools[name]) for name in names]
    return {"type": "allowed_tools", "allowed_tools": {"mode": choice.mode.value, "tools": refs}}


def _tool_ref(tool: Payload) -> Payload:
    kind = tool["type"]
    return {"type": kind, kind: {"name": tool[kind]["name"]}} if kind in tool else {"type": kind}
