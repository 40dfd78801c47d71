"""Reads the content blocks of messages requests into parts. It must not know who speaks them.

Blocks of unknown types are never refused: they ride as `OpaquePart`. What a known block says beyond
the words of `core.parts` rides in the part's `extra`. Strings are taken over, never copied.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from gateway.core.formats import Format
from gateway.core.parts import (
    CacheMark,
    Document,
    Image,
    Opaque,
    OpaquePart,
    Part,
    ServerToolCall,
    ServerToolResult,
    Source,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from gateway.wire.carrier import is_packed, unpack
from gateway.wire.fields import (
    Payload,
    as_json,
    as_list,
    as_object,
    boolean,
    join,
    list_,
    object_,
    required,
    required_str,
    string,
)
from gateway.wire.messages.citations import parse_citation


def parse_content(content: Any, path: str) -> tuple[Part, ...]:
    """A string, or a list of blocks."""
    if isinstance(content, str):
        return (Text(content),)
    blocks = as_list(content, path)
    return tuple([_parse_block(block, path, index) for index, block in enumerate(blocks)])


def parse_cache(block: Payload, path: str) -> CacheMark | None:
    control = object_(block, "cache_control", path)
    if control is None:
        return None
    return CacheMark(string(control, "ttl", join(path, "cache_control")))


def _parse_block(block: Any, above: str, index: int) -> Part:
    if type(block) is dict and len(block) == 2 and block.get("type") == "text":
        text = block.get("text")  # most are nothing else
        if type(text) is str:
            return Text(text)
    path = f"{above}.{index}"
    block = as_object(block, path)
    kind = required_str(block, "type", path)
    if parse := _BLOCKS.get(kind):
        return parse(block, path)
    if kind.endswith("_tool_result"):
        call_id = required_str(block, "tool_use_id", path)
        return ServerToolResult(call_id, kind.removesuffix("_tool_result"), _pocket(block))
    return OpaquePart(kind, _pocket(block))


def _text(block: Payload, path: str) -> Part:
    citations = list_(block, "citations", path) or ()
    at = join(path, "citations")
    return Text(
        required_str(block, "text", path),
        citations=tuple(
            parse_citation(as_object(citation, join(at, index)))
            for index, citation in enumerate(citations)
        ),
        cache=parse_cache(block, path),
        extra=beyond(block, _TEXT),
    )


def _image(block: Payload, path: str) -> Part:
    source = as_object(required(block, "source", path), join(path, "source"))
    place = _source(source, join(path, "source"))
    if place is None:
        return OpaquePart("image", _pocket(block))
    return Image(place, cache=parse_cache(block, path), extra=beyond(block, _IMAGE))


def _document(block: Payload, path: str) -> Part:
    source = as_object(required(block, "source", path), join(path, "source"))
    at = join(path, "source")
    kind = required_str(source, "type", at)
    place, text, extra = None, None, beyond(block, _DOCUMENT)
    if kind == "text":
        text = required_str(source, "data", at)
    elif kind == "content" and isinstance(source.get("content"), str):
        text = source["content"]
    elif kind == "content" and isinstance(source.get("content"), list):
        text, extra = _texts_alone(source["content"]), _pocket(block)
        if text is None:
            return OpaquePart("document", extra)
    elif (place := _source(source, at)) is None:
        return OpaquePart("document", _pocket(block))
    return Document(
        place,
        text=text,
        title=string(block, "title", path),
        context=string(block, "context", path),
        cache=parse_cache(block, path),
        extra=extra,
    )


def _search_result(block: Payload, path: str) -> Part:
    """Words under a title, as any model can read them; the block itself rides along."""
    said = _texts_alone(block.get("content"))
    if said is None:
        return OpaquePart("search_result", _pocket(block))
    text = f"{block.get('title')} ({block.get('source')})\n{said}"
    return Text(text, cache=parse_cache(block, path), extra=_pocket(block))


def _texts_alone(blocks: Any) -> str | None:
    """What the blocks say, where they are texts all of them."""
    if not isinstance(blocks, list):
        return None
    texts = [block.get("text") if isinstance(block, dict) else None for block in blocks]
    said = [text for text in texts if isinstance(text, str)]
    return "\n".join(said) if len(said) == len(blocks) else None


def _source(source: Payload, path: str) -> Source | None:
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


def _thinking(block: Payload, path: str) -> Part:
    text, signature = required_str(block, "thinking", path), string(block, "signature", path)
    if signature and is_packed(signature):
        return unpack(signature, text)
    return Thinking(
        text,
        signature=_pocket(signature) if signature else None,
        extra=beyond(block, _THINKING),
    )


def _redacted_thinking(block: Payload, path: str) -> Part:
    data = required_str(block, "data", path)
    return unpack(data, "") if is_packed(data) else Thinking(signature=_pocket(data), redacted=True)


def _tool_use(block: Payload, path: str) -> Part:
    return ToolCall(
        id=required_str(block, "id", path),
        name=required_str(block, "name", path),
        arguments=_input(block, path),
        cache=parse_cache(block, path),
        extra=beyond(block, _TOOL_USE),
    )


def _server_tool_use(block: Payload, path: str) -> Part:
    return ServerToolCall(
        id=required_str(block, "id", path),
        name=required_str(block, "name", path),
        arguments=_input(block, path),
        extra=beyond(block, _SERVER_TOOL_USE),
    )


def _input(block: Payload, path: str) -> str:
    at = join(path, "input")
    return as_json(as_object(required(block, "input", path), at), at)


def _tool_result(block: Payload, path: str) -> Part:
    content = block.get("content")
    return ToolResult(
        call_id=required_str(block, "tool_use_id", path),
        parts=() if content is None else parse_content(content, join(path, "content")),
        is_error=boolean(block, "is_error", path) or False,
        cache=parse_cache(block, path),
        extra=beyond(block, _TOOL_RESULT),
    )


def beyond(block: Payload, known: frozenset[str]) -> Opaque | None:
    """What a block says that the hub has no word for."""
    if block.keys() <= known:
        return None
    return _pocket({name: value for name, value in block.items() if name not in known})


def _pocket(data: Any) -> Opaque:
    return Opaque(Format.MESSAGES, data)


_TEXT: Final = frozenset({"type", "text", "citations", "cache_control"})
_IMAGE: Final = frozenset({"type", "source", "cache_control"})
_DOCUMENT: Final = frozenset({"type", "source", "title", "context", "cache_control"})
_THINKING: Final = frozenset({"type", "thinking", "signature"})
_TOOL_USE: Final = frozenset({"type", "id", "name", "input", "cache_control"})
_SERVER_TOOL_USE: Final = frozenset({"id", "name", "input"})
_TOOL_RESULT: Final = frozenset({"type", "tool_use_id", "content", "is_error", "cache_control"})
_BLOCKS: Final[dict[str, Callable[[Payload, str], Part]]] = {
    "text": _text,
    "image": _image,
    "document": _document,
    "search_result": _search_result,
    "thinking": _thinking,
    "redacted_thinking": _redacted_thinking,
    "tool_use": _tool_use,
    "tool_result": _tool_result,
    "server_tool_use": _server_tool_use,
    "mcp_tool_use": _server_tool_use,
}
