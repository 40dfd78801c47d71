"""Reads the tools of messages requests, and the choice among them. It must not know any model.

A prompt's tools and its choice among them, as messages requests say it.

It must not know the conversation or the answer's form.

Web searches that an upstream of another format ran, as messages clients are told of them.

Clients echo such blocks with the history, where no messages upstream would know them: the ids given
here are how they are recognised. It must not know how blocks stream or which upstream searched.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import orjson

from gateway.core.formats import Format
from gateway.core.parts import Part, ProviderData, ServerToolCall, ServerToolResult
from gateway.core.prompt import ChoiceMode, Prompt, Tool, ToolChoice, ToolKind, WebSearch
from gateway.core.target import Target
from gateway.wire.dropped import Dropped
from gateway.wire.ids import sanitize_name
from gateway.wire.json_fields import (
    Payload,
    as_object,
    join_path,
    lenient_object,
    lenient_objects,
    lenient_str,
    optional_bool,
    optional_int,
    optional_list,
    optional_object,
    optional_str,
    required,
    required_str,
)
from gateway.wire.json_schema import messages_schema, parameters_schema
from gateway.wire.messages import client_tools
from gateway.wire.messages.cache_control import parse_cache_breakpoint, render_cache_breakpoint
from gateway.wire.render_rules import (
    CUSTOM_TOOL_SCHEMA,
    check_any_tool,
    check_choice,
    describe_custom_tool,
    search_options,
)
from gateway.wire.tool_names import UpstreamTools, tool_type_name

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
    mode = _CHOICE_MODES.get(
        required_str(choice, "type", "tool_choice"), ChoiceMode.PROVIDER_SPECIFIC
    )
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
        extra=ProviderData.unknown_set_fields(Format.MESSAGES, tool, _TOOL_FIELDS),
        definition=ProviderData(Format.MESSAGES, tool),
    )


def _parse_typed_tool(tool: Payload, kind: str, path: str) -> Tool:
    """A tool that messages models know by its type; what other formats can offer of it is told."""
    known = client_tools.find_client_tool(kind, tool)
    return Tool(
        kind=ToolKind.FUNCTION if known else ToolKind.SERVER,
        name=optional_str(tool, "name", path)
        or optional_str(tool, "mcp_server_name", path)
        or kind,
        description=known.description if known else None,
        schema=known.schema if known else None,
        search=_parse_search(tool, path) if kind.startswith("web_search_") else None,
        cache=parse_cache_breakpoint(tool, path),
        definition=ProviderData(Format.MESSAGES, tool),
    )


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


_SEARCH_TOOL: Final = {"type": "web_search_20250305", "name": "web_search"}
_CHOICE_NAMES: Final = {
    ChoiceMode.AUTO: "auto",
    ChoiceMode.REQUIRED: "any",
    ChoiceMode.NONE: "none",
    ChoiceMode.NAMED: "tool",
}


def render_tools(
    box: UpstreamTools, prompt: Prompt, target: Target, losses: Dropped
) -> list[Payload]:
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
    check_any_tool(box, tools)
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
        native: Payload | None = losses.native_value(choice.extra, "tool_choice")
        if native is not None:
            return native
    check_choice(choice, [str(tool.get("name")) for tool in tools])
    said: Payload = {"type": _CHOICE_NAMES[choice.mode]}
    if choice.mode is ChoiceMode.NAMED:
        said["name"] = choice.name
    if single and choice.mode is not ChoiceMode.NONE:
        said["disable_parallel_tool_use"] = True
    return said


def is_forced(choice: Payload | None) -> bool:
    return choice is not None and choice["type"] in ("any", "tool")


def as_auto(choice: Payload) -> Payload:
    """The same choice where the model cannot be forced."""
    return {name: value for name, value in choice.items() if name != "name"} | {"type": "auto"}


def _render_tool(sent: str, tool: Tool, target: Target, losses: Dropped) -> Payload | None:
    definition = tool.definition
    if definition is not None and definition.format is Format.MESSAGES:
        own: Payload = definition.data
        return own | {"name": sent} if "input_schema" in own else dict(own)
    losses.native_fields(tool.extra, "tools.")
    if tool.kind is ToolKind.SERVER:
        if tool.search is not None:
            return _SEARCH_TOOL | search_options(tool.search, Format.MESSAGES, losses)
        losses.drop(tool_type_name(tool))
        return None
    if tool.kind is ToolKind.CUSTOM:
        description = describe_custom_tool(Format.MESSAGES, tool.description, tool.grammar)
        return {"name": sent, "description": description, "input_schema": CUSTOM_TOOL_SCHEMA}
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


WEB_SEARCH: Final = "web_search"
_FOREIGN_PREFIX: Final = "srvtoolu_gw1_"


def foreign_search_id(call_id: str) -> str:
    """The id under which a foreign search is shown: this format's own kind of id."""
    return _FOREIGN_PREFIX + sanitize_name(call_id).replace("-", "_")


def is_foreign_search(part: Part) -> bool:
    """Whether a part of the history tells of a search that no messages upstream ran."""
    match part:
        case ServerToolCall(id=call_id) | ServerToolResult(call_id=call_id):
            return call_id.startswith(_FOREIGN_PREFIX)
        case _:
            return False


class ForeignSearch:
    """One search: `query`, and `results` as its own result block lists them. None of the foreign
    upstream's actions but a search has a counterpart here."""

    __slots__ = ("query", "results")

    def __init__(self, arguments: str) -> None:
        action = _load_object(arguments)
        self.query = lenient_str(action.get("query"))
        self.results = [
            {
                "type": "web_search_result",
                "url": url,
                "title": lenient_str(source.get("title")) or url,
                "encrypted_content": "",
                "page_age": None,
            }
            for source in lenient_objects(action.get("sources"))
            if (url := lenient_str(source.get("url")))
        ]


def _load_object(arguments: str) -> Payload:
    try:
        value: Any = orjson.loads(arguments)
    except orjson.JSONDecodeError:
        return {}
    return lenient_object(value)
