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
    Opaque,
    OpaquePart,
    Part,
    Refusal,
    Text,
    ToolCall,
    ToolResult,
)
from gateway.core.prompt import Role, Turn
from gateway.wire.chat.media import CACHE_FIELDS, parse_audio, parse_cache, parse_file, parse_image
from gateway.wire.chat.reasoning import FIELDS, parse_reasoning
from gateway.wire.fields import (
    Payload,
    as_list,
    as_object,
    as_str,
    invalid,
    list_,
    missing,
    object_,
    required,
    required_str,
    string,
)

_READ: Final = {
    *("role", "content", "name", "tool_calls", "tool_call_id", "function_call", "refusal", "audio"),
    *FIELDS,
}
_READ_OF_CALL: Final = {"id", "type", "index", "function", "custom"}
_READ_OF_TEXT: Final = {"type", "text", *CACHE_FIELDS}
_READ_OF_RESULT: Final = {"role", "content", "tool_call_id", "name"}


class _Calls:
    """The calls so far, as far as their results do not tell: those of custom tools look like
    others, and those of the deprecated functions have no ids."""

    __slots__ = ("_functions", "customs")

    def __init__(self) -> None:
        self.customs: set[str] = set()
        self._functions: dict[str, int] = {}

    def call(self, function: str) -> str:
        """An id for the next call of a function: its name, numbered from the second on."""
        self._functions[function] = self._functions.get(function, 0) + 1
        return self.last(function)

    def last(self, function: str) -> str:
        count = self._functions.get(function, 1)
        return function if count == 1 else f"{function}_{count}"


def parse_turns(body: Payload) -> tuple[Turn, ...]:
    """One turn a message. Raises `InvalidRequest`, also for an empty list."""
    messages = as_list(required(body, "messages"), "messages")
    if not messages:
        raise invalid("messages", "Input should have at least 1 item")
    calls = _Calls()
    return tuple([_turn(message, index, calls) for index, message in enumerate(messages)])


def _turn(message: object, index: int, calls: _Calls) -> Turn:
    if type(message) is dict and len(message) == 2:  # role and text: most are nothing else
        role, said = message.get("role"), message.get("content")
        if type(said) is str and said and type(role) is str and role in _PLAIN:
            return Turn(_SPEAKERS.get(role, Role.USER), (Text(said),))
    path = f"messages.{index}"
    message = as_object(message, path)
    role = required_str(message, "role", path)
    parse = _ROLES.get(role)
    if parse is None:
        known = ", ".join(f"'{name}'" for name in _ROLES)
        raise invalid(f"{path}.role", f"Input should be one of {known}")
    parts = parse(message, path, calls)
    return Turn(
        _SPEAKERS.get(role, Role.USER),
        parts,
        name=string(message, "name", path),
        extra=None if role == "tool" else _beyond(message, _READ),
    )


def _beyond(value: Payload, known: set[str]) -> Opaque | None:
    if value.keys() <= known:
        return None
    return Opaque(Format.CHAT, {key: value[key] for key in value if key not in known})


def _said(message: Payload, path: str, calls: _Calls) -> tuple[Part, ...]:
    """What a person or the system says: content is a must."""
    if message.get("content") is None:
        raise missing(f"{path}.content")
    return _content(message, path)


def _answered(message: Payload, path: str, calls: _Calls) -> tuple[Part, ...]:
    """A former reply, with everything it may have held, in the order in which it was said."""
    parts: list[Part] = [*parse_reasoning(message), *_content(message, path)]
    if refusal := string(message, "refusal", path):
        parts.append(Refusal(refusal))
    for index, call in enumerate(list_(message, "tool_calls", path) or ()):
        parts.append(_call(as_object(call, f"{path}.tool_calls.{index}"), path, index, calls))
    if function := object_(message, "function_call", path):
        name = required_str(function, "name", f"{path}.function_call")
        arguments = string(function, "arguments", f"{path}.function_call") or ""
        parts.append(ToolCall(id=calls.call(name), name=name, arguments=arguments))
    if audio := object_(message, "audio", path):
        parts.append(OpaquePart("audio", Opaque(Format.CHAT, audio)))
    return tuple(parts)


def _tool_result(message: Payload, path: str, calls: _Calls) -> tuple[Part, ...]:
    call_id = required_str(message, "tool_call_id", path)
    kind = CallKind.CUSTOM if call_id in calls.customs else CallKind.FUNCTION
    extra = _beyond(message, _READ_OF_RESULT)
    return (ToolResult(call_id, _content(message, path), kind=kind, extra=extra),)


def _function_result(message: Payload, path: str, calls: _Calls) -> tuple[Part, ...]:
    """Deprecated: the function's name stands for its latest call."""
    call_id = calls.last(required_str(message, "name", path))
    return (ToolResult(call_id, _content(message, path)),)


_ROLES: Final[dict[str, Callable[[Payload, str, _Calls], tuple[Part, ...]]]] = {
    "system": _said,
    "developer": _said,
    "user": _said,
    "assistant": _answered,
    "tool": _tool_result,
    "function": _function_result,
}
_PLAIN: Final = frozenset({"system", "developer", "user", "assistant"})
_SPEAKERS: Final = {
    "system": Role.SYSTEM,
    "developer": Role.DEVELOPER,
    "assistant": Role.ASSISTANT,
}


def _call(call: Payload, above: str, index: int, calls: _Calls) -> Part:
    path = f"{above}.tool_calls.{index}"
    kind = string(call, "type", path) or "function"
    id = required_str(call, "id", path)
    if kind not in ("function", "custom"):
        return OpaquePart(kind, Opaque(Format.CHAT, call))
    said = as_object(required(call, kind, path), f"{path}.{kind}")
    path = f"{path}.{kind}"
    name = required_str(said, "name", path)
    extra = _beyond(call, _READ_OF_CALL)
    if kind == "custom":
        calls.customs.add(id)
        return ToolCall(id, name, string(said, "input", path) or "", CallKind.CUSTOM, extra=extra)
    return ToolCall(id, name, string(said, "arguments", path) or "", extra=extra)


def _content(message: Payload, path: str) -> tuple[Part, ...]:
    content = message.get("content")
    if isinstance(content, str):
        return (Text(content),) if content else ()
    if content is None:
        return ()
    path = f"{path}.content"
    if not isinstance(content, list):
        raise invalid(path, "Input should be a string or an array")
    return tuple(_part(part, f"{path}.{index}") for index, part in enumerate(content))


def _part(part: Any, path: str) -> Part:
    part = as_object(part, path)
    kind = required_str(part, "type", path)
    match kind:
        case "text":
            return Text(
                as_str(required(part, "text", path), f"{path}.text"),
                cache=parse_cache(part),
                extra=None if len(part) == 2 else _beyond(part, _READ_OF_TEXT),
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
            return OpaquePart(kind, Opaque(Format.CHAT, part))
