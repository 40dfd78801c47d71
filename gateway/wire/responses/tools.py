"""Tool definitions and tool choice, both ways."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from gateway.core.formats import Format
from gateway.core.parts import ProviderData
from gateway.core.prompt import ChoiceMode, Prompt, Tool, ToolChoice, ToolKind
from gateway.core.target import Target
from gateway.core.value import replace
from gateway.errors import UnsupportedField
from gateway.wire.json.fields import (
    Payload,
    as_object,
    as_objects,
    invalid_field,
    join_path,
    optional_bool,
    optional_object,
    optional_str,
    required,
    required_str,
)
from gateway.wire.prompt.dropped import Dropped
from gateway.wire.prompt.json_schema import is_strict, parameters_schema
from gateway.wire.prompt.known_turns import render_known_tools
from gateway.wire.prompt.render_rules import (
    CUSTOM_TOOL_SCHEMA,
    check_any_tool,
    check_choice,
    describe_custom_tool,
    may_be_called,
)
from gateway.wire.prompt.tool_names import UpstreamTools, tool_type_name
from gateway.wire.responses import client_tools
from gateway.wire.search.calls import (
    WEB_SEARCH,
    check_restrictions,
    client_function,
    parse_search,
    search_options,
)

_KINDS: Final = {"function": ToolKind.FUNCTION, "custom": ToolKind.CUSTOM}
_MODES: Final = {
    "auto": ChoiceMode.AUTO,
    "none": ChoiceMode.NONE,
    "required": ChoiceMode.REQUIRED,
}
_KNOWN_FIELDS: Final = {"type", "name", "description", "parameters", "strict", "format"}
_SEARCH_FIELDS: Final = {
    *("type", "name", "filters", "user_location", "search_context_size", "external_web_access"),
}
_FILTERS: Final = {"allowed_domains", "blocked_domains"}
_MAX_REPEATED: Final = 1000
"""Characters of a description that every tool of a namespace gets."""


def parse_tools(tools: Any, path: str) -> Iterator[Tool]:
    """The tools of a list; those of a namespace one by one."""
    for tool, at in as_objects(tools, path):
        if required_str(tool, "type", at) == "namespace":
            yield from _parse_namespace(tool, at)
        else:
            yield _parse_tool(tool, at)


def _parse_namespace(namespace: Payload, path: str) -> Iterator[Tool]:
    """Yields a namespace's tools; each gets its description, a long one the first tool alone: other
    formats have no namespaces."""
    name = required_str(namespace, "name", path)
    about = optional_str(namespace, "description", path)
    definition = ProviderData(Format.RESPONSES, namespace)
    for inner, at in as_objects(required(namespace, "tools", path), f"{path}.tools"):
        tool = _parse_tool(inner, at)
        yield replace(
            tool,
            namespace=name,
            description="\n\n".join(filter(None, (about, tool.description))) or None,
            namespace_definition=definition,
        )
        if about and len(about) > _MAX_REPEATED:
            about = None


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
        extra=ProviderData.unknown_set_fields(Format.RESPONSES, tool, _KNOWN_FIELDS),
        definition=ProviderData(Format.RESPONSES, tool),
    )


def _parse_typed_tool(tool: Payload, type_: str, path: str) -> Tool:
    """A tool that models of this format know by its type. Client tools get a description and a
    schema, with which other formats can offer them as functions."""
    if type_.startswith(WEB_SEARCH):
        return _parse_search_tool(tool, type_, path)
    definition = ProviderData(Format.RESPONSES, tool)
    if client_tool := client_tools.find(tool):
        return Tool(
            kind=ToolKind.FUNCTION,
            name=type_,
            description=optional_str(tool, "description", path) or client_tool.description,
            schema=optional_object(tool, "parameters", path) or client_tool.schema,
            extra=client_tools.unknown_fields(tool),
            definition=definition,
        )
    return Tool(
        kind=ToolKind.SERVER,
        name=optional_str(tool, "name", path) or type_,
        definition=definition,
    )


def _parse_search_tool(tool: Payload, type_: str, path: str) -> Tool:
    filters, at = optional_object(tool, "filters", path) or {}, join_path(path, "filters")
    check_restrictions(tool, path, _SEARCH_FIELDS, Format.RESPONSES)
    check_restrictions(filters, at, _FILTERS, Format.RESPONSES)
    unknown = {f"filters.{name}": filters[name] for name in filters if name not in _FILTERS}
    return Tool(
        kind=ToolKind.SERVER,
        name=optional_str(tool, "name", path) or type_,
        search=parse_search(tool, path, lists=filters, lists_path=at),
        extra=ProviderData.unknown_set_fields(Format.RESPONSES, tool | unknown, _SEARCH_FIELDS),
        definition=ProviderData(Format.RESPONSES, tool),
    )


def _parse_grammar(tool: Payload, path: str) -> Payload | None:
    form = optional_object(tool, "format", path)
    if not form or form.get("type") != "grammar":
        return None
    return {"syntax": form.get("syntax"), "definition": form.get("definition")}


def parse_tool_choice(choice: Any) -> ToolChoice | None:
    if choice is None:
        return None
    extra = ProviderData(Format.RESPONSES, choice)
    if isinstance(choice, str):
        mode = _MODES.get(choice)
        return ToolChoice(mode) if mode else ToolChoice(ChoiceMode.PROVIDER_SPECIFIC, extra=extra)
    path = "tool_choice"
    choice = as_object(choice, path)
    type_ = required_str(choice, "type", path)
    if kind := _KINDS.get(type_):
        return ToolChoice(ChoiceMode.NAMED, required_str(choice, "name", path), kind=kind)
    if type_ in client_tools.CLIENT_TOOLS:
        return ToolChoice(ChoiceMode.NAMED, type_, extra=extra)
    if type_.startswith(WEB_SEARCH):
        return ToolChoice(ChoiceMode.NAMED, type_, kind=ToolKind.SERVER, extra=extra)
    if type_ != "allowed_tools":
        return ToolChoice(ChoiceMode.PROVIDER_SPECIFIC, extra=extra)
    mode_name = required_str(choice, "mode", path)
    if mode_name not in ("auto", "required"):
        raise invalid_field(f"{path}.mode", "Input should be 'auto' or 'required'")
    allowed = tuple(
        optional_str(tool, "name", at) or required_str(tool, "type", at)
        for tool, at in as_objects(required(choice, "tools", path), f"{path}.tools")
    )
    return ToolChoice(ChoiceMode(mode_name), allowed=allowed, extra=extra)


def render_tools(prompt: Prompt, target: Target, dropped: Dropped) -> Payload:
    """`tools`, `tool_choice` and `parallel_tool_calls`, as far as they are set.

    Raises `UnsupportedField` where the upstream has no such choice, or none of the tools.
    """
    if prompt.format is Format.RESPONSES:
        return _echo(prompt, target, dropped)
    if not prompt.tools:
        return {}
    upstream = UpstreamTools(prompt, keep_all=True)

    def render() -> list[Payload]:
        return [
            {
                name: rendered
                for name, tool in upstream.tools.items()
                if (rendered := _render_tool(name, tool, target, dropped)) is not None
            }
        ]

    (tools,) = render_known_tools(prompt, target, dropped, render)
    choice = _render_tool_choice(upstream, tools)
    if not tools:
        check_any_tool(upstream, tools)
        return {}
    return _tool_fields(list(tools.values()), choice, prompt) | _max_searches(prompt)


def _max_searches(prompt: Prompt) -> Payload:
    """The limit of a client of another format on its searches: the only calls that an upstream of
    this format then runs itself."""
    limits = [tool.search.max_uses for tool in prompt.tools if tool.search is not None]
    limit = limits[0] if limits else None
    return {} if limit is None else {"max_tool_calls": limit}


def echo_tools(tools: Iterable[Tool]) -> list[Payload]:
    """The definitions as the client sent them, those of a namespace together again. Tools without
    a definition are in an item of the input."""
    definitions: list[Payload] = []
    namespaces: dict[str, Payload] = {}
    for tool in tools:
        if tool.definition is None:
            continue
        definition: Payload = tool.definition.data
        if tool.namespace is None or tool.namespace_definition is None:
            definitions.append(definition)
            continue
        if tool.namespace not in namespaces:
            namespace = tool.namespace_definition.data | {"tools": []}
            namespaces[tool.namespace] = namespace
            definitions.append(namespace)
        namespaces[tool.namespace]["tools"].append(definition)
    return definitions


def echo_tool_choice(choice: ToolChoice) -> str | Payload:
    """The choice as the client sent it."""
    if choice.extra is not None:
        data: str | Payload = choice.extra.data
        return data
    if choice.mode is ChoiceMode.NAMED:
        return {"type": choice.kind.value, "name": choice.name}
    return choice.mode.value


def _echo(prompt: Prompt, target: Target, dropped: Dropped) -> Payload:
    """Returns the tools as the client sent them, but custom tools as functions if there are none,
    and without a web search if there is none."""
    sent: Sequence[Tool] = prompt.tools
    if target.web_search is False and any([tool.search for tool in sent]):
        dropped.drop(WEB_SEARCH)
        sent = [tool for tool in sent if tool.search is None]
    tools, choice = echo_tools(sent), None
    if not target.custom_tools:
        tools = [_without_custom(tool) for tool in tools]
    if prompt.tool_choice is not None:
        choice = echo_tool_choice(prompt.tool_choice)
        if prompt.tool_choice.kind is ToolKind.CUSTOM and not target.custom_tools:
            choice = {"type": "function", "name": prompt.tool_choice.name}
    return _tool_fields(tools, choice, prompt)


def _tool_fields(tools: Sequence[Payload], choice: str | Payload | None, prompt: Prompt) -> Payload:
    fields = {
        "tools": tools or None,
        "tool_choice": choice,
        "parallel_tool_calls": prompt.parallel_tool_calls,
    }
    return {name: value for name, value in fields.items() if value is not None}


def _without_custom(tool: Payload) -> Payload:
    if tool["type"] == "custom":
        return _custom_as_function(tool["name"], tool.get("description"), tool.get("format"))
    if tool["type"] == "namespace":
        return tool | {"tools": [_without_custom(inner) for inner in tool["tools"]]}
    return tool


def _render_tool(name: str, tool: Tool, target: Target, dropped: Dropped) -> Payload | None:
    """Renders a tool; None for server tools of other formats."""
    dropped.native_fields(tool.extra, "tools.")
    if not may_be_called(tool):
        return None
    if tool.cache is not None:
        dropped.drop("cache_marks")
    if tool.kind is ToolKind.SERVER:
        if tool.search is not None and target.web_search is False:
            search = client_function(tool.search, dropped)
            if search is None:
                return None
            function = replace(tool, description=search["description"], schema=search["schema"])
            return _render_function(name, function, dropped)
        if tool.search is not None:
            options = search_options(tool.search, Format.RESPONSES, dropped)
            options.pop("max_uses", None)  # see `_max_searches`
            domains = options.pop("allowed_domains", None)
            filters = {"filters": {"allowed_domains": domains}} if domains else {}
            return {"type": WEB_SEARCH} | filters | options
        dropped.drop(tool_type_name(tool))
        return None
    if tool.kind is ToolKind.FUNCTION:
        return _render_function(name, tool, dropped)
    grammar = {"type": "grammar", **tool.grammar} if tool.grammar else None
    if not target.custom_tools:
        return _custom_as_function(name, tool.description, grammar)
    custom: Payload = {"type": "custom", "name": name}
    if tool.description:
        custom["description"] = tool.description
    return custom | {"format": grammar} if grammar else custom


def _render_function(name: str, tool: Tool, dropped: Dropped) -> Payload:
    """`strict` is always sent: its default is true."""
    function: Payload = {"type": "function", "name": name}
    if tool.description:
        function["description"] = tool.description
    strict = tool.strict is True and is_strict(tool.schema)
    if tool.strict and not strict:
        dropped.drop("tools.strict")
    parameters = parameters_schema(tool.schema, dropped.schema_budget)
    return function | {"parameters": parameters, "strict": strict}


def _custom_as_function(
    name: str, description: str | None, grammar: Mapping[str, Any] | None
) -> Payload:
    return {
        "type": "function",
        "name": name,
        "description": describe_custom_tool(Format.RESPONSES, description, grammar),
        "parameters": CUSTOM_TOOL_SCHEMA,
        "strict": False,
    }


def _render_tool_choice(
    upstream: UpstreamTools, tools: Mapping[str, Payload]
) -> str | Payload | None:
    """The choice among `tools`, which the upstream supports."""
    choice = upstream.choice
    if choice is None:
        return None
    if choice.allowed is not None:
        allowed = {*choice.allowed}
        names = [name for name in tools if {name, upstream.tools[name].name} & allowed]
        return _allowed_tools(choice.mode, [tools[name] for name in names])
    check_choice(choice, tools)
    if choice.mode is not ChoiceMode.NAMED:
        return choice.mode.value
    tool = tools[choice.name or ""]
    # tools without a name can only be forced as the one that is allowed
    return _tool_ref(tool) if "name" in tool else _allowed_tools(ChoiceMode.REQUIRED, [tool])


def _allowed_tools(mode: ChoiceMode, tools: Sequence[Payload]) -> Payload:
    if not tools:
        raise UnsupportedField("tool_choice", "none of the tools can be sent")
    refs = [_tool_ref(tool) for tool in tools]
    return {"type": "allowed_tools", "mode": mode.value, "tools": refs}


def _tool_ref(tool: Payload) -> Payload:
    """A reference to a tool; server tools have no name."""
    return {field: tool[field] for field in ("type", "name") if field in tool}
