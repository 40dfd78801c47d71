"""Reads the tools of responses requests, and the choice among them. It must not know any model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from gateway.core.formats import Format
from gateway.core.parts import Opaque
from gateway.core.prompt import ChoiceMode, Tool, ToolChoice, ToolKind, WebSearch
from gateway.core.value import replace
from gateway.wire.fields import (
    Payload,
    as_list,
    as_object,
    boolean,
    invalid,
    join,
    list_,
    object_,
    required,
    required_str,
    string,
)
from gateway.wire.responses import client_tools

_KINDS: Final = {"function": ToolKind.FUNCTION, "custom": ToolKind.CUSTOM}
_MODES: Final = {
    "auto": ChoiceMode.AUTO,
    "none": ChoiceMode.NONE,
    "required": ChoiceMode.REQUIRED,
}
_KNOWN: Final = {"type", "name", "description", "parameters", "strict", "format"}
_PLACE: Final = ("city", "region", "country", "timezone")


def parse_tools(tools: Any, path: str) -> Iterator[Tool]:
    """The tools of a list; those of a namespace one by one, each with its name."""
    for index, tool in enumerate(as_list(tools, path)):
        at = f"{path}.{index}"
        tool = as_object(tool, at)
        if required_str(tool, "type", at) == "namespace":
            yield from _namespace(tool, at)
        else:
            yield _tool(tool, at)


def _namespace(space: Payload, path: str) -> Iterator[Tool]:
    """What the namespace says of itself goes to each of its tools: others know no namespaces."""
    name, about = required_str(space, "name", path), string(space, "description", path)
    path = join(path, "tools")
    for index, tool in enumerate(as_list(required(space, "tools", path), path)):
        inner = _tool(as_object(tool, join(path, index)), join(path, index))
        yield replace(
            inner,
            namespace=name,
            description="\n\n".join(filter(None, (about, inner.description))) or None,
            definition=Opaque(Format.RESPONSES, space | {"tools": [tool]}),
        )


def _tool(tool: Payload, path: str) -> Tool:
    type_ = required_str(tool, "type", path)
    kind = _KINDS.get(type_)
    if kind is None:
        return _typed(tool, type_, path)
    return Tool(
        kind=kind,
        name=required_str(tool, "name", path),
        description=string(tool, "description", path),
        schema=object_(tool, "parameters", path),
        strict=boolean(tool, "strict", path),
        grammar=_grammar(tool, path),
        extra=_beyond(tool),
        definition=Opaque(Format.RESPONSES, tool),
    )


def _typed(tool: Payload, type_: str, path: str) -> Tool:
    """A tool that models of this format know by its type; what others can offer of it is told."""
    known = client_tools.find(tool)
    return Tool(
        kind=ToolKind.FUNCTION if known else ToolKind.SERVER,
        name=type_ if known else string(tool, "name", path) or type_,
        description=(string(tool, "description", path) or known.description) if known else None,
        schema=(object_(tool, "parameters", path) or known.schema) if known else None,
        search=_search(tool, path) if type_.startswith("web_search") else None,
        definition=Opaque(Format.RESPONSES, tool),
    )


def _search(tool: Payload, path: str) -> WebSearch:
    filters = object_(tool, "filters", path) or {}
    location = object_(tool, "user_location", path) or {}
    domains = list_(filters, "allowed_domains", join(path, "filters")) or ()
    return WebSearch(
        allowed_domains=tuple(map(str, domains)),
        location={name: location[name] for name in _PLACE if location.get(name)} or None,
        context_size=string(tool, "search_context_size", path),
    )


def _beyond(tool: Payload) -> Opaque | None:
    """Fields that are not set say nothing that could be lost."""
    more = {name: value for name, value in tool.items() if name not in _KNOWN and value}
    return Opaque(Format.RESPONSES, more) if more else None


def _grammar(tool: Payload, path: str) -> Payload | None:
    form = object_(tool, "format", path)
    if not form or form.get("type") != "grammar":
        return None
    return {"syntax": form.get("syntax"), "definition": form.get("definition")}


def parse_tool_choice(choice: Any) -> ToolChoice | None:
    if choice is None:
        return None
    if isinstance(choice, str):
        mode = _MODES.get(choice, ChoiceMode.OPAQUE)
        extra = Opaque(Format.RESPONSES, choice) if mode is ChoiceMode.OPAQUE else None
        return ToolChoice(mode, extra=extra)
    choice = as_object(choice, "tool_choice")
    type_ = required_str(choice, "type", "tool_choice")
    if kind := _KINDS.get(type_):
        name = required_str(choice, "name", "tool_choice")
        return ToolChoice(ChoiceMode.NAMED, name, kind=kind)
    extra = Opaque(Format.RESPONSES, choice)
    if type_ in client_tools.CLIENT_TOOLS:
        return ToolChoice(ChoiceMode.NAMED, type_, extra=extra)
    if type_.startswith("web_search"):
        return ToolChoice(ChoiceMode.NAMED, type_, kind=ToolKind.SERVER, extra=extra)
    if type_ != "allowed_tools":
        return ToolChoice(ChoiceMode.OPAQUE, extra=extra)
    word = required_str(choice, "mode", "tool_choice")
    if word not in ("auto", "required"):
        raise invalid("tool_choice.mode", "Input should be 'auto' or 'required'")
    return ToolChoice(ChoiceMode(word), allowed=tuple(_allowed(choice)), extra=extra)


def _allowed(choice: Payload) -> Iterator[str]:
    path = "tool_choice.tools"
    for index, tool in enumerate(as_list(required(choice, "tools", "tool_choice"), path)):
        at = join(path, index)
        tool = as_object(tool, at)
        yield string(tool, "name", at) or required_str(tool, "type", at)
