"""Chat request bodies. It must not know which upstream will get them, nor that one's limits.

What the format defines is checked; what it does not know is carried in `extra`, never refused.
Public format: Chat Completions, "Create chat completion"; fields of compatible servers
(`reasoning`, `thinking`, `enable_thinking`, `top_k`) are read where they make sense.

The `messages` of a chat request. It must not know the request's other fields.

This runs over every word of every request: it builds values around the strings it is given and
copies none of them, but for the payload of a data URI.
"""

from __future__ import annotations

from collections.abc import Callable
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
from gateway.wire.chat.content import (
    parse_content,
)
from gateway.wire.chat.reasoning import REASONING_FIELDS, parse_reasoning
from gateway.wire.chat.tools import SEARCH_FIELD, parse_tool_choice, parse_tools
from gateway.wire.json_fields import (
    Payload,
    as_list,
    as_object,
    as_str,
    invalid_field,
    missing_field,
    optional_bool,
    optional_int,
    optional_list,
    optional_number,
    optional_object,
    optional_str,
    parse_model,
    required,
    required_str,
)

_KNOWN_FIELDS: Final = {
    *("model", "messages", "stream", "stream_options", "max_completion_tokens", "max_tokens"),
    *("stop", "tools", "tool_choice", "functions", "function_call", "parallel_tool_calls"),
    *("response_format", "reasoning_effort", "reasoning", "thinking", "enable_thinking"),
    *("temperature", "top_p", "top_k", "seed", "n", "frequency_penalty", "presence_penalty"),
    *("logprobs", "top_logprobs", "verbosity", "safety_identifier", "user", "metadata"),
    *("service_tier", "prompt_cache_key", "store", SEARCH_FIELD),
}
_COMPATIBLE_FIELDS: Final = ("reasoning", "thinking", "enable_thinking")
_SAMPLING_FIELDS: Final = frozenset(
    {
        *("temperature", "top_p", "top_k", "seed", "n", "frequency_penalty", "presence_penalty"),
        *("logprobs", "top_logprobs"),
    }
)
_REASONING_FIELDS: Final = frozenset({"reasoning_effort", *_COMPATIBLE_FIELDS})
_TOOL_FIELDS: Final = frozenset(
    {"tools", "functions", "tool_choice", "function_call", SEARCH_FIELD}
)


def parse_prompt(body: object) -> Prompt:
    """Raises `InvalidRequest` naming the field."""
    body = as_object(body, "")
    named = body.keys()  # most requests name few fields: whole groups of them need no reading
    equipped = not named.isdisjoint(_TOOL_FIELDS)
    model = parse_model(body)
    options = optional_object(body, "stream_options") or {}
    most = optional_int(body, "max_completion_tokens", minimum=0)
    at_most = optional_int(body, "max_tokens", minimum=0)
    safety_identifier, user = optional_str(body, "safety_identifier"), optional_str(body, "user")
    output = _parse_output(body)
    return Prompt(
        format=Format.CHAT,
        model=model,
        turns=parse_messages(body),
        stream=optional_bool(body, "stream") or False,
        include_usage=optional_bool(options, "include_usage", "stream_options") or False,
        max_tokens=at_most if most is None else most,
        stop=_parse_stop(body),
        tools=parse_tools(body) if equipped else (),
        tool_choice=parse_tool_choice(body) if equipped else None,
        parallel_tool_calls=_parse_parallel(body),
        reasoning=None if named.isdisjoint(_REASONING_FIELDS) else _parse_effort(body),
        output=output,
        sampling=DEFAULT_SAMPLING if named.isdisjoint(_SAMPLING_FIELDS) else _parse_sampling(body),
        verbosity=optional_str(body, "verbosity"),
        user=safety_identifier or user,
        metadata=optional_object(body, "metadata"),
        service_tier=optional_str(body, "service_tier"),
        cache_key=optional_str(body, "prompt_cache_key"),
        store=optional_bool(body, "store"),
        extra=_parse_extra(body, output),
    )


def _parse_parallel(body: Payload) -> bool | None:
    """Whoever speaks of functions as of old has room for one call alone."""
    parallel = optional_bool(body, "parallel_tool_calls")
    return False if parallel is None and body.get("functions") else parallel


def _parse_stop(body: Payload) -> tuple[str, ...]:
    value = body.get("stop")
    if isinstance(value, str):
        return (value,)
    stops = optional_list(body, "stop")
    if not stops:
        return ()
    return tuple(as_str(stop, f"stop.{index}") for index, stop in enumerate(stops))


def _parse_sampling(body: Payload) -> Sampling:
    top_logprobs = optional_int(body, "top_logprobs", minimum=0)
    if top_logprobs is None and optional_bool(body, "logprobs"):
        top_logprobs = 0
    top_k = body.get("top_k")
    return Sampling(
        temperature=optional_number(body, "temperature"),
        top_p=optional_number(body, "top_p"),
        top_k=top_k if type(top_k) is int else None,
        seed=optional_int(body, "seed"),
        frequency_penalty=optional_number(body, "frequency_penalty"),
        presence_penalty=optional_number(body, "presence_penalty"),
        choices=optional_int(body, "n", minimum=1),
        top_logprobs=top_logprobs,
    )


def _parse_effort(body: Payload) -> Reasoning | None:
    """The format's own effort first, then what compatible servers call it."""
    said = {name: body[name] for name in _COMPATIBLE_FIELDS if body.get(name) is not None}
    effort = optional_str(body, "reasoning_effort")
    if said and effort is not None:
        said["reasoning_effort"] = effort
    extra = ProviderData(Format.CHAT, said) if said else None
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
    """A field that the format itself does not define: read where it fits, else ignored."""
    value = body.get(name)
    return value if type(value) is kind else None


def _parse_output(body: Payload) -> OutputFormat | None:
    form = optional_object(body, "response_format")
    if form is None:
        return None
    path = "response_format"
    match required_str(form, "type", path):
        case "json_object":
            return OutputFormat(kind=OutputKind.JSON_OBJECT)
        case "json_schema":
            path = f"{path}.json_schema"
            said = as_object(required(form, "json_schema", "response_format"), path)
            return OutputFormat(
                kind=OutputKind.JSON_SCHEMA,
                name=required_str(said, "name", path),
                schema=optional_object(said, "schema", path),
                description=optional_str(said, "description", path),
                strict=optional_bool(said, "strict", path),
            )
        case _:
            return None


def _parse_extra(body: Payload, output: OutputFormat | None) -> ProviderData | None:
    if body.keys() <= _KNOWN_FIELDS and "response_format" not in body and "user" not in body:
        return None
    rest = {name: value for name, value in body.items() if name not in _KNOWN_FIELDS}
    if output is None and (form := body.get("response_format")) and form["type"] != "text":
        rest["response_format"] = form
    if body.get("safety_identifier") and body.get("user"):
        rest["user"] = body["user"]
    return ProviderData(Format.CHAT, rest) if rest else None


_MESSAGE_FIELDS: Final = {
    *("role", "content", "name", "tool_calls", "tool_call_id", "function_call", "refusal", "audio"),
    *REASONING_FIELDS,
}
_HISTORY_CALL_FIELDS: Final = {"id", "type", "index", "function", "custom"}


_RESULT_FIELDS: Final = {"role", "content", "tool_call_id", "name"}


class _CallHistory:
    """The calls so far, as far as their results do not tell: those of custom tools look like
    others, and those of the deprecated functions have no ids."""

    __slots__ = ("_call_counts", "custom_ids")

    def __init__(self) -> None:
        self.custom_ids: set[str] = set()
        self._call_counts: dict[str, int] = {}

    def next_id(self, function: str) -> str:
        """An id for the next call of a function: its name, numbered from the second on."""
        self._call_counts[function] = self._call_counts.get(function, 0) + 1
        return self.last_id(function)

    def last_id(self, function: str) -> str:
        count = self._call_counts.get(function, 1)
        return function if count == 1 else f"{function}_{count}"


def parse_messages(body: Payload) -> tuple[Turn, ...]:
    """One turn a message. Raises `InvalidRequest`, also for an empty list."""
    messages = as_list(required(body, "messages"), "messages")
    if not messages:
        raise invalid_field("messages", "Input should have at least 1 item")
    calls = _CallHistory()
    return tuple([_parse_message(message, index, calls) for index, message in enumerate(messages)])


def _parse_message(message: object, index: int, calls: _CallHistory) -> Turn:
    if type(message) is dict and len(message) == 2:  # role and text: most are nothing else
        role, said = message.get("role"), message.get("content")
        if type(said) is str and said and type(role) is str and role in _PLAIN_ROLES:
            return Turn(_ROLES.get(role, Role.USER), (Text(said),))
    path = f"messages.{index}"
    message = as_object(message, path)
    role = required_str(message, "role", path)
    parse = _PARSERS.get(role)
    if parse is None:
        known = ", ".join(f"'{name}'" for name in _PARSERS)
        raise invalid_field(f"{path}.role", f"Input should be one of {known}")
    parts = parse(message, path, calls)
    return Turn(
        _ROLES.get(role, Role.USER),
        parts,
        name=optional_str(message, "name", path),
        extra=None
        if role == "tool"
        else ProviderData.unknown_fields(Format.CHAT, message, _MESSAGE_FIELDS),
    )


def _parse_text_message(message: Payload, path: str, calls: _CallHistory) -> tuple[Part, ...]:
    """What a person or the system says: content is a must."""
    if message.get("content") is None:
        raise missing_field(f"{path}.content")
    return parse_content(message, path)


def _parse_assistant_message(message: Payload, path: str, calls: _CallHistory) -> tuple[Part, ...]:
    """A former reply, with everything it may have held, in the order in which it was said."""
    parts: list[Part] = [*parse_reasoning(message), *parse_content(message, path)]
    if refusal := optional_str(message, "refusal", path):
        parts.append(Refusal(refusal))
    for index, call in enumerate(optional_list(message, "tool_calls", path) or ()):
        parts.append(_parse_call(as_object(call, f"{path}.tool_calls.{index}"), path, index, calls))
    if function := optional_object(message, "function_call", path):
        name = required_str(function, "name", f"{path}.function_call")
        arguments = optional_str(function, "arguments", f"{path}.function_call") or ""
        parts.append(ToolCall(id=calls.next_id(name), name=name, arguments=arguments))
    if audio := optional_object(message, "audio", path):
        parts.append(UnknownPart("audio", ProviderData(Format.CHAT, audio)))
    return tuple(parts)


def _parse_tool_message(message: Payload, path: str, calls: _CallHistory) -> tuple[Part, ...]:
    call_id = required_str(message, "tool_call_id", path)
    kind = CallKind.CUSTOM if call_id in calls.custom_ids else CallKind.FUNCTION
    extra = ProviderData.unknown_fields(Format.CHAT, message, _RESULT_FIELDS)
    return (ToolResult(call_id, parse_content(message, path), kind=kind, extra=extra),)


def _parse_function_message(message: Payload, path: str, calls: _CallHistory) -> tuple[Part, ...]:
    """Deprecated: the function's name stands for its latest call."""
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
_PLAIN_ROLES: Final = frozenset({"system", "developer", "user", "assistant"})
_ROLES: Final = {
    "system": Role.SYSTEM,
    "developer": Role.DEVELOPER,
    "assistant": Role.ASSISTANT,
}


def _parse_call(call: Payload, above: str, index: int, calls: _CallHistory) -> Part:
    path = f"{above}.tool_calls.{index}"
    kind = optional_str(call, "type", path) or "function"
    id = required_str(call, "id", path)
    if kind not in ("function", "custom"):
        return UnknownPart(kind, ProviderData(Format.CHAT, call))
    said = as_object(required(call, kind, path), f"{path}.{kind}")
    path = f"{path}.{kind}"
    name = required_str(said, "name", path)
    extra = ProviderData.unknown_fields(Format.CHAT, call, _HISTORY_CALL_FIELDS)
    if kind == "custom":
        calls.custom_ids.add(id)
        return ToolCall(
            id, name, optional_str(said, "input", path) or "", CallKind.CUSTOM, extra=extra
        )
    return ToolCall(id, name, optional_str(said, "arguments", path) or "", extra=extra)
