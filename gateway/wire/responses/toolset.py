"""A prompt's tools and its choice among them, as responses requests say it.

It must not know the conversation or the answer's form.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from gateway.core.formats import Format
from gateway.core.prompt import ChoiceMode, Prompt, Tool, ToolChoice, ToolKind, WebSearch
from gateway.core.target import Target
from gateway.errors import UnsupportedField
from gateway.wire.crossing import Dropped
from gateway.wire.fields import Payload
from gateway.wire.json_schema import is_strict, parameters_schema
from gateway.wire.toolbox import CUSTOM_TOOL_ARG, UpstreamTools, tool_type_name

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


def _custom_as_function(name: str, description: str | None, form: Mapping[str, Any] | None) -> Payload:
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
        return _allowed_tools(choice.mode, [known[sent] for sent in known if _is_allowed(sent, box)])
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
