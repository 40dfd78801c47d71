"""Content blocks of requests, both ways.

Blocks of unknown types become `UnknownPart`; unknown fields of a known block are kept in `extra`
and rendered from there. What this format cannot express is dropped, and recorded. Images are JPEG,
PNG, GIF or WebP, documents PDF or plain text (Messages, "Vision", "PDF support"); upstreams reject
data that are not of the declared media type.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, ClassVar, Final

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
    ReplyField,
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
from gateway.wire.json.fields import (
    Payload,
    as_json,
    as_list,
    as_object,
    as_objects,
    join_path,
    optional_bool,
    optional_str,
    required_object,
    required_str,
)
from gateway.wire.json.limits import load_json
from gateway.wire.messages.cache_control import parse_cache_breakpoint, render_cache_breakpoint
from gateway.wire.messages.tools import is_applied_change, is_foreign_search
from gateway.wire.prompt.dropped import Dropped
from gateway.wire.prompt.signatures import is_wrapped, signature_for, unwrap
from gateway.wire.prompt.tool_names import CUSTOM_TOOL_ARG, sanitize_name, upstream_name

_native = partial(ProviderData, Format.MESSAGES)
_unknown_fields = partial(ProviderData.unknown_fields, Format.MESSAGES)

_IMAGE_MAGIC: Final = {
    "iVBORw0KGgo": "image/png",
    "/9j/": "image/jpeg",
    "R0lGOD": "image/gif",
    "UklGR": "image/webp",
}
"""The beginning of the base64 of each kind of image."""
_MEDIA: Final = frozenset({Image, Document, Audio})
_PDF: Final = "application/pdf"
_PDF_MAGIC: Final = "JVBERi0"
_TEXT_TYPES: Final = ("text/", "application/json", "application/xml", "application/yaml")


def parse_content(content: Any, path: str) -> tuple[Part, ...]:
    """A string, or a list of blocks."""
    if isinstance(content, str):
        return (Text(content),)
    blocks = as_list(content, path)
    return tuple([_parse_block(block, path, index) for index, block in enumerate(blocks)])


def _parse_block(block: Any, list_path: str, index: int) -> Part:
    if type(block) is dict and len(block) == 2 and block.get("type") == "text":
        text = block.get("text")  # most blocks have no other fields
        if type(text) is str:
            return Text(text)
    path = f"{list_path}.{index}"
    block = as_object(block, path)
    kind = required_str(block, "type", path)
    if parse := _PARSERS.get(kind):
        return parse(block, path)
    if kind.endswith("_tool_result"):
        name = kind.removesuffix("_tool_result")
        return ServerToolResult(required_str(block, "tool_use_id", path), name, _native(block))
    return UnknownPart(kind, _native(block))


def _parse_text(block: Payload, path: str) -> Part:
    citations = as_objects(block.get("citations"), join_path(path, "citations"))
    return Text(
        required_str(block, "text", path),
        citations=tuple([parse_citation(citation) for citation, _ in citations]),
        cache=parse_cache_breakpoint(block, path),
        extra=_unknown_fields(block, _TEXT_FIELDS),
    )


def _parse_image(block: Payload, path: str) -> Part:
    source = _parse_source(required_object(block, "source", path), join_path(path, "source"))
    if source is None:
        return UnknownPart("image", _native(block))
    cache, extra = parse_cache_breakpoint(block, path), _unknown_fields(block, _IMAGE_FIELDS)
    return Image(source, cache=cache, extra=extra)


def _parse_document(block: Payload, path: str) -> Part:
    at = join_path(path, "source")
    data = required_object(block, "source", path)
    source: Source | None = None
    text: str | None = None
    extra = _unknown_fields(block, _DOCUMENT_FIELDS)
    match required_str(data, "type", at), data.get("content"):
        case "text", _:
            text = required_str(data, "data", at)
        case "content", str(text):
            pass
        case "content", list(blocks):
            text, extra = _join_texts(blocks), _native(block)
        case _:
            source = _parse_source(data, at)
    if source is None and text is None:
        return UnknownPart("document", _native(block))
    return Document(
        source,
        text=text,
        title=optional_str(block, "title", path),
        context=optional_str(block, "context", path),
        cache=parse_cache_breakpoint(block, path),
        extra=extra,
    )


def _parse_search_result(block: Payload, path: str) -> Part:
    """A text that every model can read; `extra` has the whole block."""
    content = _join_texts(block.get("content"))
    if content is None:
        return UnknownPart("search_result", _native(block))
    text = f"{block.get('title')} ({block.get('source')})\n{content}"
    return Text(text, cache=parse_cache_breakpoint(block, path), extra=_native(block))


def _parse_compaction(block: Payload, path: str) -> Part:
    """The summary as a text that every model can read, if the compaction has succeeded; `extra`
    has the whole block."""
    summary = optional_str(block, "content", path)
    text = f"[Summary of the conversation so far]\n{summary}" if summary else ""
    return Text(text, cache=parse_cache_breakpoint(block, path), extra=_native(block))


def _join_texts(blocks: Any) -> str | None:
    """The text of the blocks; None where they are not all texts."""
    if not isinstance(blocks, list):
        return None
    texts = [block.get("text") if isinstance(block, dict) else None for block in blocks]
    known = [text for text in texts if isinstance(text, str)]
    return "\n".join(known) if len(known) == len(blocks) else None


def _parse_source(source: Payload, path: str) -> Source | None:
    """Parses a source; None for unknown kinds."""
    match required_str(source, "type", path):
        case "base64":
            data = required_str(source, "data", path)
            return Source(data=data, media_type=required_str(source, "media_type", path))
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
    extra = _unknown_fields(block, _THINKING_FIELDS)
    return Thinking(text, _native(signature) if signature else None, extra=extra)


def _parse_redacted_thinking(block: Payload, path: str) -> Part:
    data = required_str(block, "data", path)
    if is_wrapped(data):
        return unwrap(data, "")
    return Thinking(signature=_native(data), redacted=True)


def _parse_tool_use(block: Payload, path: str) -> Part:
    id, name = required_str(block, "id", path), required_str(block, "name", path)
    arguments = as_json(required_object(block, "input", path), join_path(path, "input"))
    if len(block) == 4:  # the type and these
        return ToolCall(id, name, arguments)
    cache, extra = parse_cache_breakpoint(block, path), _unknown_fields(block, _TOOL_USE_FIELDS)
    return ToolCall(id, name, arguments, cache=cache, extra=extra)


def _parse_server_tool_use(block: Payload, path: str) -> Part:
    return ServerToolCall(
        id=required_str(block, "id", path),
        name=required_str(block, "name", path),
        arguments=as_json(required_object(block, "input", path), join_path(path, "input")),
        extra=_unknown_fields(block, _SERVER_TOOL_USE_FIELDS),
    )


def _parse_tool_result(block: Payload, path: str) -> Part:
    content = block.get("content")
    call_id = required_str(block, "tool_use_id", path)
    parts = () if content is None else parse_content(content, join_path(path, "content"))
    if len(block) == 3 and content is not None:  # the type and these
        return ToolResult(call_id, parts)
    return ToolResult(
        call_id=call_id,
        parts=parts,
        is_error=optional_bool(block, "is_error", path) or False,
        cache=parse_cache_breakpoint(block, path),
        extra=_unknown_fields(block, _RESULT_FIELDS),
    )


_TEXT_FIELDS: Final = frozenset({"type", "text", "citations", "cache_control"})
_IMAGE_FIELDS: Final = frozenset({"type", "source", "cache_control"})
_DOCUMENT_FIELDS: Final = frozenset({"type", "source", "title", "context", "cache_control"})
_THINKING_FIELDS: Final = frozenset({"type", "thinking", "signature"})
_TOOL_USE_FIELDS: Final = frozenset({"type", "id", "name", "input", "cache_control"})
_SERVER_TOOL_USE_FIELDS: Final = frozenset({"id", "name", "input"})  # there are several types
_RESULT_FIELDS: Final = frozenset({"type", "tool_use_id", "content", "is_error", "cache_control"})
_PARSERS: Final[dict[str, Callable[[Payload, str], Part]]] = {
    "text": _parse_text,
    "image": _parse_image,
    "document": _parse_document,
    "search_result": _parse_search_result,
    "compaction": _parse_compaction,
    "thinking": _parse_thinking,
    "redacted_thinking": _parse_redacted_thinking,
    "tool_use": _parse_tool_use,
    "tool_result": _parse_tool_result,
    "server_tool_use": _parse_server_tool_use,
    "mcp_tool_use": _parse_server_tool_use,
}


def parse_citation(citation: Payload) -> Citation:
    """Offsets stay in `extra`: here they count characters of the cited document."""
    url, title, document_title, cited_text = (
        value if isinstance(value := citation.get(name), str) else None
        for name in ("url", "title", "document_title", "cited_text")
    )
    return Citation(url, title or document_title, cited_text, extra=_native(citation))


def is_generated_citation(citation: Payload) -> bool:
    """Tells whether the gateway made a citation for its client: upstreams refuse one without their
    own encrypted index."""
    return citation.get("encrypted_index") == ""


class ContentRenderer:
    """Renders the blocks of one prompt."""

    __slots__ = ("_cache_breakpoints", "_dropped", "_same_format", "_target")

    def __init__(self, prompt: Prompt, target: Target, dropped: Dropped) -> None:
        self._target = target
        self._dropped = dropped
        self._same_format = prompt.format is Format.MESSAGES
        self._cache_breakpoints = target.cache_marks or self._same_format

    def render(self, turn: Turn) -> list[Payload]:
        """The blocks of one turn, without empty texts, which upstreams reject. The assistant of
        another format can have images, files and audio, which are dropped."""
        self._dropped.remaining_fields(turn.extra)
        parts: Iterable[Part] = turn.parts
        is_foreign = turn.role is Role.ASSISTANT and not self._same_format
        if is_foreign and (media := _MEDIA & {type(part) for part in parts}):
            self._dropped.names.update(kind.__name__.lower() for kind in media)
            parts = [part for part in parts if type(part) not in media]
        return self._render_parts(parts)

    def _render_parts(self, parts: Iterable[Part]) -> list[Payload]:
        blocks = [self._RENDERERS[type(part)](self, part) for part in parts]
        return [block for block in blocks if block is not None]

    def _render_text(self, part: Text) -> Payload | None:
        if native := self._native_block(part.extra):
            return native
        if not part.text or part.text.isspace():
            return None
        block: Payload = {"type": "text", "text": part.text}
        for citation in part.citations:
            native_citation = self._dropped.native_value(citation.extra, "citations")
            if native_citation is not None and not is_generated_citation(native_citation):
                block.setdefault("citations", []).append(native_citation)
        return self._finish(block, part.cache, part.extra)

    def _render_refusal(self, part: Refusal) -> Payload | None:
        return self._render_text(Text(part.text))

    def _render_thinking(self, part: Thinking) -> Payload | None:
        block = restore_thinking(part, self._target)
        if block is None:
            self._dropped.drop("thinking")
            return None
        return block | ProviderData.native_fields(part.extra, Format.MESSAGES)

    def _render_call(self, part: ToolCall) -> Payload:
        custom = part.kind is CallKind.CUSTOM
        block = {
            "type": "tool_use",
            "id": sanitize_name(part.id),
            "name": upstream_name(part.name, part.namespace),
            "input": {CUSTOM_TOOL_ARG: part.arguments} if custom else _load_input(part.arguments),
        }
        return self._finish(block, part.cache, part.extra)

    def _render_result(self, part: ToolResult) -> Payload:
        """Cache breakpoints within the result move to the result, where upstreams accept them."""
        block: Payload = {"type": "tool_result", "tool_use_id": sanitize_name(part.call_id)}
        cache, parts = None, list(part.parts)
        for index, inner in enumerate(parts):
            if isinstance(inner, Text | Image | Document) and inner.cache is not None:
                cache = inner.cache
                parts[index] = replace(inner, cache=None)
        if content := self._render_parts(parts):
            bare = len(content) == 1 and content[0].keys() == {"type", "text"}
            block["content"] = content[0]["text"] if bare else content
        if part.is_error:
            block["is_error"] = True
        return self._finish(block, part.cache or cache, part.extra)

    def _render_server_call(self, part: ServerToolCall) -> Payload | None:
        native = ProviderData.native_data(part.extra, Format.MESSAGES)
        if native is None or is_foreign_search(part):
            self._dropped.drop(part.name)
            return None
        arguments = _load_input(part.arguments)
        block = {"type": "server_tool_use", "id": part.id, "name": part.name, "input": arguments}
        return {**block, **native}

    def _render_server_result(self, part: ServerToolResult) -> Any:
        if is_foreign_search(part):
            self._dropped.drop(part.name)
            return None
        return self._dropped.native_value(part.content, part.name)

    def _render_image(self, part: Image) -> Payload:
        if part.detail not in (None, "auto"):
            self._dropped.drop("image_detail")
        block = {"type": "image", "source": image_source(part, same_format=self._same_format)}
        return self._finish(block, part.cache, part.extra)

    def _render_document(self, part: Document) -> Payload:
        if native := self._native_block(part.extra):
            return native
        block: Payload = {
            "type": "document",
            "source": document_source(part, same_format=self._same_format),
        }
        if part.title:
            block["title"] = part.title
        if part.context:
            block["context"] = part.context
        return self._finish(block, part.cache, part.extra)

    def _reject_audio(self, part: Audio) -> Payload:
        raise UnsupportedField("input_audio", "the model's upstream takes no audio")

    def _render_unknown(self, part: UnknownPart) -> Any:
        if is_applied_change(part):
            self._dropped.drop_rest_of_change(part.data.data)
            return None
        return self._dropped.native_part(part)

    def _native_block(self, extra: ProviderData | None) -> Payload | None:
        """The block of this format that the part was read from, where `extra` has all of it."""
        fields = {} if extra is None else self._dropped.remaining_fields(extra)
        return fields if "type" in fields else None

    def _finish(
        self, block: Payload, cache: CacheBreakpoint | None, extra: ProviderData | None
    ) -> Payload:
        if extra is not None:
            block |= self._dropped.remaining_fields(extra)
        if cache is not None and self._cache_breakpoints:
            block["cache_control"] = render_cache_breakpoint(cache)
        elif cache is not None:
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
        ReplyField: lambda *_: None,
    }


def restore_thinking(thinking: Thinking, target: Target) -> Payload | None:
    """The block as its upstream sent it; None where the target is another upstream."""
    signature = signature_for(thinking, Format.MESSAGES, target)
    if not isinstance(signature, str):
        return None
    if thinking.redacted:
        return {"type": "redacted_thinking", "data": signature}
    return {"type": "thinking", "thinking": thinking.text, "signature": signature}


def _load_input(arguments: str) -> Payload:
    """The arguments as an object, which this format requires even where the model wrote none."""
    if not arguments.strip():
        return {}
    try:
        value = load_json(arguments)
    except ValueError:
        return {"_raw": arguments}
    return value if isinstance(value, dict) else {"value": value}


def image_source(image: Image, *, same_format: bool) -> Payload:
    """`same_format`: file ids are those of the upstream."""
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
            return _text_source(b64decode(source.data[:], validate=True).decode())
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
