"""Reads the tools of responses requests, and the choice among them. It must not know any model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from gateway.core.formats import Format
from gateway.core.parts import ProviderData
from gateway.core.prompt import ChoiceMode, Tool, ToolChoice, ToolKind, WebSearch
from gateway.core.value import replace
from gateway.wire.fields import (
    Payload,
    as_list,
    as_object,
    optional_bool,
    invalid_field,
    join_path,
    optional_list,
    optional_object,
    required,
    required_str,
    optional_str,
)
from gateway.wire.responses import client_tools

_KINDS: Final = {"function": ToolKind.FUNCTION, "custom": ToolKind.CUSTOM}
_MODES: Final = {
    "auto": ChoiceMode.AUTO,
    "none": ChoiceMode.NONE,
    "required": ChoiceMode.REQUIRED,
}
_KNOWN_FIELDS: Final = {"type", "name", "description", "parameters", "strict", "format"}
_LOCATION_FIELDS: Final = ("city", "region", "country", "timezone")


def parse_tools(tools: Any, path: str) -> Iterator[Tool]:
    """The tools of a list; those of a namespace one by one, each with its name."""
    for index, tool in enumerate(as_list(tools, path)):
        at = f"{path}.{index}"
        tool = as_object(tool, at)
        if required_str(tool, "type", at) == "namespace":
            yield from _parse_namespace(tool, at)
        else:
            yield _parse_tool(tool, at)


def _parse_namespace(space: Payload, path: str) -> Iterator[Tool]:
    """What the namespace says of itself goes to each of its tools: others know no namespaces."""
    name, about = required_str(space, "name", path), optional_str(space, "description", path)
    path = join_path(path, "tools")
    for index, tool in enumerate(as_list(required(space, "tools", path), path)):
        inner = _parse_tool(as_object(tool, join_path(path, index)), join_path(path, index))
        yield replace(
            inner,
            namespace=name,
            description="\n\n".join(filter(None, (about, inner.description))) or None,
            definition=ProviderData(Format.RESPONSES, space | {"tools": [tool]}),
        )


def _parse_tool(tool: Payload, path: str) -> Tool:
    type_ = required_str(tool, "type", path)
    kind = _KINDS.get(type_)
    if kind is None:
        return _parse_typed_tool(tool, type_, path)
    return Tool(
        kind=kind,
        name=required_str(tool, "name", path),
        description=optional_str(tool, "description", path),
        schema=optional_object(tool, "parameters", path),
        strict=optional_bool(tool, "strict", path),
        grammar=_parse_grammar(tool, path),
        extra=_unknown_fields(tool),
        definition=ProviderData(Format.RESPONSES, tool),
    )


def _parse_typed_tool(tool: Payload, type_: str, path: str) -> Tool:
    """A tool that models of this format know by its type; what others can offer of it is told."""
    known = client_tools.find(tool)
    return Tool(
        kind=ToolKind.FUNCTION if known else ToolKind.SERVER,
        name=type_ if known else optional_str(tool, "name", path) or type_,
        description=(optional_str(tool, "description", path) or known.description) if known else None,
        schema=(optional_object(tool, "parameters", path) or known.schema) if known else None,
        search=_parse_search(tool, path) if type_.startswith("web_search") else None,
        definition=ProviderData(Format.RESPONSES, tool),
    )


def _parse_search(tool: Payload, path: str) -> WebSearch:
    filters = optional_object(tool, "filters", path) or {}
    location = optional_object(tool, "user_location", path) or {}
    domains = optional_list(filters, "allowed_domains", join_path(path, "filters")) or ()
    return WebSearch(
        allowed_domains=tuple(map(str, domains)),
        location={name: location[name] for name in _LOCATION_FIELDS if location.get(name)} or None,
        context_size=optional_str(tool, "search_context_size", path),
    )


def _unknown_fields(tool: Payload) -> ProviderData | None:
    """Fields that are not set say nothing that could be lost."""
    more = {name: value for name, value in tool.items() if name not in _KNOWN_FIELDS and value}
    return ProviderData(Format.RESPONSES, more) if more else None


def _parse_grammar(tool: Payload, path: str) -> Payload | None:
    form = optional_object(tool, "format", path)
    if not form or form.get("type") != "grammar":
        return None
    return {"syntax": form.get("syntax"), "definition": form.get("definition")}


def parse_tool_choice(choice: Any) -> ToolChoice | None:
    if choice is None:
        return None
    if isinstance(choice, str):
        mode = _MODES.get(choice, ChoiceMode.PROVIDER_SPECIFIC)
        extra = ProviderData(Format.RESPONSES, choice) if mode is ChoiceMode.PROVIDER_SPECIFIC else None
        return ToolChoice(mode, extra=extra)
    choice = as_object(choice, "tool_choice")
    type_ = required_str(choice, "type", "tool_choice")
    if kind := _KINDS.get(type_):
        name = required_str(choice, "name", "tool_choice")
        return ToolChoice(ChoiceMode.NAMED, name, kind=kind)
    extra = ProviderData(Format.RESPONSES, choice)
    if type_ in client_tools.CLIENT_TOOLS:
        return ToolChoice(ChoiceMode.NAMED, type_, extra=extra)
    if type_.startswith("web_search"):
        return ToolChoice(ChoiceMode.NAMED, type_, kind=ToolKind.SERVER, extra=extra)
    if type_ != "allowed_tools":
        return ToolChoice(ChoiceMode.PROVIDER_SPECIFIC, extra=extra)
    word = required_str(choice, "mode", "tool_choice")
    if word not in ("auto", "required"):
        raise invalid_field("tool_choice.mode", "Input should be 'auto' or 'required'")
    return ToolChoice(ChoiceMode(word), allowed=tuple(_allowed_names(choice)), extra=extra)


def _allowed_names(choice: Payload) -> Iterator[str]:
    path = "tool_choice.tools"
    for index, tool in enumerate(as_list(required(choice, "tools", "tool_choice"), path)):
        at = join_path(path, index)
        tool = as_object(tool, at)
        yield optional_str(tool, "name", at) or required_str(tool, "type", at)
