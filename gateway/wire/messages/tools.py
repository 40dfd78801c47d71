"""Tool definitions and tool choice, both ways, and searches of upstreams of other formats.

Clients return such searches with the history, where no upstream knows them: they are recognised by
the ids that they get here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from gateway.core.formats import Format
from gateway.core.parts import (
    Part,
    ProviderData,
    ServerToolCall,
    ServerToolResult,
    Text,
    UnknownPart,
)
from gateway.core.prompt import ChoiceMode, Prompt, Tool, ToolChoice, ToolKind, Turn, WebSearch
from gateway.core.target import Target
from gateway.core.value import replace
from gateway.wire.json.fields import (
    Payload,
    as_objects,
    invalid_field,
    lenient_object,
    lenient_objects,
    lenient_str,
    load_object,
    optional_bool,
    optional_object,
    optional_str,
    required_object,
    required_str,
)
from gateway.wire.messages import client_tools
from gateway.wire.messages.cache_control import parse_cache_breakpoint, render_cache_breakpoint
from gateway.wire.prompt.dropped import Dropped
from gateway.wire.prompt.json_schema import messages_schema, parameters_schema
from gateway.wire.prompt.known_turns import parse_known, render_known_tools
from gateway.wire.prompt.render_rules import (
    CUSTOM_TOOL_SCHEMA,
    check_any_tool,
    check_choice,
    describe_custom_tool,
    may_be_called,
)
from gateway.wire.prompt.tool_names import UpstreamTools, sanitize_name, tool_type_name
from gateway.wire.search.calls import (
    TYPE_PREFIX,
    WEB_SEARCH,
    check_restrictions,
    client_function,
    lower_version,
    max_calls,
    messages_type,
    parse_search,
    search_options,
)
from gateway.wire.search.history import CALL_PREFIX

_ADDITION: Final = "tool_addition"
_CHANGES: Final = (_ADDITION, "tool_removal")
_DEFINITION: Final = "tool_definition"
_OWN_TOOLS: Final = (_DEFINITION, "tool_reference")
"""Types of what a change names, unless it is a tool of an MCP server."""
_FOREIGN_PREFIX: Final = "srvtoolu_gw1_"
_TOOL_FIELDS: Final = {"type", "name", "description", "input_schema", "strict", "cache_control"}
_SEARCH_FIELDS: Final = {
    *("type", "name", "max_uses", "allowed_domains", "blocked_domains", "user_location"),
    "cache_control",
}
_CHOICE_MODES: Final = {
    "auto": ChoiceMode.AUTO,
    "any": ChoiceMode.REQUIRED,
    "none": ChoiceMode.NONE,
    "tool": ChoiceMode.NAMED,
}
_CHOICE_NAMES: Final = {mode: name for name, mode in _CHOICE_MODES.items()}


def parse_tools(body: Payload) -> tuple[Tool, ...]:
    definitions = body.get("tools")

    def parse() -> tuple[Tool, ...]:
        return tuple([_parse_tool(*each) for each in as_objects(definitions, "tools")])

    return parse_known(definitions, Format.MESSAGES, parse)


def offered_tools(tools: tuple[Tool, ...], turns: Iterable[Turn]) -> tuple[Tool, ...]:
    """The tools that the model may call after the additions and removals in the conversation, in
    order (Messages, "Tool changes"). Those of MCP servers are left to upstreams that have them."""
    changes = list(_tool_changes(turns))
    if not changes:
        return tools
    known = {tool.name: tool for tool in tools}
    offered = dict(known)
    for change in changes:
        named = required_object(change, "tool", path := change["type"])
        name = lenient_str(named.get("name"))
        if named.get("type") == _DEFINITION:
            path += ".tool.definition"
            tool = _parse_tool(required_object(named, "definition", f"{path}.tool"), path)
            known[name := tool.name] = tool
        offered.pop(name, None)
        if change["type"] == _ADDITION and name in known:
            offered[name] = known[name]
    return tuple(offered.values())


def _tool_changes(turns: Iterable[Turn]) -> Iterator[Payload]:
    """The blocks that change the tools, those in the summary of a compaction included."""
    for turn in turns:
        for part in turn.parts:
            if type(part) is UnknownPart:
                yield from filter(_is_own_change, [part.data.data])
            elif type(part) is Text and part.extra is not None:
                changes = lenient_objects(part.extra.data.get("tool_changes"))
                yield from filter(_is_own_change, changes)


def is_applied_change(part: UnknownPart) -> bool:
    """Tells whether the part changes the tools in a way that the field `tools` already has."""
    return part.data.format is Format.MESSAGES and _is_own_change(part.data.data)


def _is_own_change(block: Payload) -> bool:
    if block.get("type") not in _CHANGES:
        return False
    return lenient_object(block.get("tool")).get("type") in _OWN_TOOLS


def parse_tool_choice(body: Payload) -> tuple[ToolChoice | None, bool | None]:
    """The choice, and whether the model may call several tools at once."""
    path = "tool_choice"
    choice = optional_object(body, path)
    if choice is None:
        return None, None
    mode = _CHOICE_MODES.get(required_str(choice, "type", path), ChoiceMode.PROVIDER_SPECIFIC)
    name = required_str(choice, "name", path) if mode is ChoiceMode.NAMED else None
    extra = ProviderData(Format.MESSAGES, choice) if mode is ChoiceMode.PROVIDER_SPECIFIC else None
    single = optional_bool(choice, "disable_parallel_tool_use", path)
    return ToolChoice(mode, name, extra=extra), None if single is None else not single


def _parse_tool(tool: Payload, path: str) -> Tool:
    kind = optional_str(tool, "type", path) or "custom"
    if kind != "custom":
        return _parse_typed_tool(tool, kind, path)
    return Tool(
        kind=ToolKind.FUNCTION,
        name=required_str(tool, "name", path),
        description=optional_str(tool, "description", path),
        schema=required_object(tool, "input_schema", path),
        strict=optional_bool(tool, "strict", path),
        cache=parse_cache_breakpoint(tool, path),
        extra=ProviderData.unknown_set_fields(Format.MESSAGES, tool, _TOOL_FIELDS),
        definition=ProviderData(Format.MESSAGES, tool),
    )


def _parse_typed_tool(tool: Payload, kind: str, path: str) -> Tool:
    """A tool that models of this format know by its type. Client tools get a description and a
    schema, with which other formats can offer them as functions."""
    client_tool = client_tools.find_client_tool(kind, tool)
    name = optional_str(tool, "name", path) or optional_str(tool, "mcp_server_name", path)
    is_search = kind.startswith(TYPE_PREFIX)
    known = _SEARCH_FIELDS if is_search else client_tools.FIELDS if client_tool else None
    return Tool(
        kind=ToolKind.FUNCTION if client_tool else ToolKind.SERVER,
        name=name or kind,
        description=client_tool.description if client_tool else None,
        schema=client_tool.schema if client_tool else None,
        search=_parse_search(tool, path) if is_search else None,
        cache=parse_cache_breakpoint(tool, path),
        extra=ProviderData.unknown_set_fields(Format.MESSAGES, tool, known) if known else None,
        definition=ProviderData(Format.MESSAGES, tool),
    )


def _parse_search(tool: Payload, path: str) -> WebSearch:
    if optional_str(tool, "name", path) not in (None, WEB_SEARCH):
        raise invalid_field(f"{path}.name", f"Input should be '{WEB_SEARCH}'")
    check_restrictions(tool, path, _SEARCH_FIELDS, Format.MESSAGES)
    search = parse_search(tool, path, lists=tool, lists_path=path)
    return replace(search, client_executable=True)


def render_tools(
    upstream: UpstreamTools, prompt: Prompt, target: Target, dropped: Dropped
) -> list[Payload]:
    """Raises `UnsupportedField` where none of the tools can be sent."""
    cache_breakpoints = target.cache_marks or prompt.format is Format.MESSAGES

    def render() -> list[Payload]:
        definitions: list[Payload] = []
        for name, tool in upstream.tools.items():
            definition = _render_tool(name, tool, target, dropped)
            if definition is None:
                continue
            if tool.search and "type" in definition and (limit := max_calls(prompt)) is not None:
                definition["max_uses"] = limit
                dropped.names.discard("max_tool_calls")
            if tool.cache and not cache_breakpoints:
                dropped.drop("cache_marks")
            elif tool.cache:
                definition["cache_control"] = render_cache_breakpoint(tool.cache)
            definitions.append(definition)
        return definitions

    definitions = render_known_tools(prompt, target, dropped, render)
    check_any_tool(upstream, definitions)
    return definitions


def render_tool_choice(
    upstream: UpstreamTools, prompt: Prompt, tools: Iterable[Payload], dropped: Dropped
) -> Payload | None:
    """Renders the choice; None for the default. Raises `UnsupportedField` if the upstream has no
    such choice."""
    single = prompt.parallel_tool_calls is False
    choice = upstream.choice
    if not tools:
        return None
    if choice is None:
        return {"type": "auto", "disable_parallel_tool_use": True} if single else None
    if choice.mode is ChoiceMode.PROVIDER_SPECIFIC:
        native: Payload | None = dropped.native_value(choice.extra, "tool_choice")
        if native is not None:
            return native
    check_choice(choice, [str(tool.get("name")) for tool in tools])
    rendered: Payload = {"type": _CHOICE_NAMES[choice.mode]}
    if choice.mode is ChoiceMode.NAMED:
        rendered["name"] = choice.name
    if single and choice.mode is not ChoiceMode.NONE:
        rendered["disable_parallel_tool_use"] = True
    return rendered


def is_forced(choice: Payload | None) -> bool:
    return choice is not None and choice["type"] in ("any", "tool")


def _render_tool(name: str, tool: Tool, target: Target, dropped: Dropped) -> Payload | None:
    """Renders a tool; None for server tools of other formats."""
    if tool.search is not None:
        return _render_search(name, tool, tool.search, target, dropped)
    native: Payload | None = ProviderData.native_data(tool.definition, Format.MESSAGES)
    if native is not None:
        return native | {"name": name} if "input_schema" in native else dict(native)
    dropped.native_fields(tool.extra, "tools.")
    if tool.kind is ToolKind.SERVER:
        dropped.drop(tool_type_name(tool))
        return None
    if not may_be_called(tool):
        return None
    if tool.kind is ToolKind.CUSTOM:
        description = describe_custom_tool(Format.MESSAGES, tool.description, tool.grammar)
        return {"name": name, "description": description, "input_schema": CUSTOM_TOOL_SCHEMA}
    function: Payload = {"name": name}
    if tool.description:
        function["description"] = tool.description
    function["input_schema"] = parameters_schema(tool.schema, dropped.schema_budget)
    if tool.strict:
        enforced: Payload | None = None
        if target.structured:
            enforced = messages_schema(function["input_schema"], dropped.schema_budget)
        if enforced is None:
            dropped.drop("tools.strict")
        else:
            function |= {"input_schema": enforced, "strict": True}
    return function


def _render_search(
    name: str, tool: Tool, search: WebSearch, target: Target, dropped: Dropped
) -> Payload | None:
    if target.web_search is False:
        function = client_function(search, dropped)
        if function is None:
            return None
        about = function["description"]
        return {"name": name, "description": about, "input_schema": function["schema"]}
    native: Payload | None = ProviderData.native_data(tool.definition, Format.MESSAGES)
    if native is not None:
        return dict(lower_version(native, target))
    dropped.native_fields(tool.extra, "tools.")
    if not search.is_live:  # this format has no other
        dropped.drop(WEB_SEARCH)
        return None
    options = search_options(search, Format.MESSAGES, dropped)
    return {"type": messages_type(target), "name": WEB_SEARCH} | options


def foreign_search_id(call_id: str) -> str:
    """The id of a foreign search for clients, in the form of this format's own ids."""
    return _FOREIGN_PREFIX + sanitize_name(call_id).replace("-", "_")


def is_foreign_search(part: Part) -> bool:
    """Tells whether a part of the history is a search of an upstream of another format, or the
    gateway's own."""
    match part:
        case ServerToolCall(id=call_id) | ServerToolResult(call_id=call_id):
            return call_id.startswith((_FOREIGN_PREFIX, CALL_PREFIX))
        case _:
            return False


class ForeignSearch:
    """A search: `query`, and `results` as in the result block of this format. The query of other
    actions of the foreign upstream is empty."""

    __slots__ = ("query", "results")

    def __init__(self, arguments: str) -> None:
        action = load_object(arguments)
        self.query = lenient_str(action.get("query"))
        self.results: list[Any] = [
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
