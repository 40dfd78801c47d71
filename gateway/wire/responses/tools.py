"""Reads the tools of responses requests, and the choice among them. It must not know any model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from gateway.core.formats import Format
from gateway.core.parts import Opaque
from gateway.core.prompt import ChoiceMode, Tool, ToolChoice, ToolKind
from gateway.wire.fields import (
    Payload,
    as_list,
    as_object,
    boolean,
    invalid,
    join,
    object_,
    required,
    required_str,
    string,
)

_KINDS: Final = {"function": ToolKind.FUNCTION, "custom": ToolKind.CUSTOM}
_MODES: Final = {
    "auto": ChoiceMode.AUTO,
    "none": ChoiceMode.NONE,
    "required": ChoiceMode.REQUIRED,
}


def parse_tools(tools: Any, path: str) -> Iterator[Tool]:
    """The tools of a list; those of a namespace one by one, each with its name."""
    for index, tool in enumerate(as_list(tools, path)):
        at = f"{path}.{index}"
        tool = as_object(tool, at)
        if required_str(tool, "type", at) != "namespace":
            yield _tool(tool, at, None)
            continue
        namespace = required_str(tool, "name", at)
        at = join(at, "tools")
        for place, inner in enumerate(as_list(required(tool, "tools", at), at)):
            yield _tool(as_object(inner, join(at, place)), join(at, place), namespace)


def _tool(tool: Payload, path: str, namespace: str | None) -> Tool:
    definition = Opaque(Format.RESPONSES, tool)
    type_ = required_str(tool, "type", path)
    kind = _KINDS.get(type_, ToolKind.SERVER)
    if kind is ToolKind.SERVER:
        name = string(tool, "name", path) or type_
        return Tool(kind=kind, name=name, namespace=namespace, definition=definition)
    return Tool(
        kind=kind,
        name=required_str(tool, "name", path),
        description=string(tool, "description", path),
        schema=object_(tool, "parameters", path),
        strict=boolean(tool, "strict", path),
        grammar=_grammar(tool, path),
        namespace=namespace,
        definition=definition,
    )


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
