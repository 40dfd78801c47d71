"""The `messages` of a chat request. It must not know the request's other fields.

This runs over every word of every request: it builds values around the strings it is given and
copies none of them, but for the payload of a data URI.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from gateway.core.formats import Format
from gateway.core.parts import (
    CacheMark,
    CallKind,
    Opaque,
    OpaquePart,
    Part,
    Refusal,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from gateway.core.prompt import Role, Turn
from gateway.wire.chat.media import parse_audio, parse_file, parse_image
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
    *("role", "content", "name", "tool_calls", "tool_call_id", "function_call", "refusal"),
    *("audio", "reasoning_content", "reasoning", "reasoning_details"),
}


def parse_turns(body: Payload) -> tuple[Turn, ...]:
    """One turn a message. Raises `InvalidRequest`, also for an empty list."""
    messages = as_list(required(body, "messages"), "messages")
    if not messages:
        raise invalid("messages", "Input should have at least 1 item")
    customs: set[str] = set()
    return tuple(_turn(message, f"messages.{i}", customs) for i, message in enumerate(messages))


def _turn(message: object, path: str, customs: set[str]) -> Turn:
    """`customs` are the ids of the custom tools' calls so far: their results look like others."""
    message = as_object(message, path)
    role = required_str(message, "role", path)
    parse = _ROLES.get(role)
    if parse is None:
        known = ", ".join(f"'{name}'" for name in _ROLES)
        raise invalid(f"{path}.role", f"Input should be one of {known}")
    parts = parse(message, path, customs)
    return Turn(
        _SPEAKERS.get(role, Role.USER),
        parts,
        name=string(message, "name", path),
        extra=None if message.keys() <= _READ else _extra(message),
    )


def _extra(message: Payload) -> Opaque:
    return Opaque(Format.CHAT, {key: message[key] for key in message if key not in _READ})


def _said(message: Payload, path: str, customs: set[str]) -> tuple[Part, ...]:
    """What a person or the system says: content is a must."""
    if message.get("content") is None:
        raise missing(f"{path}.content")
    return _content(message, path)


def _answered(message: Payload, path: str, customs: set[str]) -> tuple[Part, ...]:
    """A former reply, with everything it may have held, in the order in which it was said."""
    parts: list[Part] = [*_thinking(message, path), *_content(message, path)]
    if refusal := string(message, "refusal", path):
        parts.append(Refusal(refusal))
    for index, call in enumerate(list_(message, "tool_calls", path) or ()):
        parts.append(_call(as_object(call, f"{path}.tool_calls.{index}"), path, index, customs))
    if function := object_(message, "function_call", path):
        name = required_str(function, "name", f"{path}.function_call")
        arguments = string(function, "arguments", f"{path}.function_call") or ""
        parts.append(ToolCall(id=name, name=name, arguments=arguments))
    if audio := object_(message, "audio", path):
        parts.append(OpaquePart("audio", Opaque(Format.CHAT, audio)))
    return tuple(parts)


def _tool_result(message: Payload, path: str, customs: set[str]) -> tuple[Part, ...]:
    call_id = required_str(message, "tool_call_id", path)
    kind = CallKind.CUSTOM if call_id in customs else CallKind.FUNCTION
    return (ToolResult(call_id, _content(message, path), kind=kind),)


def _function_result(message: Payload, path: str, customs: set[str]) -> tuple[Part, ...]:
    """Deprecated: the function's name stands for the call's id."""
    return (ToolResult(required_str(message, "name", path), _content(message, path)),)


_ROLES: Final[dict[str, Callable[[Payload, str, set[str]], tuple[Part, ...]]]] = {
    "system": _said,
    "developer": _said,
    "user": _said,
    "assistant": _answered,
    "tool": _tool_result,
    "function": _function_result,
}
_SPEAKERS: Final = {
    "system": Role.SYSTEM,
    "developer": Role.DEVELOPER,
    "assistant": Role.ASSISTANT,
}


def _thinking(message: Payload, path: str) -> tuple[Part, ...]:
    """Not the format's own, so what does not fit is left alone. The details hold what proves the
    reasoning to the upstream that wrote it."""
    text = message.get("reasoning_content") or message.get("reasoning")
    details = message.get("reasoning_details")
    if not isinstance(text, str):
        text = ""
    if not text and not details:
        return ()
    signature = Opaque(Format.CHAT, details) if details else None
    return (Thinking(text, signature, redacted=not text),)


def _call(call: Payload, above: str, index: int, customs: set[str]) -> Part:
    path = f"{above}.tool_calls.{index}"
    kind = string(call, "type", path) or "function"
    if kind not in ("function", "custom"):
        return OpaquePart(kind, Opaque(Format.CHAT, call))
    id = required_str(call, "id", path)
    said = as_object(required(call, kind, path), f"{path}.{kind}")
    path = f"{path}.{kind}"
    name = required_str(said, "name", path)
    if kind == "custom":
        customs.add(id)
        return ToolCall(id, name, string(said, "input", path) or "", CallKind.CUSTOM)
    return ToolCall(id, name, string(said, "arguments", path) or "")


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
            return Text(as_str(required(part, "text", path), f"{path}.text"), cache=_cache(part))
        case "image_url":
            return parse_image(part, path, _cache(part))
        case "input_audio":
            return parse_audio(part, path)
        case "file":
            return parse_file(part, path, _cache(part))
        case "refusal":
            return Refusal(required_str(part, "refusal", path))
        case _:
            return OpaquePart(kind, Opaque(Format.CHAT, part))


def _cache(part: Payload) -> CacheMark | None:
    """The format's own breakpoint, or the mark that clients borrow from messages."""
    if len(part) == 2:
        return None
    mark = part.get("prompt_cache_breakpoint") or part.get("cache_control")
    if not isinstance(mark, dict):
        return None
    ttl = mark.get("ttl")
    return CacheMark(ttl if isinstance(ttl, str) else None)
