"""Reads the tools of chat requests, and the choice among them. It must not know any turns."""

from __future__ import annotations

from typing import Any, Final

from gateway.core.formats import Format
from gateway.core.parts import ProviderData
from gateway.core.prompt import ChoiceMode, Tool, ToolChoice, ToolKind, WebSearch
from gateway.wire.chat.media import CACHE_FIELDS, parse_cache_breakpoint
from gateway.wire.fields import (
    Payload,
    as_list,
    as_object,
    optional_bool,
    invalid_field,
    optional_list,
    optional_object,
    required,
    required_str,
    optional_str,
)
from gateway.wire.lenient import lenient_object, lenient_str

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
        kind=ToolKind.SERVER, name=name, search=search, definition=ProviderData(Format.CHAT, definition)
    )


def _parse_function(function: Payload, path: str, definition: Payload) -> Tool:
    return Tool(
        kind=ToolKind.FUNCTION,
        name=required_str(function, "name", path),
        description=optional_str(function, "description", path),
        schema=optional_object(function, "parameters", path),
        strict=optional_bool(function, "strict", path),
        cache=parse_cache_breakpoint(definition),
        extra=_unknown_fields(function, definition),
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
        extra=_unknown_fields(custom, definition),
        definition=ProviderData(Format.CHAT, definition),
    )


def _unknown_fields(said: Payload, definition: Payload) -> ProviderData | None:
    """What the tool says beyond the hub's words, inside and around its function; fields that are
    not set say nothing."""
    rest: dict[str, Any] = {
        name: value for name, value in (definition | said).items() if name not in _TOOL_FIELDS and value
    }
    return ProviderData(Format.CHAT, rest) if rest else None


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
