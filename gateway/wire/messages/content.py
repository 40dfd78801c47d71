"""Parts of a prompt as messages blocks. It must not know how turns follow each other.

What a block says beyond the hub's words comes back out of the part's side pocket; what this format
has no word for is left out and named.

Reads the content blocks of messages requests into parts. It must not know who speaks them.

Blocks of unknown types are never refused: they ride as `OpaquePart`. What a known block says beyond
the words of `core.parts` rides in the part's `extra`. Strings are taken over, never copied.

Images and documents as messages blocks. It must not know who sends them.

The format takes JPEG, PNG, GIF and WebP images, and documents in PDF or plain text (Messages,
"Vision", "PDF support"). Upstreams refuse bytes that are not of the kind they are said to be.

Reads the citations of messages texts. It must not know where the text stands.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Final

import orjson

from gateway.core.formats import Format
from gateway.core.parts import (
    Audio,
    CacheBreakpoint,
    CallKind,
    Citation,
    Document,
    Image,
    Part,
    ProviderData,
    Refusal,
    ServerToolCall,
    ServerToolResult,
    Source,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    UnknownPart,
)
from gateway.core.prompt import Prompt, Role, Turn
from gateway.core.target import Target
from gateway.core.value import replace
from gateway.errors import UnsupportedField
from gateway.wire.dropped import Dropped
from gateway.wire.ids import sanitize_name
from gateway.wire.json_fields import (
    Payload,
    as_json,
    as_list,
    as_object,
    join_path,
    optional_bool,
    optional_list,
    optional_str,
    required,
    required_str,
)
from gateway.wire.messages.cache_control import parse_cache_breakpoint, render_cache_breakpoint
from gateway.wire.messages.tools import is_foreign_search
from gateway.wire.signatures import is_wrapped, signature_for, unwrap
from gateway.wire.tool_names import CUSTOM_TOOL_ARG, upstream_name


def restore_thinking(thinking: Thinking, target: Target) -> Payload | None:
    """The block as its upstream signed it; None where this upstream is not the one."""
    signature = signature_for(thinking, Format.MESSAGES, target)
    if not isinstance(signature, str):
        return None
    if thinking.redacted:
        return {"type": "redacted_thinking", "data": signature}
    return {"type": "thinking", "thinking": thinking.text, "signature": signature}


class ContentRenderer:
    """Renders the blocks of one prompt."""

    __slots__ = ("_dropped", "_same_format", "_takes_breakpoints", "_target")

    def __init__(self, prompt: Prompt, target: Target, losses: Dropped) -> None:
        self._target = target
        self._dropped = losses
        self._same_format = prompt.format is Format.MESSAGES
        self._takes_breakpoints = target.cache_marks or self._same_format

    def render(self, turn: Turn) -> list[Payload]:
        """The blocks of one turn; empty texts are none, for upstreams refuse them."""
        self._dropped.remaining_fields(turn.extra)
        parts: Iterable[Part] = turn.parts
        if turn.role is Role.ASSISTANT and not self._same_format:
            parts = [part for part in parts if not self._is_unsupported_output(part)]
        return self._render_parts(parts)

    def _render_parts(self, parts: Iterable[Part]) -> list[Payload]:
        blocks = (self._RENDERERS[type(part)](self, part) for part in parts)
        return [block for block in blocks if block is not None]

    def _is_unsupported_output(self, part: Part) -> bool:
        """Pictures and files that a model of another format made: no assistant says them here."""
        match part:
            case Image() | Document() | Audio():
                self._dropped.drop(type(part).__name__.lower())
                return True
            case _:
                return False

    def _render_text(self, part: Text) -> Payload | None:
        if whole := self._native_block(part.extra):
            return whole
        if not part.text or part.text.isspace():
            return None
        block: Payload = {"type": "text", "text": part.text}
        if part.citations and (citations := self._render_citations(part.citations)):
            block["citations"] = citations
        return self._with_extra_fields(block, part.cache, part.extra)

    def _render_citations(self, citations: Iterable[Citation]) -> list[Any]:
        own = (self._dropped.native_value(citation.extra, "citations") for citation in citations)
        return [citation for citation in own if citation is not None]

    def _render_refusal(self, part: Refusal) -> Payload | None:
        return self._render_text(Text(part.text))

    def _render_thinking(self, part: Thinking) -> Payload | None:
        block = restore_thinking(part, self._target)
        if block is None:
            self._dropped.drop("thinking")
            return None
        return block | ProviderData.native_fields(part.extra, Format.MESSAGES)

    def _render_call(self, part: ToolCall) -> Payload:
        block = {
            "type": "tool_use",
            "id": sanitize_name(part.id),
            "name": upstream_name(part.name, part.namespace),
            "input": _tool_input(part),
        }
        return self._with_extra_fields(block, part.cache, part.extra)

    def _render_result(self, part: ToolResult) -> Payload:
        block: Payload = {"type": "tool_result", "tool_use_id": sanitize_name(part.call_id)}
        parts, mark = _strip_cache(part.parts)
        if content := self._render_parts(parts):
            block["content"] = content
            if len(content) == 1 and content[0].keys() == {"type", "text"}:
                block["content"] = content[0]["text"]
        if part.is_error:
            block["is_error"] = True
        return self._with_extra_fields(block, part.cache or mark, part.extra)

    def _render_server_call(self, part: ServerToolCall) -> Payload | None:
        if (
            is_foreign_search(part)
            or part.extra is None
            or part.extra.format is not Format.MESSAGES
        ):
            self._dropped.drop(part.name)
            return None
        arguments = _arguments_object(part.arguments)
        block = {"type": "server_tool_use", "id": part.id, "name": part.name, "input": arguments}
        return block | ProviderData.native_fields(part.extra, Format.MESSAGES)

    def _render_server_result(self, part: ServerToolResult) -> Any:
        if is_foreign_search(part):
            self._dropped.drop(part.name)
            return None
        return self._dropped.native_value(part.content, part.name)

    def _render_image(self, part: Image) -> Payload:
        if part.detail not in (None, "auto"):
            self._dropped.drop("image_detail")
        block = {"type": "image", "source": image_source(part, same_format=self._same_format)}
        return self._with_extra_fields(block, part.cache, part.extra)

    def _render_document(self, part: Document) -> Payload:
        if whole := self._native_block(part.extra):
            return whole
        block: Payload = {
            "type": "document",
            "source": document_source(part, same_format=self._same_format),
        }
        if part.title:
            block["title"] = part.title
        if part.context:
            block["context"] = part.context
        return self._with_extra_fields(block, part.cache, part.extra)

    def _native_block(self, extra: ProviderData | None) -> Payload | None:
        """The block of this format that the part was read from, if it rides along."""
        own = self._dropped.remaining_fields(extra) if extra is not None else {}
        return own if "type" in own else None

    def _reject_audio(self, part: Audio) -> Payload:
        raise UnsupportedField("input_audio", "the model's upstream takes no audio")

    def _render_unknown(self, part: UnknownPart) -> Any:
        return self._dropped.native_part(part)

    def _with_extra_fields(
        self, block: Payload, mark: CacheBreakpoint | None, extra: ProviderData | None
    ) -> Payload:
        block |= self._dropped.remaining_fields(extra)
        if mark is not None and self._takes_breakpoints:
            block["cache_control"] = render_cache_breakpoint(mark)
        elif mark is not None:
            self._dropped.drop("cache_marks")
        return block

    _RENDERERS: ClassVar[dict[type[Part], Callable[[ContentRenderer, Any], Payload | None]]] = {
        Text: _render_text,
        Refusal: _render_refusal,
        Thinking: _render_thinking,
        ToolCall: _render_call,
        ToolResult: _render_result,
        ServerToolCall: _render_server_call,
        ServerToolResult: _render_server_result,
        Image: _render_image,
        Document: _render_document,
        Audio: _reject_audio,
        UnknownPart: _render_unknown,
    }


def _strip_cache(parts: Iterable[Part]) -> tuple[list[Part], CacheBreakpoint | None]:
    """What a result holds, and its last mark: marks stand on the result itself, never within."""
    unmarked: list[Part] = []
    last = None
    for part in parts:
        if isinstance(part, Text | Image | Document) and part.cache is not None:
            last = part.cache
            part = replace(part, cache=None)
        unmarked.append(part)
    return unmarked, last


def _tool_input(call: ToolCall) -> Payload:
    if call.kind is CallKind.CUSTOM:
        return {CUSTOM_TOOL_ARG: call.arguments}
    return _arguments_object(call.arguments)


def _arguments_object(arguments: str) -> Payload:
    """The arguments as the object that this format demands, whatever a model once wrote."""
    if not arguments.strip():
        return {}
    try:
        value = orjson.loads(arguments)
    except orjson.JSONDecodeError:
        return {"_raw": arguments}
    return value if isinstance(value, dict) else {"value": value}


def parse_content(content: Any, path: str) -> tuple[Part, ...]:
    """A string, or a list of blocks."""
    if isinstance(content, str):
        return (Text(content),)
    blocks = as_list(content, path)
    return tuple([_parse_block(block, path, index) for index, block in enumerate(blocks)])


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
        return ServerToolResult(
            call_id, kind.removesuffix("_tool_result"), ProviderData(Format.MESSAGES, block)
        )
    return UnknownPart(kind, ProviderData(Format.MESSAGES, block))


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
        extra=ProviderData.unknown_fields(Format.MESSAGES, block, _TEXT_FIELDS),
    )


def _parse_image(block: Payload, path: str) -> Part:
    source = as_object(required(block, "source", path), join_path(path, "source"))
    place = _parse_source(source, join_path(path, "source"))
    if place is None:
        return UnknownPart("image", ProviderData(Format.MESSAGES, block))
    return Image(
        place,
        cache=parse_cache_breakpoint(block, path),
        extra=ProviderData.unknown_fields(Format.MESSAGES, block, _IMAGE_FIELDS),
    )


def _parse_document(block: Payload, path: str) -> Part:
    source = as_object(required(block, "source", path), join_path(path, "source"))
    at = join_path(path, "source")
    kind = required_str(source, "type", at)
    place, text, extra = (
        None,
        None,
        ProviderData.unknown_fields(Format.MESSAGES, block, _DOCUMENT_FIELDS),
    )
    if kind == "text":
        text = required_str(source, "data", at)
    elif kind == "content" and isinstance(source.get("content"), str):
        text = source["content"]
    elif kind == "content" and isinstance(source.get("content"), list):
        text, extra = _plain_text(source["content"]), ProviderData(Format.MESSAGES, block)
        if text is None:
            return UnknownPart("document", extra)
    elif (place := _parse_source(source, at)) is None:
        return UnknownPart("document", ProviderData(Format.MESSAGES, block))
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
        return UnknownPart("search_result", ProviderData(Format.MESSAGES, block))
    text = f"{block.get('title')} ({block.get('source')})\n{said}"
    return Text(
        text, cache=parse_cache_breakpoint(block, path), extra=ProviderData(Format.MESSAGES, block)
    )


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
        signature=ProviderData(Format.MESSAGES, signature) if signature else None,
        extra=ProviderData.unknown_fields(Format.MESSAGES, block, _THINKING_FIELDS),
    )


def _parse_redacted_thinking(block: Payload, path: str) -> Part:
    data = required_str(block, "data", path)
    return (
        unwrap(data, "")
        if is_wrapped(data)
        else Thinking(signature=ProviderData(Format.MESSAGES, data), redacted=True)
    )


def _parse_tool_use(block: Payload, path: str) -> Part:
    return ToolCall(
        id=required_str(block, "id", path),
        name=required_str(block, "name", path),
        arguments=_parse_input(block, path),
        cache=parse_cache_breakpoint(block, path),
        extra=ProviderData.unknown_fields(Format.MESSAGES, block, _TOOL_USE_FIELDS),
    )


def _parse_server_tool_use(block: Payload, path: str) -> Part:
    return ServerToolCall(
        id=required_str(block, "id", path),
        name=required_str(block, "name", path),
        arguments=_parse_input(block, path),
        extra=ProviderData.unknown_fields(Format.MESSAGES, block, _SERVER_TOOL_USE_FIELDS),
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
        extra=ProviderData.unknown_fields(Format.MESSAGES, block, _TOOL_RESULT_FIELDS),
    )


_TEXT_FIELDS: Final = frozenset({"type", "text", "citations", "cache_control"})
_IMAGE_FIELDS: Final = frozenset({"type", "source", "cache_control"})
_DOCUMENT_FIELDS: Final = frozenset({"type", "source", "title", "context", "cache_control"})
_THINKING_FIELDS: Final = frozenset({"type", "thinking", "signature"})
_TOOL_USE_FIELDS: Final = frozenset({"type", "id", "name", "input", "cache_control"})
_SERVER_TOOL_USE_FIELDS: Final = frozenset({"id", "name", "input"})
_TOOL_RESULT_FIELDS: Final = frozenset(
    {"type", "tool_use_id", "content", "is_error", "cache_control"}
)
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


_IMAGE_MAGIC: Final = {
    "iVBORw0KGgo": "image/png",
    "/9j/": "image/jpeg",
    "R0lGOD": "image/gif",
    "UklGR": "image/webp",
}
"""How the base64 of each kind of image begins."""
_PDF: Final = "application/pdf"
_PDF_MAGIC: Final = "JVBERi0"
_TEXT_TYPES: Final = ("text/", "application/json", "application/xml", "application/yaml")


def image_source(image: Image, *, same_format: bool) -> Payload:
    """`own`: ids of files are the asked vendor's."""
    source = image.source
    if source.data is None:
        return _remote_source(source, "image_url", same_format=same_format)
    media_type = next(
        (kind for magic, kind in _IMAGE_MAGIC.items() if source.data.startswith(magic)),
        (source.media_type or "image/png").replace("image/jpg", "image/jpeg"),
    )
    return {"type": "base64", "media_type": media_type, "data": source.data}


def document_source(document: Document, *, same_format: bool) -> Payload:
    if document.text is not None:
        return _text_source(document.text)
    source = document.source or Source()
    if source.data is None:
        return _remote_source(source, "file_data", same_format=same_format)
    if same_format and source.media_type:
        return {"type": "base64", "media_type": source.media_type, "data": source.data}
    if source.media_type == _PDF or source.data.startswith(_PDF_MAGIC):
        return {"type": "base64", "media_type": _PDF, "data": source.data}
    if source.media_type is None or source.media_type.startswith(_TEXT_TYPES):
        try:
            return _text_source(b64decode(source.data, validate=True).decode())
        except ValueError:
            pass
    raise UnsupportedField("file_data", "the model's upstream reads PDF and plain text files only")


def _text_source(text: str) -> Payload:
    return {"type": "text", "media_type": "text/plain", "data": text}


def _remote_source(source: Source, field: str, *, same_format: bool) -> Payload:
    if source.file_id is not None:
        if same_format:
            return {"type": "file", "file_id": source.file_id}
        raise UnsupportedField("file_id", "a file kept by one vendor is not known to another")
    if source.url is None or source.url.startswith("data:"):
        raise UnsupportedField(field, "a data URL must be base64")
    return {"type": "url", "url": source.url}


def parse_citation(citation: Payload) -> Citation:
    """The offsets here count characters of the cited document, not of the text that cites it, so
    they stay in the side pocket."""
    return Citation(
        url=_text_or_none(citation.get("url")),
        title=_text_or_none(citation.get("title")) or _text_or_none(citation.get("document_title")),
        cited_text=_text_or_none(citation.get("cited_text")),
        extra=ProviderData(Format.MESSAGES, citation),
    )


def _text_or_none(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def render_citation(citation: Citation, text: str) -> Any | None:
    """A citation of the text that was `said` so far; None where its source has no address."""
    own = ProviderData.native_data(citation.extra, Format.MESSAGES)
    if own is not None:
        return own
    if citation.url is None:
        return None
    return {
        "type": "web_search_result_location",
        "url": citation.url,
        "title": citation.title,
        "cited_text": citation.cited_text or _cited_span(citation, text),
        "encrypted_index": "",
    }


def _cited_span(citation: Citation, text: str) -> str:
    if citation.start is None or citation.end is None:
        return ""
    return text[citation.start : citation.end]
