"""Reads the tools of responses requests, and the choice among them. It must not know any model.

A prompt's tools and its choice among them, as responses requests say it.

It must not know the conversation or the answer's form.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from gateway.core.formats import Format
from gateway.core.parts import ProviderData
from gateway.core.prompt import ChoiceMode, Prompt, Tool, ToolChoice, ToolKind, WebSearch
from gateway.core.target import Target
from gateway.core.value import replace
from gateway.errors import UnsupportedField
from gateway.wire.dropped import Dropped
from gateway.wire.json_fields import (
    Payload,
    as_list,
    as_object,
    invalid_field,
    join_path,
    optional_bool,
    optional_list,
    optional_object,
    optional_str,
    required,
    required_str,
)
from gateway.wire.json_schema import is_strict, parameters_schema
from gateway.wire.responses import client_tools
from gateway.wire.tool_names import CUSTOM_TOOL_ARG, UpstreamTools, tool_type_name

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
        description=(optional_str(tool, "description", path) or known.description)
        if known
        else None,
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
        extra = (
            ProviderData(Format.RESPONSES, choice) if mode is ChoiceMode.PROVIDER_SPECIFIC else None
        )
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


_SEARCH: Final = "web_search"


def render_tools(prompt: Prompt, target: Target, losses: Dropped) -> Payload:
    """`tools`, `tool_choice` and `parallel_tool_calls`, as far as there is something to say.

    Raises `CannotConvert` where the choice is one that cannot be had, or none of the tools is.
    """
    if prompt.format is Format.RESPONSES:
        return _echo(prompt, target)
    if not prompt.tools:
        return {}
    box = UpstreamTools(prompt, keep_all=True)
    tools = {sent: _render_tool(sent, tool, target, losses) for sent, tool in box.tools.items()}
    known = {sent: tool for sent, tool in tools.items() if tool is not None}
    choice = _render_tool_choice(box, known)
    if not known:
        if box.tools and (box.choice is None or box.choice.mode is not ChoiceMode.NONE):
            raise UnsupportedField("tools", "the model's upstream has none of these")
        return {}
    fields: Payload = {"tools": list(known.values())}
    if choice is not None:
        fields["tool_choice"] = choice
    if prompt.parallel_tool_calls is not None:
        fields["parallel_tool_calls"] = prompt.parallel_tool_calls
    return fields


def echo_tools(tools: Iterable[Tool]) -> list[Payload]:
    """The definitions as the client sent them, those of a namespace together again. Tools without
    one stand in an item of the input."""
    definitions: list[Payload] = []
    spaces: dict[str, Payload] = {}
    for tool in tools:
        if tool.definition is None:
            continue
        told: Payload = tool.definition.data
        if tool.namespace is None:
            definitions.append(told)
        elif tool.namespace in spaces:
            spaces[tool.namespace]["tools"] += told["tools"]
        else:
            spaces[tool.namespace] = told | {"tools": list(told["tools"])}
            definitions.append(spaces[tool.namespace])
    return definitions


def echo_tool_choice(choice: ToolChoice) -> str | Payload:
    """The choice as the client sent it."""
    if choice.extra is not None:
        own: str | Payload = choice.extra.data
        return own
    if choice.mode is ChoiceMode.NAMED:
        return {"type": choice.kind.value, "name": choice.name}
    return choice.mode.value


def _echo(prompt: Prompt, target: Target) -> Payload:
    """As the client said it, but that tools for free text are wrapped where they are not known."""
    fields: Payload = {}
    if tools := echo_tools(prompt.tools):
        fields["tools"] = (
            tools if target.custom_tools else [_without_custom(tool) for tool in tools]
        )
    if prompt.tool_choice is not None:
        choice = echo_tool_choice(prompt.tool_choice)
        if prompt.tool_choice.kind is ToolKind.CUSTOM and not target.custom_tools:
            choice = {"type": "function", "name": prompt.tool_choice.name}
        fields["tool_choice"] = choice
    if prompt.parallel_tool_calls is not None:
        fields["parallel_tool_calls"] = prompt.parallel_tool_calls
    return fields


def _without_custom(tool: Payload) -> Payload:
    if tool["type"] == "custom":
        return _custom_as_function(tool["name"], tool.get("description"), tool.get("format"))
    if tool["type"] == "namespace":
        return tool | {"tools": [_without_custom(inner) for inner in tool["tools"]]}
    return tool


def _render_tool(sent: str, tool: Tool, target: Target, losses: Dropped) -> Payload | None:
    """None for tools of other formats' upstreams."""
    losses.native_fields(tool.extra, "tools.")
    if tool.cache is not None:
        losses.drop("cache_marks")
    if tool.kind is ToolKind.SERVER:
        if tool.search is not None:
            return _render_search(tool.search, losses)
        losses.drop(tool_type_name(tool))
        return None
    if tool.kind is ToolKind.FUNCTION:
        return _render_function(sent, tool, losses)
    form = {"type": "grammar", **tool.grammar} if tool.grammar else None
    if not target.custom_tools:
        return _custom_as_function(sent, tool.description, form)
    custom: Payload = {"type": "custom", "name": sent}
    if tool.description:
        custom["description"] = tool.description
    return custom | {"format": form} if form else custom


def _render_function(sent: str, tool: Tool, losses: Dropped) -> Payload:
    """Silence about `strict` would mean that it is wanted."""
    function: Payload = {"type": "function", "name": sent}
    if tool.description:
        function["description"] = tool.description
    strict = tool.strict is True and is_strict(tool.schema)
    if tool.strict and not strict:
        losses.drop("tools.strict")
    return function | {"parameters": parameters_schema(tool.schema), "strict": strict}


def _custom_as_function(
    name: str, description: str | None, form: Mapping[str, Any] | None
) -> Payload:
    """A tool for free text as a function of one string, with its grammar told in words."""
    told = [description] if description else []
    told.append(f"'{CUSTOM_TOOL_ARG}' is the tool's whole input, as plain text.")
    if form and form.get("definition"):
        grammar = f"{form.get('syntax') or ''} grammar".strip()
        told.append(f"It must follow this {grammar}:\n{form['definition']}")
    return {
        "type": "function",
        "name": name,
        "description": "\n\n".join(told),
        "parameters": {
            "type": "object",
            "properties": {CUSTOM_TOOL_ARG: {"type": "string"}},
            "required": [CUSTOM_TOOL_ARG],
        },
        "strict": False,
    }


def _render_search(search: WebSearch, losses: Dropped) -> Payload:
    tool: Payload = {"type": _SEARCH}
    if search.allowed_domains:
        tool["filters"] = {"allowed_domains": list(search.allowed_domains)}
    if search.blocked_domains:
        losses.drop("tools.blocked_domains")
    if search.max_uses is not None:
        losses.drop("tools.max_uses")
    if search.location:
        tool["user_location"] = {"type": "approximate", **search.location}
    if search.context_size is not None:
        tool["search_context_size"] = search.context_size
    return tool


def _render_tool_choice(box: UpstreamTools, known: Mapping[str, Payload]) -> str | Payload | None:
    """The choice among the tools that are known here."""
    choice = box.choice
    if choice is None:
        return None
    if choice.allowed is not None:
        return _allowed_tools(
            choice.mode, [known[sent] for sent in known if _is_allowed(sent, box)]
        )
    match choice.mode:
        case ChoiceMode.PROVIDER_SPECIFIC:
            raise UnsupportedField("tool_choice", "the model's upstream knows no such choice")
        case ChoiceMode.NAMED:
            if (tool := known.get(choice.name or "")) is None:
                raise UnsupportedField("tool_choice", f"the upstream has no tool '{choice.name}'")
            return _force_tool(tool)
        case ChoiceMode.REQUIRED if not known:
            raise UnsupportedField("tool_choice", "the model's upstream has none of these tools")
        case _:
            return choice.mode.value


def _force_tool(tool: Payload) -> Payload:
    """Tools without a name can only be forced as the one that is allowed."""
    return _tool_ref(tool) if "name" in tool else _allowed_tools(ChoiceMode.REQUIRED, [tool])


def _allowed_tools(mode: ChoiceMode, tools: Sequence[Payload]) -> Payload:
    if not tools:
        raise UnsupportedField("tool_choice", "the model's upstream has none of these tools")
    pointed = [_tool_ref(tool) for tool in tools]
    return {"type": "allowed_tools", "mode": mode.value, "tools": pointed}


def _is_allowed(sent: str, box: UpstreamTools) -> bool:
    allowed = box.choice.allowed if box.choice else None
    return allowed is not None and (sent in allowed or box.tools[sent].name in allowed)


def _tool_ref(tool: Payload) -> Payload:
    """What points at a tool: tools that the upstream runs have no name."""
    return {field: tool[field] for field in ("type", "name") if field in tool}
