"""Reads the input of responses requests: every item is one turn. It must not know the model.

Items of unknown types are never refused: they ride as `OpaquePart`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from gateway.core.formats import Format
from gateway.core.parts import (
    Audio,
    CacheMark,
    CallKind,
    Document,
    Image,
    Opaque,
    OpaquePart,
    Part,
    Refusal,
    ServerToolCall,
    Source,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from gateway.core.prompt import Role, Turn
from gateway.wire import carrier
from gateway.wire.fields import (
    Payload,
    as_json,
    as_list,
    as_object,
    invalid,
    join,
    list_,
    missing,
    object_,
    required,
    required_str,
    string,
)
from gateway.wire.images import parse_url
from gateway.wire.responses import client_tools
from gateway.wire.responses.citations import parse_citation

_ROLES: Final = {
    "user": Role.USER,
    "assistant": Role.ASSISTANT,
    "system": Role.SYSTEM,
    "developer": Role.DEVELOPER,
}
_MESSAGE: Final = frozenset({"type", "role", "content"})
_PLAIN: Final = ("input_text", "output_text", "text")
_CALL: Final = frozenset({"type", "call_id", "name", "namespace", "arguments", "input"})
_RESULT: Final = frozenset({"type", "call_id", "output"})


def parse_item(item: Any, path: str) -> Turn:
    item = as_object(item, path)
    kind = string(item, "type", path)
    if kind is None:
        kind = "item_reference" if "id" in item and "role" not in item else "message"
    if kind == "message":
        return _message(item, path)
    if parse := _ITEMS.get(kind):
        return parse(item, path)
    if name := client_tools.called(item):
        return _client_call(item, name, path)
    if client_tools.answers(item):
        return _client_output(item, path)
    role = Role.USER if kind.endswith(("_output", "_response")) else Role.ASSISTANT
    return Turn(role, (OpaquePart(kind, _pocket(item)),))


def _message(item: Payload, path: str) -> Turn:
    role = _ROLES.get(required_str(item, "role", path))
    if role is None:
        reason = "Input should be 'user', 'assistant', 'system' or 'developer'"
        raise invalid(join(path, "role"), reason)
    parts = _content(required(item, "content", path), join(path, "content"))
    more: Payload = {}
    if not item.keys() <= _MESSAGE:
        more = {name: value for name, value in item.items() if name not in _MESSAGE}
    if any([type(part) is OpaquePart for part in parts]):
        more["type"] = "message"  # else the turn would look like an item of an unknown type
    return Turn(role, parts, extra=_pocket(more) if more else None)


def _function_call(item: Payload, path: str) -> Turn:
    return _call(item, path, CallKind.FUNCTION, "arguments")


def _custom_call(item: Payload, path: str) -> Turn:
    return _call(item, path, CallKind.CUSTOM, "input")


def _call(item: Payload, path: str, kind: CallKind, field: str) -> Turn:
    call = ToolCall(
        id=required_str(item, "call_id", path),
        name=required_str(item, "name", path),
        arguments=required_str(item, field, path),
        kind=kind,
        namespace=string(item, "namespace", path),
        extra=_beyond(item, _CALL),
    )
    return Turn(Role.ASSISTANT, (call,))


def _function_output(item: Payload, path: str) -> Turn:
    return _output(item, path, CallKind.FUNCTION)


def _custom_output(item: Payload, path: str) -> Turn:
    return _output(item, path, CallKind.CUSTOM)


def _output(item: Payload, path: str, kind: CallKind) -> Turn:
    result = ToolResult(
        call_id=required_str(item, "call_id", path),
        parts=_content(required(item, "output", path), join(path, "output")),
        kind=kind,
        extra=_beyond(item, _RESULT),
    )
    return Turn(Role.USER, (result,))


def _client_call(item: Payload, name: str, path: str) -> Turn:
    arguments = client_tools.CLIENT_TOOLS[name].arguments(item)
    call = ToolCall(
        id=_call_id(item, path),
        name=name,
        arguments=as_json(arguments, path),
        extra=_pocket(item),
    )
    return Turn(Role.ASSISTANT, (call,))


def _client_output(item: Payload, path: str) -> Turn:
    text = Text(client_tools.answer_text(item, path))
    failed = item.get("status") == "failed"
    result = ToolResult(_call_id(item, path), (text,), is_error=failed, extra=_pocket(item))
    return Turn(Role.USER, (result,))


def _call_id(item: Payload, path: str) -> str:
    """Some of these items have no other id than their own."""
    return string(item, "call_id", path) or required_str(item, "id", path)


def _reasoning(item: Payload, path: str) -> Turn:
    text = _texts(item, "summary", path) or _texts(item, "content", path)
    encrypted = string(item, "encrypted_content", path)
    if encrypted and carrier.is_packed(encrypted):
        return Turn(Role.ASSISTANT, (carrier.unpack(encrypted, text),))
    signature = _pocket({"id": item.get("id"), "encrypted_content": encrypted})
    thinking = Thinking(
        text,
        signature=signature if encrypted else None,
        redacted=bool(encrypted and not text),
        extra=_pocket(item),
    )
    return Turn(Role.ASSISTANT, (thinking,))


def _texts(item: Payload, name: str, path: str) -> str:
    at = join(path, name)
    return "\n\n".join(
        required_str(as_object(part, join(at, index)), "text", join(at, index))
        for index, part in enumerate(list_(item, name, path) or ())
    )


def _web_search(item: Payload, path: str) -> Turn:
    action = object_(item, "action", path) or {}
    arguments = as_json(action, join(path, "action"))
    call_id = string(item, "id", path) or ""
    call = ServerToolCall(call_id, "web_search", arguments, extra=_pocket(item))
    return Turn(Role.ASSISTANT, (call,))


def _content(content: Any, path: str) -> tuple[Part, ...]:
    """A string, or a list of parts."""
    if isinstance(content, str):
        return (Text(content),)
    parts = as_list(content, path)
    return tuple([_part(part, path, index) for index, part in enumerate(parts)])


def _part(part: Any, above: str, index: int) -> Part:
    if type(part) is dict and len(part) == 2 and part.get("type") in _PLAIN:
        text = part.get("text")  # most are nothing else
        if type(text) is str:
            return Text(text)
    path = f"{above}.{index}"
    part = as_object(part, path)
    kind = required_str(part, "type", path)
    parse = _PARTS.get(kind)
    return parse(part, path) if parse else OpaquePart(kind, _pocket(part))


def _text(part: Payload, path: str) -> Part:
    at = join(path, "annotations")
    return Text(
        required_str(part, "text", path),
        citations=tuple(
            parse_citation(as_object(annotation, join(at, index)))
            for index, annotation in enumerate(list_(part, "annotations", path) or ())
        ),
        cache=_cache(part, path),
    )


def _refusal(part: Payload, path: str) -> Part:
    return Refusal(required_str(part, "refusal", path))


def _image(part: Payload, path: str) -> Part:
    url, file_id = string(part, "image_url", path), string(part, "file_id", path)
    if url is None and file_id is None:
        raise missing(join(path, "image_url"))
    source = parse_url(url) if url is not None else Source(file_id=file_id)
    return Image(source, detail=string(part, "detail", path), cache=_cache(part, path))


def _file(part: Payload, path: str) -> Part:
    """`file_data` is a data URL, as in every client library."""
    url = string(part, "file_data", path) or string(part, "file_url", path)
    file_id = string(part, "file_id", path)
    if url is None and file_id is None:
        raise missing(join(path, "file_data"))
    source = parse_url(url) if url is not None else Source(file_id=file_id)
    return Document(source, title=string(part, "filename", path), cache=_cache(part, path))


def _audio(part: Payload, path: str) -> Part:
    at = join(path, "input_audio")
    audio = as_object(required(part, "input_audio", path), at)
    media_type = f"audio/{required_str(audio, 'format', at)}"
    return Audio(Source(data=required_str(audio, "data", at), media_type=media_type))


def _cache(part: Payload, path: str) -> CacheMark | None:
    mark = object_(part, "prompt_cache_breakpoint", path)
    return CacheMark(string(mark, "ttl", join(path, "prompt_cache_breakpoint"))) if mark else None


def _beyond(item: Payload, known: frozenset[str]) -> Opaque | None:
    if item.keys() <= known:
        return None
    return _pocket({name: value for name, value in item.items() if name not in known})


def _pocket(data: Any) -> Opaque:
    return Opaque(Format.RESPONSES, data)


_ITEMS: Final[dict[str, Callable[[Payload, str], Turn]]] = {
    "function_call": _function_call,
    "function_call_output": _function_output,
    "custom_tool_call": _custom_call,
    "custom_tool_call_output": _custom_output,
    "reasoning": _reasoning,
    "web_search_call": _web_search,
}
_PARTS: Final[dict[str, Callable[[Payload, str], Part]]] = {
    "input_text": _text,
    "output_text": _text,
    "text": _text,
    "refusal": _refusal,
    "input_image": _image,
    "input_file": _file,
    "input_audio": _audio,
}
