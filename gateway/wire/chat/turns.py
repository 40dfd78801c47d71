"""The `messages` of a chat request. It must not know the request's other fields.

This runs over every word of every request: it builds values around the strings it is given and
copies none of them, but for the payload of a data URI.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from gateway.core.formats import Format
from gateway.core.parts import (
    CallKind,
    ProviderData,
    UnknownPart,
    Part,
    Refusal,
    Text,
    ToolCall,
    ToolResult,
)
from gateway.core.prompt import Role, Turn
from gateway.wire.chat.media import CACHE_FIELDS, parse_audio, parse_cache_breakpoint, parse_file, parse_image
from gateway.wire.chat.reasoning import REASONING_FIELDS, parse_reasoning
from gateway.wire.fields import (
    Payload,
    as_list,
    as_object,
    as_str,
    invalid_field,
    optional_list,
    missing_field,
    optional_object,
    required,
    required_str,
    optional_str,
)

_MESSAGE_FIELDS: Final = {
    *("role", "content", "name", "tool_calls", "tool_call_id", "function_call", "refusal", "audio"),
    *REASONING_FIELDS,
}
_HISTORY_CALL_FIELDS: Final = {"id", "type", "index", "function", "custom"}
_TEXT_FIELDS: Final = {"type", "text", *CACHE_FIELDS}
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
        extra=None if role == "tool" else unknown_fields(message, _MESSAGE_FIELDS),
    )


def unknown_fields(value: Payload, known: set[str]) -> ProviderData | None:
    if value.keys() <= known:
        return None
    return ProviderData(Format.CHAT, {key: value[key] for key in value if key not in known})


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
    extra = unknown_fields(message, _RESULT_FIELDS)
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
    extra = unknown_fields(call, _HISTORY_CALL_FIELDS)
    if kind == "custom":
        calls.custom_ids.add(id)
        return ToolCall(id, name, optional_str(said, "input", path) or "", CallKind.CUSTOM, extra=extra)
    return ToolCall(id, name, optional_str(said, "arguments", path) or "", extra=extra)


def parse_content(message: Payload, path: str) -> tuple[Part, ...]:
    content = message.get("content")
    if isinstance(content, str):
        return (Text(content),) if content else ()
    if content is None:
        return ()
    path = f"{path}.content"
    if not isinstance(content, list):
        raise invalid_field(path, "Input should be a string or an array")
    return tuple(_parse_part(part, f"{path}.{index}") for index, part in enumerate(content))


def _parse_part(part: Any, path: str) -> Part:
    part = as_object(part, path)
    kind = required_str(part, "type", path)
    match kind:
        case "text":
            return Text(
                as_str(required(part, "text", path), f"{path}.text"),
                cache=parse_cache_breakpoint(part),
                extra=None if len(part) == 2 else unknown_fields(part, _TEXT_FIELDS),
            )
        case "image_url":
            return parse_image(part, path)
        case "input_audio":
            return parse_audio(part, path)
        case "file":
            return parse_file(part, path)
        case "refusal":
            return Refusal(required_str(part, "refusal", path))
        case _:
            return UnknownPart(kind, ProviderData(Format.CHAT, part))
