"""The content blocks of a messages reply, in one body or as the frames of a stream.

Public grammar: Messages, "Streaming messages": one block at a time, indexes without gaps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, Final

import orjson

from gateway.core.events import Piece, Signature
from gateway.core.formats import Format
from gateway.core.parts import (
    CallKind,
    Citation,
    Part,
    ProviderData,
    Refusal,
    ReplyField,
    ServerToolCall,
    ServerToolResult,
    Text,
    Thinking,
    ToolCall,
    UnknownPart,
)
from gateway.core.value import replace
from gateway.wire.codec import ReplyMetadata
from gateway.wire.json.fields import Payload
from gateway.wire.messages.json_stream import (
    ArgumentStream,
    JsonObjectStream,
    JsonStringStream,
    parse_arguments,
)
from gateway.wire.messages.tools import ForeignSearch, foreign_search_id
from gateway.wire.prompt.signatures import wrap
from gateway.wire.prompt.tool_names import CUSTOM_TOOL_ARG, sanitize_name, upstream_name
from gateway.wire.search.calls import WEB_SEARCH

DELTA_SUFFIX: Final = b"}}\n\n"
"""The bytes after the piece in the frame of a delta."""
_DELTA_PREFIX: Final = (
    b'event: content_block_delta\ndata: {"type":"content_block_delta","index":%d,'
    b'"delta":{"type":"%b","%b":'
)
_BLOCK_STOP: Final = (
    b'event: content_block_stop\ndata: {"type":"content_block_stop","index":%d}\n\n'
)


class BlockRenderer:
    """Renders complete parts as blocks. `dropped` names what the format cannot express; `fields`
    are those of the whole message."""

    __slots__ = ("_client_ids", "_ids", "_metadata", "_searches", "dropped", "fields")

    def __init__(self, metadata: ReplyMetadata) -> None:
        self._metadata = metadata
        self._ids: set[str] = set()
        self._client_ids: dict[str, str] = {}
        self._searches: dict[str, ForeignSearch] = {}
        self.dropped: set[str] = set()
        self.fields: Payload = {}

    def render(self, parts: Iterable[Part]) -> list[Payload]:
        return [block for block in map(self.render_part, parts) if block is not None]

    def render_part(self, part: Part) -> Payload | None:
        """Renders a part; None for an empty one and for one that the format cannot express."""
        return self._RENDERERS.get(type(part), BlockRenderer._drop)(self, part)

    def citation(self, citation: Citation, text: str) -> Payload | None:
        """A citation of `text`, None where the format cannot express it."""
        native: Payload | None = ProviderData.native_data(citation.extra, Format.MESSAGES)
        if native is not None:
            return native
        if citation.url is None:
            self.dropped.add("citations")
            return None
        cited_text = citation.cited_text
        if not cited_text and citation.start is not None and citation.end is not None:
            cited_text = text[citation.start : citation.end]
        return {
            "type": "web_search_result_location",
            "url": citation.url,
            "title": citation.title,
            "cited_text": cited_text or "",
            "encrypted_index": "",
        }

    def call(self, call: ToolCall) -> Payload:
        """A call of a client's tool with an empty input. A name without a namespace is the
        client's own already."""
        name = upstream_name(call.name, call.namespace) if call.namespace else call.name
        block = {"type": "tool_use", "id": self._call_id(call.id), "name": name, "input": {}}
        return block | (ProviderData.native_data(call.extra, Format.MESSAGES) or {})

    def server_call(self, call: ServerToolCall) -> Payload | None:
        """A call that an upstream of this format runs, with an empty input; None of another's."""
        native = ProviderData.native_data(call.extra, Format.MESSAGES)
        if native is None and (call.name == WEB_SEARCH or call.extra is not None):
            return None
        id = self._call_id(call.id)
        block = {"type": "server_tool_use", "id": id, "name": call.name, "input": {}}
        return block | (native or {})

    def signature(self, value: ProviderData | None, *, redacted: bool = False) -> str:
        """Keeps signatures of this format, wraps others so that clients return them."""
        native = ProviderData.native_data(value, Format.MESSAGES)
        if native and isinstance(native, str):
            return native
        return wrap(value, self._metadata.origin, redacted=redacted)

    def _call_id(self, id: str, client_id: str | None = None) -> str:
        """The client's id for a call, `client_id` if possible: valid, and unique in the message."""
        new = sanitize_name(client_id or id) if id else ""
        if not new or new in self._ids:
            new = f"toolu_{self._metadata.reply_id}_{len(self._ids)}"
        self._ids.add(new)
        self._client_ids[id] = new
        return new

    def _result_id(self, id: str) -> str:
        """The client's id for the call of a result."""
        return self._client_ids.get(id) or sanitize_name(id)

    def _text(self, part: Text) -> Payload | None:
        if not part.text and not part.citations:
            return None
        block: Payload = {"type": "text", "text": part.text}
        for citation in part.citations:
            if (rendered := self.citation(citation, part.text)) is not None:
                block.setdefault("citations", []).append(rendered)
        return block

    def _refusal(self, part: Refusal) -> Payload | None:
        return {"type": "text", "text": part.text} if part.text else None

    def _thinking(self, part: Thinking) -> Payload | None:
        if part.signature is None and (part.redacted or not part.text):
            return None
        signature = self.signature(part.signature, redacted=part.redacted)
        if part.redacted:
            return {"type": "redacted_thinking", "data": signature}
        return {"type": "thinking", "thinking": part.text, "signature": signature}

    def _complete_call(self, part: ToolCall) -> Payload:
        custom = part.kind is CallKind.CUSTOM
        arguments = part.arguments
        return self.call(part) | {
            "input": {CUSTOM_TOOL_ARG: arguments} if custom else parse_arguments(arguments)
        }

    def _complete_server_call(self, part: ServerToolCall) -> Payload | None:
        if (block := self.server_call(part)) is not None:
            return block | {"input": parse_arguments(part.arguments)}
        search = ForeignSearch(part.arguments)
        if part.name != WEB_SEARCH or not search.query:
            self.dropped.add(part.name)
            return None
        self._searches[part.id] = search
        id = self._call_id(part.id, foreign_search_id(part.id))
        query = {"query": search.query}
        return {"type": "server_tool_use", "id": id, "name": WEB_SEARCH, "input": query}

    def _server_result(self, part: ServerToolResult) -> Payload | None:
        native: Payload | None = ProviderData.native_data(part.content, Format.MESSAGES)
        if native is not None:
            return native | {"tool_use_id": self._result_id(part.call_id)}
        search = self._searches.pop(part.call_id, None) if part.name == WEB_SEARCH else None
        if search is None:
            self.dropped.add(part.name)
            return None
        id = self._result_id(part.call_id)
        return {"type": f"{WEB_SEARCH}_tool_result", "tool_use_id": id, "content": search.results}

    def _unknown(self, part: UnknownPart) -> Payload | None:
        native = ProviderData.native_data(part.data, Format.MESSAGES)
        if native is None:
            self.dropped.add(part.kind)
        return native

    def _field(self, part: ReplyField) -> None:
        if part.data.format is not Format.MESSAGES:
            self.dropped.add(part.name)
        else:
            self.fields[part.name] = part.data.data

    def _drop(self, part: Part) -> None:
        self.dropped.add(type(part).__name__.lower())

    _RENDERERS: ClassVar[dict[type[Part], Callable[[Any, Any], Payload | None]]] = {
        Text: _text,
        Refusal: _refusal,
        Thinking: _thinking,
        ToolCall: _complete_call,
        ServerToolCall: _complete_server_call,
        ServerToolResult: _server_result,
        UnknownPart: _unknown,
        ReplyField: _field,
    }


class BlockWriter(BlockRenderer):
    """Writes the frames around the blocks of one stream; `index` is that of the newest block."""

    __slots__ = ("_is_open", "index")

    def __init__(self, metadata: ReplyMetadata) -> None:
        super().__init__(metadata)
        self.index = -1
        self._is_open = False

    def start(self, block: Payload) -> bytes:
        self.index += 1
        self._is_open = True
        data = {"type": "content_block_start", "index": self.index, "content_block": block}
        return b"event: content_block_start\ndata: %b\n\n" % orjson.dumps(data)

    def delta_prefix(self, kind: bytes, field: bytes) -> bytes:
        """The bytes before the piece in the frame of a delta."""
        return _DELTA_PREFIX % (self.index, kind, field)

    def stop(self) -> bytes:
        """Ends the open block, if any."""
        if not self._is_open:
            return b""
        self._is_open = False
        return _BLOCK_STOP % self.index


class DeltaBlock:
    """A block of a stream whose text comes in deltas. It starts with its first content, so an empty
    part has none; pieces of other kinds are ignored."""

    __slots__ = ("_prefix", "_texts", "_writer")

    OPENING: ClassVar[Payload]
    DELTA: ClassVar[tuple[bytes, bytes]]
    """Type and field of a delta."""

    def __init__(self, writer: BlockWriter) -> None:
        self._writer = writer
        self._prefix = b""
        self._texts: list[str] = []

    @property
    def text(self) -> str:
        """The text so far."""
        return "".join(self._texts)

    def add(self, piece: Piece) -> bytes:
        if type(piece) is not str:
            return self._add_other(piece)
        self._texts.append(piece)
        if self._prefix:
            return self._prefix + orjson.dumps(piece) + DELTA_SUFFIX
        return self._start() + self._prefix + orjson.dumps(piece) + DELTA_SUFFIX

    def add_texts(self, texts: Sequence[str], json_texts: Sequence[bytes]) -> bytes:
        """Adds several pieces, and the JSON of each without its quotes."""
        self._texts += texts
        start = self._start()
        between = b'"%b%b"' % (DELTA_SUFFIX, self._prefix)
        return b'%b%b"%b"%b' % (start, self._prefix, between.join(json_texts), DELTA_SUFFIX)

    def close(self) -> bytes:
        return self._writer.stop()

    def _add_other(self, piece: Piece) -> bytes:
        return b""

    def _start(self) -> bytes:
        """Starts the block, if it has not started yet."""
        if self._prefix:
            return b""
        start = self._writer.start(self.OPENING)
        self._prefix = self._writer.delta_prefix(*self.DELTA)
        return start


class TextBlock(DeltaBlock):
    __slots__ = ()

    OPENING: ClassVar = {"type": "text", "text": ""}
    DELTA = (b"text_delta", b"text")

    def _add_other(self, piece: Piece) -> bytes:
        if not isinstance(piece, Citation):
            return b""
        start = self._start()
        if (citation := self._writer.citation(piece, self.text)) is None:
            return start
        prefix = self._writer.delta_prefix(b"citations_delta", b"citation")
        return start + prefix + orjson.dumps(citation) + DELTA_SUFFIX


class ThinkingBlock(DeltaBlock):
    """The signature is sent once and last: clients keep the last one."""

    __slots__ = ("_signature",)

    OPENING: ClassVar = {"type": "thinking", "thinking": "", "signature": ""}
    DELTA = (b"thinking_delta", b"thinking")

    def __init__(self, writer: BlockWriter) -> None:
        super().__init__(writer)
        self._signature: ProviderData | None = None

    def close(self) -> bytes:
        if not self._prefix and self._signature is None:
            return b""
        start = self._start()
        signature = orjson.dumps(self._writer.signature(self._signature))
        prefix = self._writer.delta_prefix(b"signature_delta", b"signature")
        return start + prefix + signature + DELTA_SUFFIX + self._writer.stop()

    def _add_other(self, piece: Piece) -> bytes:
        if isinstance(piece, Signature):
            self._signature = piece.value
        return b""


class CallBlock:
    """A call of a tool of the client or of an upstream of this format. Until `start`, which may
    come late, its arguments are buffered. `closed`: they have all arrived."""

    __slots__ = ("_arguments", "_block", "_buffered", "_finished", "_prefix", "_writer", "closed")

    def __init__(self, writer: BlockWriter, block: Payload, arguments: ArgumentStream) -> None:
        self._writer = writer
        self._block = block
        self._arguments = arguments
        self._prefix = b""
        self._buffered: list[str] = []
        self._finished = False
        self.closed = False

    @property
    def is_complete(self) -> bool:
        """Tells whether the arguments are a complete object."""
        return self.closed or self._arguments.is_complete

    def start(self) -> bytes:
        start = self._writer.start(self._block)
        self._prefix = self._writer.delta_prefix(b"input_json_delta", b"partial_json")
        return start + self.add("".join(self._buffered))

    def add(self, piece: Piece) -> bytes:
        if not isinstance(piece, str) or self._finished:
            return b""
        if not self._prefix:
            self._buffered.append(piece)
            return b""
        return self._delta(self._arguments.feed(piece))

    def close(self) -> bytes:
        """Closes the block after `start`; a second call does nothing."""
        if self._finished:
            return b""
        self._finished = True
        return self._delta(self._arguments.finish()) + self._writer.stop()

    def _delta(self, arguments: str) -> bytes:
        return self._prefix + orjson.dumps(arguments) + DELTA_SUFFIX if arguments else b""


class DeferredBlock:
    """A block that is sent when its part is complete."""

    __slots__ = ("_part", "_texts", "_writer")

    def __init__(self, writer: BlockWriter, part: Part) -> None:
        self._writer = writer
        self._part = part
        self._texts: list[str] = []

    def add(self, piece: Piece) -> bytes:
        if isinstance(piece, str):
            self._texts.append(piece)
        elif isinstance(piece, Signature) and isinstance(self._part, Thinking):
            self._part = replace(self._part, signature=piece.value)
        return b""

    def close(self) -> bytes:
        part = self._part
        if not isinstance(part, ServerToolCall):
            block = self._writer.render_part(part)
            return b"" if block is None else self._writer.start(block) + self._writer.stop()
        block = self._writer.render_part(replace(part, arguments="".join(self._texts)))
        if block is None:
            return b""
        start = self._writer.start(block | {"input": {}})
        prefix = self._writer.delta_prefix(b"input_json_delta", b"partial_json")
        arguments = orjson.dumps(orjson.dumps(block["input"]).decode())
        return start + prefix + arguments + DELTA_SUFFIX + self._writer.stop()


StreamBlock = TextBlock | ThinkingBlock | CallBlock | DeferredBlock


def open_block(part: Part, writer: BlockWriter) -> StreamBlock:
    match part:
        case Text() | Refusal():
            return TextBlock(writer)
        case Thinking(redacted=False):
            return ThinkingBlock(writer)
        case ToolCall(kind=CallKind.CUSTOM):
            return CallBlock(writer, writer.call(part), JsonStringStream())
        case ToolCall():
            return CallBlock(writer, writer.call(part), JsonObjectStream())
        case ServerToolCall() if (block := writer.server_call(part)) is not None:
            return CallBlock(writer, block, JsonObjectStream())
        case _:
            return DeferredBlock(writer, part)
