"""Reads responses requests into prompts. It must not know what any model or upstream allows.

The public format is Responses (Specification, "Responses"); the texts of its errors name the field
by its dotted path. Unknown fields are never refused.
"""

from __future__ import annotations

from typing import Final

from gateway.core.formats import Format
from gateway.core.parts import Opaque, Text
from gateway.core.prompt import (
    AS_USUAL,
    OutputFormat,
    OutputKind,
    Prompt,
    Reasoning,
    Role,
    Sampling,
    Tool,
    Turn,
)
from gateway.core.value import replace
from gateway.wire.fields import (
    Payload,
    as_list,
    as_object,
    as_str,
    boolean,
    integer,
    join,
    list_,
    model_id,
    number,
    object_,
    required,
    required_str,
    string,
)
from gateway.wire.responses.items import parse_item
from gateway.wire.responses.tools import parse_tool_choice, parse_tools

_KNOWN: Final = {
    "model",
    "input",
    "instructions",
    "stream",
    "max_output_tokens",
    "temperature",
    "top_p",
    "top_logprobs",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "text",
    "reasoning",
    "include",
    "store",
    "previous_response_id",
    "metadata",
    "user",
    "prompt_cache_key",
    "service_tier",
}
_KNOWN_INSIDE: Final = {
    "text": {"format", "verbosity"},
    "reasoning": {"effort", "summary", "generate_summary"},
}

_PLAIN: Final = _KNOWN - _KNOWN_INSIDE.keys()
_SAMPLED: Final = frozenset({"temperature", "top_p", "top_logprobs"})


def parse_prompt(body: object) -> Prompt:
    """Raises `InvalidRequest` naming the field."""
    body = as_object(body, "")
    model = model_id(body)
    turns, added_tools = _input(body)
    tools = body.get("tools")
    return Prompt(
        format=Format.RESPONSES,
        model=model,
        turns=turns,
        stream=boolean(body, "stream") or False,
        max_tokens=integer(body, "max_output_tokens", least=0),
        tools=(*(() if tools is None else parse_tools(tools, "tools")), *added_tools),
        tool_choice=parse_tool_choice(body.get("tool_choice")),
        parallel_tool_calls=boolean(body, "parallel_tool_calls"),
        reasoning=_reasoning(body),
        output=_output(body),
        sampling=AS_USUAL if body.keys().isdisjoint(_SAMPLED) else _sampling(body),
        verbosity=string(object_(body, "text") or {}, "verbosity", "text"),
        user=string(body, "user") or string(body, "safety_identifier"),
        metadata=object_(body, "metadata"),
        service_tier=string(body, "service_tier"),
        cache_key=string(body, "prompt_cache_key"),
        store=boolean(body, "store"),
        previous_response_id=string(body, "previous_response_id"),
        include=_include(body),
        extra=_extra(body),
    )


def _sampling(body: Payload) -> Sampling:
    return Sampling(
        temperature=number(body, "temperature"),
        top_p=number(body, "top_p"),
        top_logprobs=integer(body, "top_logprobs", least=0),
    )


def _input(body: Payload) -> tuple[tuple[Turn, ...], list[Tool]]:
    """The turns, and the tools that newer clients send within the input: as an item of their own,
    or as what a search for tools has found. Those have no definition, for the item stays a turn."""
    turns: list[Turn] = []
    tools: list[Tool] = []
    if instructions := string(body, "instructions"):
        turns.append(Turn(Role.SYSTEM, (Text(instructions),)))
    given = required(body, "input")
    if isinstance(given, str):
        return (*turns, Turn(Role.USER, (Text(given),))), tools
    for index, item in enumerate(as_list(given, "input")):
        path = f"input.{index}"
        kind = item.get("type") if isinstance(item, dict) else None
        if kind == "additional_tools":
            tools += parse_tools(required(item, "tools", path), join(path, "tools"))
            continue
        if kind == "tool_search_output":
            found = parse_tools(list_(item, "tools", path) or [], join(path, "tools"))
            tools += (replace(tool, definition=None) for tool in found)
        turns.append(parse_item(item, path))
    return tuple(turns), tools


def _reasoning(body: Payload) -> Reasoning | None:
    reasoning = object_(body, "reasoning")
    if not reasoning:
        return None
    effort = string(reasoning, "effort", "reasoning")
    summary = string(reasoning, "summary", "reasoning")
    return Reasoning(
        enabled=False if effort == "none" else None,
        effort=effort,
        summary=summary or string(reasoning, "generate_summary", "reasoning"),
    )


def _output(body: Payload) -> OutputFormat | None:
    if "text" not in body:
        return None
    path = "text.format"
    form = object_(object_(body, "text") or {}, "format", "text")
    if form is None:
        return None
    kind = required_str(form, "type", path)
    if kind == "json_object":
        return OutputFormat(kind=OutputKind.JSON_OBJECT)
    if kind != "json_schema":
        return None
    return OutputFormat(
        kind=OutputKind.JSON_SCHEMA,
        schema=as_object(required(form, "schema", path), join(path, "schema")),
        name=required_str(form, "name", path),
        description=string(form, "description", path),
        strict=boolean(form, "strict", path),
    )


def _include(body: Payload) -> tuple[str, ...]:
    names = list_(body, "include") or ()
    return tuple(as_str(name, f"include.{index}") for index, name in enumerate(names))


def _extra(body: Payload) -> Opaque | None:
    if body.keys() <= _PLAIN:
        return None
    extra = {name: value for name, value in body.items() if name not in _KNOWN}
    for name, known in _KNOWN_INSIDE.items():
        inside = body.get(name)
        if inside and inside.keys() - known:
            extra[name] = inside
    return Opaque(Format.RESPONSES, extra) if extra else None
