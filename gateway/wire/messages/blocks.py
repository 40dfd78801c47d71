"""Reads the content blocks of messages requests into parts. It must not know who speaks them.

Blocks of unknown types are never refused: they ride as `OpaquePart`. What a known block says beyond
the words of `core.parts` rides in the part's `extra`. Strings are taken over, never copied.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from gateway.core.formats import Format
from gateway.core.parts import (
    CacheBreakpoint,
    Document,
    Image,
    ProviderData,
    UnknownPart,
    Part,
    ServerToolCall,
    ServerToolResult,
    Source,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from gateway.wire.carrier import is_wrapped, unwrap
from gateway.wire.fields import (
    Payload,
    as_json,
    as_list,
    as_object,
    optional_bool,
    join_path,
    optional_list,
    optional_object,
    required,
    required_str,
    optional_str,
)
from gateway.wire.messages.citations import parse_citation


def parse_content(content: Any, path: str) -> tuple[Part, ...]:
    """A string, or a list of blocks."""
    if isinstance(content, str):
        return (Text(content),)
    blocks = as_list(content, path)
    return tuple([_parse_block(block, path, index) for index, block in enumerate(blocks)])


def parse_cache_breakpoint(block: Payload, path: str) -> CacheBreakpoint | None:
    control = optional_object(block, "cache_control", path)
    if control is None:
        return None
    return CacheBreakpoint(optional_str(control, "ttl", join_path(path, "cache_control")))


def _parse_block(block: Any, above: str, index: int) -> Part:
    if type(block) is dict and len(block) == 2 and block.get("type") == "text":
        text = block.get("text")  # most are nothing else
        if type(text) is str:
            return Text(text)
    path = f"{above}.{index}"
    block = as_object(block, path)
    kind = required_str(block, "type", path)
    if parse := _PARSERS.get(kind):
        return parse(block, path)
    if kind.endswith("_tool_result"):
        call_id = required_str(block, "tool_use_id", path)
        return ServerToolResult(call_id, kind.removesuffix("_tool_result"), _provider_data(block))
    return UnknownPart(kind, _provider_data(block))


def _parse_text(block: Payload, path: str) -> Part:
    citations = optional_list(block, "citations", path) or ()
    at = join_path(path, "citations")
    return Text(
        required_str(block, "text", path),
        citations=tuple(
            parse_citation(as_object(citation, join_path(at, index)))
            for index, citation in enumerate(citations)
        ),
        cache=parse_cache_breakpoint(block, path),
        extra=unknown_fields(block, _TEXT_FIELDS),
    )


def _parse_image(block: Payload, path: str) -> Part:
    source = as_object(required(block, "source", path), join_path(path, "source"))
    place = _parse_source(source, join_path(path, "source"))
    if place is None:
        return UnknownPart("image", _provider_data(block))
    return Image(place, cache=parse_cache_breakpoint(block, path), extra=unknown_fields(block, _IMAGE_FIELDS))


def _parse_document(block: Payload, path: str) -> Part:
    source = as_object(required(block, "source", path), join_path(path, "source"))
    at = join_path(path, "source")
    kind = required_str(source, "type", at)
    place, text, extra = None, None, unknown_fields(block, _DOCUMENT_FIELDS)
    if kind == "text":
        text = required_str(source, "data", at)
    elif kind == "content" and isinstance(source.get("content"), str):
        text = source["content"]
    elif kind == "content" and isinstance(source.get("content"), list):
        text, extra = _plain_text(source["content"]), _provider_data(block)
        if text is None:
            return UnknownPart("document", extra)
    elif (place := _parse_source(source, at)) is None:
        return UnknownPart("document", _provider_data(block))
    return Document(
        place,
        text=text,
        title=optional_str(block, "title", path),
        context=optional_str(block, "context", path),
        cache=parse_cache_breakpoint(block, path),
        extra=extra,
    )


def _parse_search_result(block: Payload, path: str) -> Part:
    """Words under a title, as any model can read them; the block itself rides along."""
    said = _plain_text(block.get("content"))
    if said is None:
        return UnknownPart("search_result", _provider_data(block))
    text = f"{block.get('title')} ({block.get('source')})\n{said}"
    return Text(text, cache=parse_cache_breakpoint(block, path), extra=_provider_data(block))


def _plain_text(blocks: Any) -> str | None:
    """What the blocks say, where they are texts all of them."""
    if not isinstance(blocks, list):
        return None
    texts = [block.get("text") if isinstance(block, dict) else None for block in blocks]
    said = [text for text in texts if isinstance(text, str)]
    return "\n".join(said) if len(said) == len(blocks) else None


def _parse_source(source: Payload, path: str) -> Source | None:
    """None for kinds of sources that the hub has no word for."""
    match required_str(source, "type", path):
        case "base64":
            return Source(
                data=required_str(source, "data", path),
                media_type=required_str(source, "media_type", path),
            )
        case "url":
            return Source(url=required_str(source, "url", path))
        case "file":
            return Source(file_id=required_str(source, "file_id", path))
        case _:
            return None


def _parse_thinking(block: Payload, path: str) -> Part:
    text, signature = required_str(block, "thinking", path), optional_str(block, "signature", path)
    if signature and is_wrapped(signature):
        return unwrap(signature, text)
    return Thinking(
        text,
        signature=_provider_data(signature) if signature else None,
        extra=unknown_fields(block, _THINKING_FIELDS),
    )


def _parse_redacted_thinking(block: Payload, path: str) -> Part:
    data = required_str(block, "data", path)
    return unwrap(data, "") if is_wrapped(data) else Thinking(signature=_provider_data(data), redacted=True)


def _parse_tool_use(block: Payload, path: str) -> Part:
    return ToolCall(
        id=required_str(block, "id", path),
        name=required_str(block, "name", path),
        arguments=_parse_input(block, path),
        cache=parse_cache_breakpoint(block, path),
        extra=unknown_fields(block, _TOOL_USE_FIELDS),
    )


def _parse_server_tool_use(block: Payload, path: str) -> Part:
    return ServerToolCall(
        id=required_str(block, "id", path),
        name=required_str(block, "name", path),
        arguments=_parse_input(block, path),
        extra=unknown_fields(block, _SERVER_TOOL_USE_FIELDS),
    )


def _parse_input(block: Payload, path: str) -> str:
    at = join_path(path, "input")
    return as_json(as_object(required(block, "input", path), at), at)


def _parse_tool_result(block: Payload, path: str) -> Part:
    content = block.get("content")
    return ToolResult(
        call_id=required_str(block, "tool_use_id", path),
        parts=() if content is None else parse_content(content, join_path(path, "content")),
        is_error=optional_bool(block, "is_error", path) or False,
        cache=parse_cache_breakpoint(block, path),
        extra=unknown_fields(block, _TOOL_RESULT_FIELDS),
    )


def unknown_fields(block: Payload, known: frozenset[str]) -> ProviderData | None:
    """What a block says that the hub has no word for."""
    if block.keys() <= known:
        return None
    return _provider_data({name: value for name, value in block.items() if name not in known})


def _provider_data(data: Any) -> ProviderData:
    return ProviderData(Format.MESSAGES, data)


_TEXT_FIELDS: Final = frozenset({"type", "text", "citations", "cache_control"})
_IMAGE_FIELDS: Final = frozenset({"type", "source", "cache_control"})
_DOCUMENT_FIELDS: Final = frozenset({"type", "source", "title", "context", "cache_control"})
_THINKING_FIELDS: Final = frozenset({"type", "thinking", "signature"})
_TOOL_USE_FIELDS: Final = frozenset({"type", "id", "name", "input", "cache_control"})
_SERVER_TOOL_USE_FIELDS: Final = frozenset({"id", "name", "input"})
_TOOL_RESULT_FIELDS: Final = frozenset({"type", "tool_use_id", "content", "is_error", "cache_control"})
_PARSERS: Final[dict[str, Callable[[Payload, str], Part]]] = {
    "text": _parse_text,
    "image": _parse_image,
    "document": _parse_document,
    "search_result": _parse_search_result,
    "thinking": _parse_thinking,
    "redacted_thinking": _parse_redacted_thinking,
    "tool_use": _parse_tool_use,
    "tool_result": _parse_tool_result,
    "server_tool_use": _parse_server_tool_use,
    "mcp_tool_use": _parse_server_tool_use,
}
