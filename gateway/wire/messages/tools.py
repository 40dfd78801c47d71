"""Reads the tools of messages requests, and the choice among them. It must not know any model."""

from __future__ import annotations

from typing import Any, Final

from gateway.core.formats import Format
from gateway.core.parts import Opaque
from gateway.core.prompt import ChoiceMode, Tool, ToolChoice, ToolKind, WebSearch
from gateway.wire.fields import (
    Payload,
    as_object,
    boolean,
    integer,
    join,
    list_,
    object_,
    required,
    required_str,
    string,
)
from gateway.wire.messages import client_tools
from gateway.wire.messages.blocks import parse_cache

_KNOWN: Final = {"type", "name", "description", "input_schema", "strict", "cache_control"}
_PLACE: Final = ("city", "region", "country", "timezone")
_CHOICES: Final = {
    "auto": ChoiceMode.AUTO,
    "any": ChoiceMode.REQUIRED,
    "none": ChoiceMode.NONE,
    "tool": ChoiceMode.NAMED,
}


def parse_tools(body: Payload) -> tuple[Tool, ...]:
    return tuple(
        _tool(as_object(tool, f"tools.{index}"), f"tools.{index}")
        for index, tool in enumerate(list_(body, "tools") or ())
    )


def parse_tool_choice(body: Payload) -> tuple[ToolChoice | None, bool | None]:
    """The choice, and whether several calls at once are welcome."""
    choice = object_(body, "tool_choice")
    if choice is None:
        return None, None
    mode = _CHOICES.get(required_str(choice, "type", "tool_choice"), ChoiceMode.OPAQUE)
    name = required_str(choice, "name", "tool_choice") if mode is ChoiceMode.NAMED else None
    extra = Opaque(Format.MESSAGES, choice) if mode is ChoiceMode.OPAQUE else None
    single = boolean(choice, "disable_parallel_tool_use", "tool_choice")
    return ToolChoice(mode, name, extra=extra), None if single is None else not single


def _tool(tool: Payload, path: str) -> Tool:
    kind = string(tool, "type", path) or "custom"
    if kind != "custom":
        return _typed(tool, kind, path)
    return Tool(
        kind=ToolKind.FUNCTION,
        name=required_str(tool, "name", path),
        description=string(tool, "description", path),
        schema=as_object(required(tool, "input_schema", path), join(path, "input_schema")),
        strict=boolean(tool, "strict", path),
        cache=parse_cache(tool, path),
        extra=_beyond(tool),
        definition=Opaque(Format.MESSAGES, tool),
    )


def _typed(tool: Payload, kind: str, path: str) -> Tool:
    """A tool that messages models know by its type; what other formats can offer of it is told."""
    known = client_tools.find(kind, tool)
    return Tool(
        kind=ToolKind.FUNCTION if known else ToolKind.SERVER,
        name=string(tool, "name", path) or string(tool, "mcp_server_name", path) or kind,
        description=known.description if known else None,
        schema=known.schema if known else None,
        search=_search(tool, path) if kind.startswith("web_search_") else None,
        cache=parse_cache(tool, path),
        definition=Opaque(Format.MESSAGES, tool),
    )


def _beyond(tool: Payload) -> Opaque | None:
    """Fields that are not set say nothing that could be lost."""
    more = {name: value for name, value in tool.items() if name not in _KNOWN and value}
    return Opaque(Format.MESSAGES, more) if more else None


def _search(tool: Payload, path: str) -> WebSearch:
    location = object_(tool, "user_location", path) or {}
    return WebSearch(
        allowed_domains=_domains(tool.get("allowed_domains")),
        blocked_domains=_domains(tool.get("blocked_domains")),
        max_uses=integer(tool, "max_uses", path),
        location={name: location[name] for name in _PLACE if location.get(name)} or None,
        handed_back=True,
    )


def _domains(value: Any) -> tuple[str, ...]:
    return tuple(map(str, value)) if isinstance(value, list) else ()
