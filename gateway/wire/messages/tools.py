"""Reads the tools of messages requests, and the choice among them. It must not know any model."""

from __future__ import annotations

from typing import Any, Final

from gateway.core.formats import Format
from gateway.core.parts import ProviderData
from gateway.core.prompt import ChoiceMode, Tool, ToolChoice, ToolKind, WebSearch
from gateway.wire.fields import (
    Payload,
    as_object,
    optional_bool,
    optional_int,
    join_path,
    optional_list,
    optional_object,
    required,
    required_str,
    optional_str,
)
from gateway.wire.messages import client_tools
from gateway.wire.messages.blocks import parse_cache_breakpoint

_TOOL_FIELDS: Final = {"type", "name", "description", "input_schema", "strict", "cache_control"}
_LOCATION_FIELDS: Final = ("city", "region", "country", "timezone")
_CHOICE_MODES: Final = {
    "auto": ChoiceMode.AUTO,
    "any": ChoiceMode.REQUIRED,
    "none": ChoiceMode.NONE,
    "tool": ChoiceMode.NAMED,
}


def parse_tools(body: Payload) -> tuple[Tool, ...]:
    return tuple(
        _parse_tool(as_object(tool, f"tools.{index}"), f"tools.{index}")
        for index, tool in enumerate(optional_list(body, "tools") or ())
    )


def parse_tool_choice(body: Payload) -> tuple[ToolChoice | None, bool | None]:
    """The choice, and whether several calls at once are welcome."""
    choice = optional_object(body, "tool_choice")
    if choice is None:
        return None, None
    mode = _CHOICE_MODES.get(required_str(choice, "type", "tool_choice"), ChoiceMode.PROVIDER_SPECIFIC)
    name = required_str(choice, "name", "tool_choice") if mode is ChoiceMode.NAMED else None
    extra = ProviderData(Format.MESSAGES, choice) if mode is ChoiceMode.PROVIDER_SPECIFIC else None
    single = optional_bool(choice, "disable_parallel_tool_use", "tool_choice")
    return ToolChoice(mode, name, extra=extra), None if single is None else not single


def _parse_tool(tool: Payload, path: str) -> Tool:
    kind = optional_str(tool, "type", path) or "custom"
    if kind != "custom":
        return _parse_typed_tool(tool, kind, path)
    return Tool(
        kind=ToolKind.FUNCTION,
        name=required_str(tool, "name", path),
        description=optional_str(tool, "description", path),
        schema=as_object(required(tool, "input_schema", path), join_path(path, "input_schema")),
        strict=optional_bool(tool, "strict", path),
        cache=parse_cache_breakpoint(tool, path),
        extra=_unknown_fields(tool),
        definition=ProviderData(Format.MESSAGES, tool),
    )


def _parse_typed_tool(tool: Payload, kind: str, path: str) -> Tool:
    """A tool that messages models know by its type; what other formats can offer of it is told."""
    known = client_tools.find_client_tool(kind, tool)
    return Tool(
        kind=ToolKind.FUNCTION if known else ToolKind.SERVER,
        name=optional_str(tool, "name", path) or optional_str(tool, "mcp_server_name", path) or kind,
        description=known.description if known else None,
        schema=known.schema if known else None,
        search=_parse_search(tool, path) if kind.startswith("web_search_") else None,
        cache=parse_cache_breakpoint(tool, path),
        definition=ProviderData(Format.MESSAGES, tool),
    )


def _unknown_fields(tool: Payload) -> ProviderData | None:
    """Fields that are not set say nothing that could be lost."""
    more = {name: value for name, value in tool.items() if name not in _TOOL_FIELDS and value}
    return ProviderData(Format.MESSAGES, more) if more else None


def _parse_search(tool: Payload, path: str) -> WebSearch:
    location = optional_object(tool, "user_location", path) or {}
    return WebSearch(
        allowed_domains=_parse_domains(tool.get("allowed_domains")),
        blocked_domains=_parse_domains(tool.get("blocked_domains")),
        max_uses=optional_int(tool, "max_uses", path),
        location={name: location[name] for name in _LOCATION_FIELDS if location.get(name)} or None,
        client_executable=True,
    )


def _parse_domains(value: Any) -> tuple[str, ...]:
    return tuple(map(str, value)) if isinstance(value, list) else ()
