"""Responses requests to prompts (Specification, "Responses"). Unknown fields are accepted."""

from __future__ import annotations

from typing import Final

from gateway.core.formats import Format
from gateway.core.parts import ProviderData, Text
from gateway.core.prompt import (
    DEFAULT_SAMPLING,
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
from gateway.wire.json.fields import (
    Payload,
    as_list,
    as_object,
    as_strs,
    optional_bool,
    optional_int,
    optional_number,
    optional_object,
    optional_str,
    parse_model,
    required,
    required_object,
    required_str,
)
from gateway.wire.prompt.known_turns import keep_turns, known_turns, parse_known
from gateway.wire.responses.input_items import is_reference, parse_item
from gateway.wire.responses.tools import parse_tool_choice, parse_tools

_KNOWN_FIELDS: Final = {
    *("model", "input", "instructions", "stream", "max_output_tokens", "temperature", "top_p"),
    *("top_logprobs", "tools", "tool_choice", "parallel_tool_calls", "text", "reasoning"),
    *("include", "store", "previous_response_id", "metadata", "user", "prompt_cache_key"),
    *("service_tier", "background", "conversation"),
}
_KNOWN_SUBFIELDS: Final = {
    "text": {"format", "verbosity"},
    "reasoning": {"effort", "summary", "generate_summary"},
}

_FLAT_FIELDS: Final = _KNOWN_FIELDS - _KNOWN_SUBFIELDS.keys()
_UPDATABLE_FIELDS: Final = frozenset({"reasoning", "text"})
"""Fields that an item `configuration_update` can change."""
_COMPACTION_ITEMS: Final = ("compaction", "compaction_trigger")
_SAMPLING_FIELDS: Final = frozenset({"temperature", "top_p", "top_logprobs"})


def parse_prompt(body: object) -> Prompt:
    """Raises `InvalidRequest` with the dotted path of the field."""
    body = as_object(body, "")
    model = parse_model(body)
    instructions = optional_str(body, "instructions")
    previous_response_id = optional_str(body, "previous_response_id")
    turns, added_tools, settings, has_references, compaction = _parse_input(body, instructions)
    if settings:
        body = body | settings
    optional_int(body, "max_tool_calls", minimum=1)  # stays in `extra`
    defined = body.get("tools")
    tools = parse_known(defined, Format.RESPONSES, lambda: tuple(parse_tools(defined, "tools")))
    return Prompt(
        format=Format.RESPONSES,
        model=model,
        turns=turns,
        stream=optional_bool(body, "stream") or False,
        max_tokens=optional_int(body, "max_output_tokens", minimum=0),
        tools=(*tools, *added_tools) if added_tools else tools,
        tool_choice=parse_tool_choice(body.get("tool_choice")),
        parallel_tool_calls=optional_bool(body, "parallel_tool_calls"),
        reasoning=_parse_reasoning(body),
        output=_parse_output_format(body),
        sampling=DEFAULT_SAMPLING
        if body.keys().isdisjoint(_SAMPLING_FIELDS)
        else _parse_sampling(body),
        verbosity=optional_str(optional_object(body, "text") or {}, "verbosity", "text"),
        user=optional_str(body, "user") or optional_str(body, "safety_identifier"),
        metadata=optional_object(body, "metadata"),
        service_tier=optional_str(body, "service_tier"),
        cache_key=optional_str(body, "prompt_cache_key"),
        store=optional_bool(body, "store"),
        previous_response_id=previous_response_id,
        include=as_strs(body.get("include"), "include"),
        instructions=instructions,
        continues=has_references
        or previous_response_id is not None
        or body.get("conversation") is not None,
        background=optional_bool(body, "background") or False,
        compaction=compaction,
        extra=_unknown_fields(body),
    )


def _parse_sampling(body: Payload) -> Sampling:
    return Sampling(
        temperature=optional_number(body, "temperature"),
        top_p=optional_number(body, "top_p"),
        top_logprobs=optional_int(body, "top_logprobs", minimum=0) or None,
    )


def _parse_input(
    body: Payload, instructions: str | None
) -> tuple[tuple[Turn, ...], list[Tool], Payload, bool, bool]:
    """The turns, and the tools that clients send within the input: as an item of their own, or as
    the output of a tool search. The latter have no definition, because the item stays a turn. Then
    the settings of the body that items have updated, whether an item is only the name of another,
    and whether one is about a compaction."""
    turns: list[Turn] = []
    tools: list[Tool] = []
    settings: Payload = {}
    has_references = compaction = False
    first = [Turn(Role.SYSTEM, (Text(instructions),))] if instructions else []
    items = required(body, "input")
    if isinstance(items, str):
        return (*first, Turn(Role.USER, (Text(items),))), tools, settings, False, False
    known = known_turns(as_list(items, "input"), Format.RESPONSES)
    for index, item in enumerate(items):
        path = f"input.{index}"
        kind = item.get("type") if isinstance(item, dict) else None
        if kind == "additional_tools":
            tools += parse_tools(required(item, "tools", path), f"{path}.tools")
            continue
        if kind == "tool_search_output":
            found_tools = parse_tools(item.get("tools"), f"{path}.tools")
            tools += (replace(tool, definition=None) for tool in found_tools)
        elif kind == "configuration_update":
            for name in item.keys() & _UPDATABLE_FIELDS:
                before = settings.get(name) or optional_object(body, name) or {}
                settings[name] = before | (optional_object(item, name, path) or {})
        turn = known[index] if index < len(known) else parse_item(item, path)
        turns.append(turn)
        if kind != "message":
            has_references = has_references or is_reference(turn)
            compaction = compaction or kind in _COMPACTION_ITEMS
    if len(turns) < len(items):  # not every item is a turn
        return (*first, *turns), tools, settings, has_references, compaction
    kept = keep_turns(items, Format.RESPONSES, first, turns)
    return kept, tools, settings, has_references, compaction


def _parse_reasoning(body: Payload) -> Reasoning | None:
    reasoning = optional_object(body, "reasoning")
    if not reasoning:
        return None
    effort = optional_str(reasoning, "effort", "reasoning")
    summary = optional_str(reasoning, "summary", "reasoning")
    return Reasoning(
        enabled=False if effort == "none" else None,
        effort=effort,
        summary=summary or optional_str(reasoning, "generate_summary", "reasoning"),
    )


def _parse_output_format(body: Payload) -> OutputFormat | None:
    if "text" not in body:
        return None
    path = "text.format"
    form = optional_object(optional_object(body, "text") or {}, "format", "text")
    kind = None if form is None else required_str(form, "type", path)
    if kind == "json_object":
        return OutputFormat(kind=OutputKind.JSON_OBJECT)
    if form is None or kind != "json_schema":
        return None
    return OutputFormat(
        kind=OutputKind.JSON_SCHEMA,
        schema=required_object(form, "schema", path),
        name=required_str(form, "name", path),
        description=optional_str(form, "description", path),
        strict=optional_bool(form, "strict", path),
    )


def _unknown_fields(body: Payload) -> ProviderData | None:
    if body.keys() <= _FLAT_FIELDS:
        return None
    extra = {name: value for name, value in body.items() if name not in _KNOWN_FIELDS}
    for name, known in _KNOWN_SUBFIELDS.items():
        inside = body.get(name)
        if inside and inside.keys() - known:
            extra[name] = inside
    return ProviderData(Format.RESPONSES, extra) if extra else None
