"""Parses chat requests (Chat Completions, "Create chat completion").

The fields that the format defines are validated; others are kept in `extra`. Fields of compatible
servers (`reasoning`, `thinking`, `enable_thinking`, `top_k`) are read where they make sense. Text
is not copied, except for the payload of a data URL.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from gateway.core.formats import Format
from gateway.core.parts import (
    CallKind,
    Part,
    ProviderData,
    Refusal,
    Text,
    ToolCall,
    ToolResult,
    UnknownPart,
)
from gateway.core.prompt import (
    DEFAULT_SAMPLING,
    OutputFormat,
    OutputKind,
    Prompt,
    Reasoning,
    Role,
    Sampling,
    Turn,
)
from gateway.wire.chat.content import parse_content
from gateway.wire.chat.reasoning import REASONING_FIELDS, parse_reasoning
from gateway.wire.chat.tools import SEARCH_FIELD, parse_tool_choice, parse_tools
from gateway.wire.chat.usage import USAGE_FIELD
from gateway.wire.json.fields import (
    Payload,
    as_list,
    as_object,
    as_objects,
    as_str,
    invalid_field,
    lenient_object,
    missing_field,
    optional_bool,
    optional_int,
    optional_list,
    optional_number,
    optional_object,
    optional_str,
    parse_model,
    required,
    required_object,
    required_str,
)
from gateway.wire.prompt.known_turns import keep_turns, known_turns

_SAMPLING_FIELDS: Final = frozenset(
    {
        *("temperature", "top_p", "top_k", "seed", "n", "frequency_penalty", "presence_penalty"),
        *("logprobs", "top_logprobs"),
    }
)
_COMPATIBLE_FIELDS: Final = ("reasoning", "thinking", "enable_thinking")
_REASONING_FIELDS: Final = frozenset({"reasoning_effort", *_COMPATIBLE_FIELDS})
_TOOL_FIELDS: Final = frozenset(
    {"tools", "functions", "tool_choice", "function_call", SEARCH_FIELD}
)
_KNOWN_FIELDS: Final = {
    *("model", "messages", "stream", "stream_options", "max_completion_tokens", "max_tokens"),
    *("stop", "parallel_tool_calls", "response_format", "verbosity", "safety_identifier", "user"),
    *("metadata", "service_tier", "prompt_cache_key", "store", USAGE_FIELD),
    *(*_SAMPLING_FIELDS, *_REASONING_FIELDS, *_TOOL_FIELDS),
}
_MESSAGE_FIELDS: Final = {
    *("role", "content", "name", "tool_calls", "tool_call_id", "function_call", "refusal", "audio"),
    *REASONING_FIELDS,
}
_CALL_FIELDS: Final = {"id", "type", "index", "function", "custom"}
_RESULT_FIELDS: Final = {"role", "content", "tool_call_id", "name"}
_ROLES: Final = {
    "system": Role.SYSTEM,
    "developer": Role.DEVELOPER,
    "user": Role.USER,
    "assistant": Role.ASSISTANT,
}


def parse_prompt(body: object) -> Prompt:
    """Raises `InvalidRequest` naming the field."""
    body = as_object(body, "")
    names = body.keys()  # most requests have few fields: whole groups need not be read
    has_tools = not names.isdisjoint(_TOOL_FIELDS)
    model = parse_model(body)
    options = optional_object(body, "stream_options") or {}
    max_tokens = optional_int(body, "max_completion_tokens", minimum=0)
    old_max_tokens = optional_int(body, "max_tokens", minimum=0)
    safety_identifier, user = optional_str(body, "safety_identifier"), optional_str(body, "user")
    parallel = optional_bool(body, "parallel_tool_calls")
    if parallel is None and body.get("functions"):  # the deprecated way allows one call
        parallel = False
    return Prompt(
        format=Format.CHAT,
        model=model,
        turns=parse_messages(body),
        stream=optional_bool(body, "stream") or False,
        include_usage=optional_bool(options, "include_usage", "stream_options") or False,
        include_cost=USAGE_FIELD in names and _includes_cost(body),
        max_tokens=old_max_tokens if max_tokens is None else max_tokens,
        stop=_parse_stop(body),
        tools=parse_tools(body) if has_tools else (),
        tool_choice=parse_tool_choice(body) if has_tools else None,
        parallel_tool_calls=parallel,
        reasoning=None if names.isdisjoint(_REASONING_FIELDS) else _parse_effort(body),
        output=_parse_output(body),
        sampling=DEFAULT_SAMPLING if names.isdisjoint(_SAMPLING_FIELDS) else _parse_sampling(body),
        verbosity=optional_str(body, "verbosity"),
        user=safety_identifier or user,
        metadata=optional_object(body, "metadata"),
        service_tier=optional_str(body, "service_tier"),
        cache_key=optional_str(body, "prompt_cache_key"),
        store=optional_bool(body, "store"),
        extra=_parse_extra(body),
    )


def _includes_cost(body: Payload) -> bool:
    return lenient_object(body[USAGE_FIELD]).get("include") is True


def _parse_stop(body: Payload) -> tuple[str, ...]:
    stop = body.get("stop")
    if isinstance(stop, str):
        return (stop,)
    stops = enumerate(optional_list(body, "stop") or ())
    return tuple([as_str(stop, f"stop.{index}") for index, stop in stops])


def _parse_sampling(body: Payload) -> Sampling:
    top_logprobs = optional_int(body, "top_logprobs", minimum=0)
    if not top_logprobs:
        top_logprobs = 0 if optional_bool(body, "logprobs") else None
    return Sampling(
        temperature=optional_number(body, "temperature"),
        top_p=optional_number(body, "top_p"),
        top_k=_typed_field(body, "top_k", int),
        seed=optional_int(body, "seed"),
        frequency_penalty=optional_number(body, "frequency_penalty"),
        presence_penalty=optional_number(body, "presence_penalty"),
        choices=optional_int(body, "n", minimum=1),
        top_logprobs=top_logprobs,
    )


def _parse_effort(body: Payload) -> Reasoning | None:
    """The format's own effort, else a setting of compatible servers."""
    settings = {name: body[name] for name in _COMPATIBLE_FIELDS if body.get(name) is not None}
    effort = optional_str(body, "reasoning_effort")
    if settings and effort is not None:
        settings["reasoning_effort"] = effort
    extra = ProviderData(Format.CHAT, settings) if settings else None
    if effort is not None:
        return Reasoning(enabled=False if effort == "none" else None, effort=effort, extra=extra)
    reasoning, thinking = body.get("reasoning"), body.get("thinking")
    if isinstance(reasoning, dict):
        return Reasoning(
            enabled=_typed_field(reasoning, "enabled", bool),
            effort=_typed_field(reasoning, "effort", str),
            budget=_typed_field(reasoning, "max_tokens", int),
            extra=extra,
        )
    if isinstance(thinking, dict) and isinstance(thinking.get("type"), str):
        mode = thinking["type"]
        return Reasoning(
            enabled=mode != "disabled",
            budget=_typed_field(thinking, "budget_tokens", int),
            mode=None if mode in ("enabled", "disabled") else mode,
            extra=extra,
        )
    enabled = _typed_field(body, "enable_thinking", bool)
    return None if enabled is None else Reasoning(enabled=enabled, extra=extra)


def _typed_field(body: Payload, name: str, kind: type) -> Any:
    """A field of compatible servers: None where it has another type."""
    value = body.get(name)
    return value if type(value) is kind else None


def _parse_output(body: Payload) -> OutputFormat | None:
    form = optional_object(body, "response_format")
    if form is None:
        return None
    match required_str(form, "type", "response_format"):
        case "text":
            return None
        case "json_object":
            return OutputFormat(kind=OutputKind.JSON_OBJECT)
        case "json_schema":
            path = "response_format.json_schema"
            schema = required_object(form, "json_schema", "response_format")
            return OutputFormat(
                kind=OutputKind.JSON_SCHEMA,
                name=required_str(schema, "name", path),
                schema=optional_object(schema, "schema", path) or {"type": "object"},
                description=optional_str(schema, "description", path),
                strict=optional_bool(schema, "strict", path),
            )
        case _:
            reason = "must be `text`, `json_object` or `json_schema`"
            raise invalid_field("response_format.type", reason)


def _parse_extra(body: Payload) -> ProviderData | None:
    if body.keys() <= _KNOWN_FIELDS and "user" not in body:
        return None
    extra = {name: value for name, value in body.items() if name not in _KNOWN_FIELDS}
    if body.get("safety_identifier") and body.get("user"):
        extra["user"] = body["user"]
    return ProviderData(Format.CHAT, extra) if extra else None


@dataclass(slots=True)
class _CallHistory:
    """The calls so far, where their results do not identify them: results of custom tools have no
    kind, and deprecated functions no call ids."""

    custom_ids: set[str] = field(default_factory=set)
    counts: dict[str, int] = field(default_factory=dict)

    def next_id(self, function: str) -> str:
        """An id for the next call of a function: its name, numbered from the second on."""
        self.counts[function] = self.counts.get(function, 0) + 1
        return self.last_id(function)

    def last_id(self, function: str) -> str:
        count = self.counts.get(function, 1)
        return function if count == 1 else f"{function}_{count}"


def parse_messages(body: Payload) -> tuple[Turn, ...]:
    """One turn for each message. Raises `InvalidRequest`, also for an empty list."""
    messages = as_list(required(body, "messages"), "messages")
    if not messages:
        raise invalid_field("messages", "Input should have at least 1 item")
    calls, known = _CallHistory(), known_turns(messages, Format.CHAT)
    new = enumerate(messages[len(known) :], len(known))
    turns = (*known, *[_parse_message(message, index, calls) for index, message in new])
    if calls.custom_ids or calls.counts:  # later results depend on them
        return turns
    return keep_turns(messages, Format.CHAT, (), turns)


def _parse_message(message: object, index: int, calls: _CallHistory) -> Turn:
    if type(message) is dict and len(message) == 2:  # most have only role and text
        role, text = message.get("role"), message.get("content")
        if type(text) is str and text and type(role) is str and role in _ROLES:
            return Turn(_ROLES[role], (Text(text),))
    path = f"messages.{index}"
    message = as_object(message, path)
    role = required_str(message, "role", path)
    parse = _PARSERS.get(role)
    if parse is None:
        roles = ", ".join(f"'{name}'" for name in _PARSERS)
        raise invalid_field(f"{path}.role", f"Input should be one of {roles}")
    parts = parse(message, path, calls)
    name = optional_str(message, "name", path)
    extra: ProviderData | None = None
    if role != "tool":
        extra = ProviderData.unknown_fields(Format.CHAT, message, _MESSAGE_FIELDS)
    return Turn(_ROLES.get(role, Role.USER), parts, name, extra)


def _parse_text_message(message: Payload, path: str, calls: _CallHistory) -> tuple[Part, ...]:
    """A system or user message, which must have content."""
    if message.get("content") is None:
        raise missing_field(f"{path}.content")
    return parse_content(message, path)


def _parse_assistant_message(message: Payload, path: str, calls: _CallHistory) -> tuple[Part, ...]:
    """An earlier reply, its parts in the order of generation."""
    parts: list[Part] = [*parse_reasoning(message), *parse_content(message, path)]
    if refusal := optional_str(message, "refusal", path):
        parts.append(Refusal(refusal))
    for call, at in as_objects(message.get("tool_calls"), f"{path}.tool_calls"):
        parts.append(_parse_call(call, at, calls))
    if function := optional_object(message, "function_call", path):
        name = required_str(function, "name", f"{path}.function_call")
        arguments = optional_str(function, "arguments", f"{path}.function_call") or ""
        parts.append(ToolCall(id=calls.next_id(name), name=name, arguments=arguments))
    if audio := optional_object(message, "audio", path):
        parts.append(UnknownPart("audio", ProviderData(Format.CHAT, audio)))
    return tuple(parts)


def _parse_call(call: Payload, path: str, calls: _CallHistory) -> Part:
    type_ = optional_str(call, "type", path) or "function"
    id = required_str(call, "id", path)
    if type_ not in ("function", "custom"):
        return UnknownPart(type_, ProviderData(Format.CHAT, call))
    kind, arguments_field = CallKind.FUNCTION, "arguments"
    if type_ == "custom":
        kind, arguments_field = CallKind.CUSTOM, "input"
        calls.custom_ids.add(id)
    extra = ProviderData.unknown_fields(Format.CHAT, call, _CALL_FIELDS)
    fields, path = required_object(call, type_, path), f"{path}.{type_}"
    name = required_str(fields, "name", path)
    return ToolCall(id, name, optional_str(fields, arguments_field, path) or "", kind, extra=extra)


def _parse_tool_message(message: Payload, path: str, calls: _CallHistory) -> tuple[Part, ...]:
    call_id = required_str(message, "tool_call_id", path)
    kind = CallKind.CUSTOM if call_id in calls.custom_ids else CallKind.FUNCTION
    extra = ProviderData.unknown_fields(Format.CHAT, message, _RESULT_FIELDS)
    return (ToolResult(call_id, parse_content(message, path), kind=kind, extra=extra),)


def _parse_function_message(message: Payload, path: str, calls: _CallHistory) -> tuple[Part, ...]:
    """Deprecated: the result of the function's latest call."""
    call_id = calls.last_id(required_str(message, "name", path))
    return (ToolResult(call_id, parse_content(message, path)),)


_PARSERS: Final[dict[str, Callable[[Payload, str, _CallHistory], tuple[Part, ...]]]] = {
    "system": _parse_text_message,
    "developer": _parse_text_message,
    "user": _parse_text_message,
    "assistant": _parse_assistant_message,
    "tool": _parse_tool_message,
    "function": _parse_function_message,
}
