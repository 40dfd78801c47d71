"""Reads the input of responses requests: every item is one turn. It must not know the model.

Items of unknown types are never refused: they ride as `OpaquePart`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from gateway.core.formats import Format
from gateway.core.parts import (
    Audio,
    CacheBreakpoint,
    CallKind,
    Document,
    Image,
    ProviderData,
    UnknownPart,
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
    invalid_field,
    join_path,
    optional_list,
    missing_field,
    optional_object,
    required,
    required_str,
    optional_str,
)
from gateway.wire.images import parse_source
from gateway.wire.responses import client_tools
from gateway.wire.responses.citations import parse_citation

_ROLES: Final = {
    "user": Role.USER,
    "assistant": Role.ASSISTANT,
    "system": Role.SYSTEM,
    "developer": Role.DEVELOPER,
}
_MESSAGE_FIELDS: Final = frozenset({"type", "role", "content"})
_PLAIN: Final = ("input_text", "output_text", "text")
_CALL_FIELDS: Final = frozenset({"type", "call_id", "name", "namespace", "arguments", "input"})
_RESULT_FIELDS: Final = frozenset({"type", "call_id", "output"})


def parse_item(item: Any, path: str) -> Turn:
    item = as_object(item, path)
    kind = optional_str(item, "type", path)
    if kind is None:
        kind = "item_reference" if "id" in item and "role" not in item else "message"
    if kind == "message":
        return _parse_message(item, path)
    if parse := _ITEM_PARSERS.get(kind):
        return parse(item, path)
    if name := client_tools.called_tool(item):
        return _parse_client_call(item, name, path)
    if client_tools.is_call_output(item):
        return _parse_client_output(item, path)
    role = Role.USER if kind.endswith(("_output", "_response")) else Role.ASSISTANT
    return Turn(role, (UnknownPart(kind, _pocket(item)),))


def _parse_message(item: Payload, path: str) -> Turn:
    role = _ROLES.get(required_str(item, "role", path))
    if role is None:
        reason = "Input should be 'user', 'assistant', 'system' or 'developer'"
        raise invalid_field(join_path(path, "role"), reason)
    parts = _content(required(item, "content", path), join_path(path, "content"))
    more: Payload = {}
    if not item.keys() <= _MESSAGE_FIELDS:
        more = {name: value for name, value in item.items() if name not in _MESSAGE_FIELDS}
    if any([type(part) is UnknownPart for part in parts]):
        more["type"] = "message"  # else the turn would look like an item of an unknown type
    return Turn(role, parts, extra=_pocket(more) if more else None)


def _parse_function_call(item: Payload, path: str) -> Turn:
    return _parse_call(item, path, CallKind.FUNCTION, "arguments")


def _parse_custom_call(item: Payload, path: str) -> Turn:
    return _parse_call(item, path, CallKind.CUSTOM, "input")


def _parse_call(item: Payload, path: str, kind: CallKind, field: str) -> Turn:
    call = ToolCall(
        id=required_str(item, "call_id", path),
        name=required_str(item, "name", path),
        arguments=required_str(item, field, path),
        kind=kind,
        namespace=optional_str(item, "namespace", path),
        extra=_unknown_fields(item, _CALL_FIELDS),
    )
    return Turn(Role.ASSISTANT, (call,))


def _parse_function_output(item: Payload, path: str) -> Turn:
    return _parse_output(item, path, CallKind.FUNCTION)


def _parse_custom_output(item: Payload, path: str) -> Turn:
    return _parse_output(item, path, CallKind.CUSTOM)


def _parse_output(item: Payload, path: str, kind: CallKind) -> Turn:
    result = ToolResult(
        call_id=required_str(item, "call_id", path),
        parts=_content(required(item, "output", path), join_path(path, "output")),
        kind=kind,
        extra=_unknown_fields(item, _RESULT_FIELDS),
    )
    return Turn(Role.USER, (result,))


def _parse_client_call(item: Payload, name: str, path: str) -> Turn:
    arguments = client_tools.CLIENT_TOOLS[name].arguments(item)
    call = ToolCall(
        id=_call_id(item, path),
        name=name,
        arguments=as_json(arguments, path),
        extra=_pocket(item),
    )
    return Turn(Role.ASSISTANT, (call,))


def _parse_client_output(item: Payload, path: str) -> Turn:
    text = Text(client_tools.output_text(item, path))
    failed = item.get("status") == "failed"
    result = ToolResult(_call_id(item, path), (text,), is_error=failed, extra=_pocket(item))
    return Turn(Role.USER, (result,))


def _call_id(item: Payload, path: str) -> str:
    """Some of these items have no other id than their own."""
    return optional_str(item, "call_id", path) or required_str(item, "id", path)


def _parse_reasoning(item: Payload, path: str) -> Turn:
    text = _joined_texts(item, "summary", path) or _joined_texts(item, "content", path)
    encrypted = optional_str(item, "encrypted_content", path)
    if encrypted and carrier.is_wrapped(encrypted):
        return Turn(Role.ASSISTANT, (carrier.unwrap(encrypted, text),))
    signature = _pocket({"id": item.get("id"), "encrypted_content": encrypted})
    thinking = Thinking(
        text,
        signature=signature if encrypted else None,
        redacted=bool(encrypted and not text),
        extra=_pocket(item),
    )
    return Turn(Role.ASSISTANT, (thinking,))


def _joined_texts(item: Payload, name: str, path: str) -> str:
    at = join_path(path, name)
    return "\n\n".join(
        required_str(as_object(part, join_path(at, index)), "text", join_path(at, index))
        for index, part in enumerate(optional_list(item, name, path) or ())
    )


def _parse_web_search(item: Payload, path: str) -> Turn:
    action = optional_object(item, "action", path) or {}
    arguments = as_json(action, join_path(path, "action"))
    call_id = optional_str(item, "id", path) or ""
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
    return parse(part, path) if parse else UnknownPart(kind, _pocket(part))


def _text(part: Payload, path: str) -> Part:
    at = join_path(path, "annotations")
    return Text(
        required_str(part, "text", path),
        citations=tuple(
            parse_citation(as_object(annotation, join_path(at, index)))
            for index, annotation in enumerate(optional_list(part, "annotations", path) or ())
        ),
        cache=_cache(part, path),
    )


def _refusal(part: Payload, path: str) -> Part:
    return Refusal(required_str(part, "refusal", path))


def _image(part: Payload, path: str) -> Part:
    url, file_id = optional_str(part, "image_url", path), optional_str(part, "file_id", path)
    if url is None and file_id is None:
        raise missing_field(join_path(path, "image_url"))
    source = parse_source(url) if url is not None else Source(file_id=file_id)
    return Image(source, detail=optional_str(part, "detail", path), cache=_cache(part, path))


def _file(part: Payload, path: str) -> Part:
    """`file_data` is a data URL, as in every client library."""
    url = optional_str(part, "file_data", path) or optional_str(part, "file_url", path)
    file_id = optional_str(part, "file_id", path)
    if url is None and file_id is None:
        raise missing_field(join_path(path, "file_data"))
    source = parse_source(url) if url is not None else Source(file_id=file_id)
    return Document(source, title=optional_str(part, "filename", path), cache=_cache(part, path))


def _audio(part: Payload, path: str) -> Part:
    at = join_path(path, "input_audio")
    audio = as_object(required(part, "input_audio", path), at)
    media_type = f"audio/{required_str(audio, 'format', at)}"
    return Audio(Source(data=required_str(audio, "data", at), media_type=media_type))


def _cache(part: Payload, path: str) -> CacheBreakpoint | None:
    mark = optional_object(part, "prompt_cache_breakpoint", path)
    return CacheBreakpoint(optional_str(mark, "ttl", join_path(path, "prompt_cache_breakpoint"))) if mark else None


def _unknown_fields(item: Payload, known: frozenset[str]) -> ProviderData | None:
    if item.keys() <= known:
        return None
    return _pocket({name: value for name, value in item.items() if name not in known})


def _pocket(data: Any) -> ProviderData:
    return ProviderData(Format.RESPONSES, data)


_ITEM_PARSERS: Final[dict[str, Callable[[Payload, str], Turn]]] = {
    "function_call": _parse_function_call,
    "function_call_output": _parse_function_output,
    "custom_tool_call": _parse_custom_call,
    "custom_tool_call_output": _parse_custom_output,
    "reasoning": _parse_reasoning,
    "web_search_call": _parse_web_search,
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
