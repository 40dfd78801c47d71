"""Output items of leaving replies: their stream events, and the items themselves.

An item begins, gets pieces, its part ends, and it finishes when nothing can continue it: only then
is it known whether it is complete.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

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
from gateway.wire.json.fields import (
    Payload,
    lenient_object,
    lenient_objects,
    lenient_str,
    load_object,
)
from gateway.wire.moderation import moderation_results
from gateway.wire.prompt import signatures
from gateway.wire.responses.client_tools import ClientTool
from gateway.wire.responses.content import echo_citation, render_citation
from gateway.wire.responses.ids import IdGenerator
from gateway.wire.search.history import is_own_search
from gateway.wire.search.results import pack_block

COMPLETED: Final = "completed"
INCOMPLETE: Final = "incomplete"
FAILED: Final = "failed"
_FRAME_HEAD: Final = b'event: %b\ndata: {"type":"%b","sequence_number":'
_SEARCH_STAGES: Final = ("in_progress", "searching")


class _TextKind(NamedTuple):
    """A kind of text within an item: a part, opened and closed by `part_event`, whose text comes
    with `event`. `field` of the part has the text; `index_field` of events is the position of the
    part; `trailer` follows the text in its events."""

    event: str
    field: str
    part_event: str
    index_field: str
    part: Payload
    trailer: Payload


_OUTPUT_TEXT: Final = _TextKind(
    *("output_text", "text", "content_part", "content_index"),
    part={"type": "output_text", "text": "", "annotations": [], "logprobs": []},
    trailer={"logprobs": []},
)
_REFUSAL: Final = _TextKind(
    *("refusal", "refusal", "content_part", "content_index"),
    part={"type": "refusal", "refusal": ""},
    trailer={},
)
_SUMMARY: Final = _TextKind(
    *("reasoning_summary_text", "text", "reasoning_summary_part", "summary_index"),
    part={"type": "summary_text", "text": ""},
    trailer={},
)
_CALL_NAMES: Final = {
    CallKind.FUNCTION: ("function_call", "fc", "arguments", "function_call_arguments"),
    CallKind.CUSTOM: ("custom_tool_call", "ctc", "input", "custom_tool_call_input"),
}
"""Type and id prefix of the item, the field with the arguments, and the event that carries them."""


class EventWriter:
    """Writes numbered events; `sequence` is the number of the next one."""

    __slots__ = ("sequence",)

    def __init__(self) -> None:
        self.sequence = 0

    def write(self, kind: str, fields: Payload) -> bytes:
        """One event; `kind` is its type without the prefix `response.`."""
        name = b"response." + kind.encode()
        number = self.sequence
        self.sequence = number + 1
        return b"%b%d,%b\n\n" % (_FRAME_HEAD % (name, name), number, orjson.dumps(fields)[1:])

    def delta_writer(self, kind: str, position: Payload, trailer: Payload) -> DeltaWriter:
        return DeltaWriter(self, kind, position, trailer)


class DeltaWriter:
    """Writes events that differ only in their delta: most events of a stream."""

    __slots__ = ("_after", "_before", "_end", "_writer")

    def __init__(
        self, writer: EventWriter, kind: str, position: Payload, trailer: Payload | None = None
    ) -> None:
        """`position` are the fields before the delta, `trailer` those after it."""
        name = b"response." + kind.encode()
        self._writer = writer
        self._before = _FRAME_HEAD % (name, name)
        self._after = b',%b,"delta":' % orjson.dumps(position)[1:-1]
        self._end = (b",%b\n\n" % orjson.dumps(trailer)[1:]) if trailer else b"}\n\n"

    def write(self, piece: str) -> bytes:
        writer = self._writer
        number = writer.sequence
        writer.sequence = number + 1
        json_text = orjson.dumps(piece)
        return b"%b%d%b%b%b" % (self._before, number, self._after, json_text, self._end)

    def write_run(self, json_texts: Sequence[bytes]) -> bytes:
        """Writes several pieces at once, each as the inside of a JSON string."""
        writer = self._writer
        number = writer.sequence
        writer.sequence = number + len(json_texts)
        after, between = self._after + b'"', b'"' + self._end + self._before
        numbered = (b"%d%b%b" % (at, after, text) for at, text in enumerate(json_texts, number))
        return b'%b%b"%b' % (self._before, between.join(numbered), self._end)


class NullWriter(EventWriter):
    """Writes nothing, where only the response at the end of the stream is needed."""

    __slots__ = ()

    def write(self, kind: str, fields: Payload) -> bytes:
        return b""

    def delta_writer(self, kind: str, position: Payload, trailer: Payload) -> DeltaWriter:
        return _NO_DELTAS


class _NullDeltaWriter(DeltaWriter):
    __slots__ = ()

    def write(self, piece: str) -> bytes:
        return b""

    def write_run(self, json_texts: Sequence[bytes]) -> bytes:
        return b""


_NO_DELTAS: Final = _NullDeltaWriter(NullWriter(), "", {})


class ReplyContext(NamedTuple):
    """The context of the items of one reply. `client_tools` are the tools that the client knows by
    their type; `dropped` gets the names of what cannot be rendered, `fields` those of the whole
    response."""

    writer: EventWriter
    ids: IdGenerator
    origin: str
    client_tools: Mapping[str, ClientTool]
    dropped: set[str]
    fields: Payload


class ItemEncoder:
    """`body` is the item so far; it is final once the item is finished."""

    __slots__ = ("_deltas", "_index", "_pieces", "_writer", "body")

    def __init__(self, reply: ReplyContext, index: int, body: Payload) -> None:
        self._writer = reply.writer
        self._index = index
        self._pieces: list[str] = []
        self._deltas: DeltaWriter = _NO_DELTAS
        self.body = body

    def begin(self, part: Part) -> bytes:
        """The start of the item, without the initial pieces of its part."""
        return self._emit("output_item.added")

    def continue_with(self, part: Part) -> bytes | None:
        """Continues with a part that opens after the item's own has ended; None where that part
        belongs to another item."""
        return None

    def add(self, piece: Piece) -> bytes:
        """One more piece of the open part."""
        if type(piece) is str:
            self._pieces.append(piece)
            return self._deltas.write(piece)
        return b""

    def add_text_run(self, texts: Sequence[str], json_texts: Sequence[bytes]) -> bytes:
        """Adds several pieces, also as the insides of JSON strings."""
        self._pieces += texts
        return self._deltas.write_run(json_texts)

    def end_part(self) -> bytes:
        return b""

    def is_complete(self) -> bool:
        """False where the part has visibly been truncated."""
        return True

    def finish(self, status: str) -> bytes:
        self.body["status"] = status
        return self._emit("output_item.done")

    def _emit(self, kind: str) -> bytes:
        return self._writer.write(kind, {"output_index": self._index, "item": self.body})

    def _position(self) -> Payload:
        """The fields that say which item an event is about."""
        return {"item_id": self.body["id"], "output_index": self._index}


class TextItemEncoder(ItemEncoder):
    """An item whose field `parts_field` is a list of texts."""

    __slots__ = ("_kind", "_part_position", "_parts")

    def __init__(self, reply: ReplyContext, index: int, body: Payload, parts_field: str) -> None:
        super().__init__(reply, index, body)
        self._parts: list[Payload] = body[parts_field]

    def _open_part(self, kind: _TextKind) -> bytes:
        position = self._position() | {kind.index_field: len(self._parts)}
        part = dict(kind.part)
        self._kind, self._part_position, self._pieces = kind, position, []
        self._parts.append(part)
        self._deltas = self._writer.delta_writer(f"{kind.event}.delta", position, kind.trailer)
        return self._writer.write(f"{kind.part_event}.added", position | {"part": part})

    def _close_part(self) -> bytes:
        kind, position, part = self._kind, self._part_position, self._parts[-1]
        text = {kind.field: "".join(self._pieces)}
        part |= text
        done = self._writer.write(f"{kind.event}.done", position | text | kind.trailer)
        return done + self._writer.write(f"{kind.part_event}.done", position | {"part": part})


class MessageItemEncoder(TextItemEncoder):
    """Consecutive texts become one part, because many clients read only the first part of a
    message; those that an upstream of this format kept apart stay apart."""

    __slots__ = ("_citations", "_dropped", "_native_id", "_offset")

    def __init__(self, reply: ReplyContext, index: int, part: Text | Refusal) -> None:
        native = _text_fields(part)
        self._native_id = native.get("id")
        body: Payload = {
            "id": reply.ids.item_id("msg", self._native_id),
            "type": "message",
            "role": "assistant",
            "status": "in_progress",
            "content": [],
        }
        if phase := lenient_str(native.get("phase")):
            body["phase"] = phase
        super().__init__(reply, index, body, "content")
        self._dropped = reply.dropped
        self._citations: list[Citation] = []
        self._offset = 0  # in the part, of the text that the citations are about

    def begin(self, part: Part) -> bytes:
        return super().begin(part) + self._open_part(_text_kind(part))

    def continue_with(self, part: Part) -> bytes | None:
        self._offset = 0
        if isinstance(part, Text):
            if _text_fields(part).get("id") != self._native_id:
                return None
            if self._native_id is None and self._kind is _OUTPUT_TEXT:
                self._offset = len("".join(self._pieces))
                return b""
        elif not isinstance(part, Refusal):
            return None
        return self._close_part() + self._open_part(_text_kind(part))

    def add(self, piece: Piece) -> bytes:
        if type(piece) is str:
            self._pieces.append(piece)
            return self._deltas.write(piece)
        if isinstance(piece, Citation):
            self._citations.append(piece)
        return b""

    def end_part(self) -> bytes:
        """Citations wait until here: they may cover the whole text, however long it gets."""
        if not self._citations:
            return b""
        length = len("".join(self._pieces))
        citations, self._citations = self._citations, []
        return b"".join(self._emit_citation(citation, length) for citation in citations)

    def finish(self, status: str) -> bytes:
        return self._close_part() + super().finish(status)

    def _emit_citation(self, citation: Citation, length: int) -> bytes:
        start, end = self._offset, length
        if citation.start is not None and citation.end is not None:
            start = min(max(self._offset + citation.start, 0), length)
            end = min(max(self._offset + citation.end, start), length)
        annotation = render_citation(citation, start, end) or echo_citation(citation)
        if annotation is None:
            self._dropped.add("citations")
            return b""
        annotations = self._parts[-1]["annotations"]
        event = {"annotation_index": len(annotations), "annotation": annotation}
        self._parts[-1]["annotations"] = [*annotations, annotation]
        return self._writer.write("output_text.annotation.added", self._part_position | event)


class ReasoningItemEncoder(TextItemEncoder):
    """The readable text becomes one summary. The signature becomes the encrypted content: plain
    where it is this format's own and bound to this item, else wrapped together with its `origin`;
    unsigned reasoning of another format gets a wrapped one too."""

    __slots__ = ("_from_native", "_origin", "_redacted", "_signature")

    def __init__(self, reply: ReplyContext, index: int, part: Thinking) -> None:
        native = ProviderData.native_fields(part.extra, Format.RESPONSES)
        id = reply.ids.item_id("rs", native.get("id") or _signature_item_id(part.signature))
        body: Payload = {"id": id, "type": "reasoning", "status": "in_progress", "summary": []}
        super().__init__(reply, index, body, "summary")
        self._from_native = bool(native)
        self._origin = reply.origin
        self._signature = part.signature
        self._redacted = part.redacted

    def add(self, piece: Piece) -> bytes:
        if type(piece) is str:
            opened = b"" if self._parts else self._open_part(_SUMMARY)
            self._pieces.append(piece)
            return opened + self._deltas.write(piece)
        if isinstance(piece, Signature):
            self._signature = piece.value
        return b""

    def add_text_run(self, texts: Sequence[str], json_texts: Sequence[bytes]) -> bytes:
        opened = b"" if self._parts else self._open_part(_SUMMARY)
        return opened + super().add_text_run(texts, json_texts)

    def end_part(self) -> bytes:
        return self._close_part() if self._parts else b""

    def finish(self, status: str) -> bytes:
        if self._signature is not None or not self._from_native:
            self.body["encrypted_content"] = self._encrypted_content()
        return super().finish(status)

    def _encrypted_content(self) -> str:
        signature = self._signature
        if signature is not None and _signature_item_id(signature) == self.body["id"]:
            content = lenient_str(lenient_object(signature.data).get("encrypted_content"))
            if content:
                return content
        return signatures.wrap(signature, self._origin, redacted=self._redacted)


class CallItemEncoder(ItemEncoder):
    """A call that the client runs: JSON arguments, or the free text of a custom tool."""

    __slots__ = ("_event", "_field")

    def __init__(self, reply: ReplyContext, index: int, part: ToolCall) -> None:
        kind, prefix, self._field, self._event = _CALL_NAMES[part.kind]
        native = ProviderData.native_fields(part.extra, Format.RESPONSES)
        body: Payload = {
            "id": reply.ids.item_id(prefix, native.get("id")),
            "type": kind,
            "status": "in_progress",
            "call_id": reply.ids.call_id(part.id),
            "name": part.name,
        }
        if part.namespace is not None:
            body["namespace"] = part.namespace
        super().__init__(reply, index, native | body | {self._field: ""})
        self._deltas = self._writer.delta_writer(f"{self._event}.delta", self._position(), {})

    def end_part(self) -> bytes:
        """Empty arguments of a function become `{}`, which clients can parse."""
        is_function = self._field == "arguments"
        frames = self.add("{}") if is_function and not self._pieces else b""
        text = {self._field: "".join(self._pieces)}
        self.body |= text
        name = {"name": self.body["name"]} if is_function else {}
        return frames + self._writer.write(f"{self._event}.done", self._position() | text | name)

    def is_complete(self) -> bool:
        if self._field != "arguments":
            return True
        try:
            orjson.loads(self.body[self._field])
        except orjson.JSONDecodeError:
            return False
        return True


class ClientCallItemEncoder(ItemEncoder):
    """A call of a tool that the client knows by its type: its arguments have their own structure,
    so they are sent when they are complete."""

    __slots__ = ("_ids", "_tool")

    def __init__(self, reply: ReplyContext, index: int, part: ToolCall) -> None:
        tool = self._tool = reply.client_tools[part.name]
        self._ids = {"id": reply.ids.item_id(tool.prefix), "call_id": reply.ids.call_id(part.id)}
        super().__init__(reply, index, self._ids | tool.call_item("") | {"status": "in_progress"})

    def end_part(self) -> bytes:
        self.body = self._ids | self._tool.call_item("".join(self._pieces))
        return b""


class SearchItemEncoder(ItemEncoder):
    """A web search that the upstream ran, and its results."""

    __slots__ = ("_call_id", "_has_failed", "_sources")

    def __init__(self, reply: ReplyContext, index: int, part: ServerToolCall) -> None:
        native = ProviderData.native_fields(part.extra, Format.RESPONSES)
        body = {
            "id": reply.ids.item_id("ws", native.get("id") or part.id),
            "type": "web_search_call",
            "status": "in_progress",
            "action": {"type": "search", "query": ""},
        }
        super().__init__(reply, index, body)
        self._call_id = part.id
        self._has_failed = False
        self._sources: dict[str, None] = {}

    def begin(self, part: Part) -> bytes:
        added, position = super().begin(part), self._position()
        return added + b"".join(
            [self._writer.write(f"web_search_call.{stage}", position) for stage in _SEARCH_STAGES]
        )

    def continue_with(self, part: Part) -> bytes | None:
        """Takes the pages that the search found, as far as its upstream lists them."""
        if not isinstance(part, ServerToolResult) or part.call_id != self._call_id:
            return None
        block = lenient_object(part.content.data)
        if is_own_search(part):
            self.body["encrypted_content"] = pack_block(block)
        self._has_failed = isinstance(block.get("content"), dict)
        for entry in lenient_objects(block.get("content")):
            if url := lenient_str(entry.get("url")):
                self._sources[url] = None
        return b""

    def finish(self, status: str) -> bytes:
        self.body["action"] = self._action()
        if self._has_failed:
            return super().finish(FAILED)
        if status == INCOMPLETE and not self._sources:
            return super().finish(status)
        completed = self._writer.write("web_search_call.completed", self._position())
        return completed + super().finish(COMPLETED)

    def _action(self) -> Payload:
        """Returns what was searched. Upstreams of other formats report only the query."""
        action = load_object("".join(self._pieces))
        if "type" in action:
            return action
        query = lenient_str(action.get("query"))
        sources = [{"type": "url", "url": url} for url in self._sources]
        return {"type": "search", "query": query, "queries": [query], "sources": sources}


class UnknownItemEncoder(ItemEncoder):
    """An item that only this format has: complete from the start."""

    __slots__ = ()

    def __init__(self, reply: ReplyContext, index: int, part: UnknownPart) -> None:
        item = ProviderData.native_fields(part.data, Format.RESPONSES)
        prefix = lenient_str(item.get("id")).partition("_")[0] or "item"
        super().__init__(reply, index, item | {"id": reply.ids.item_id(prefix, item.get("id"))})

    def finish(self, status: str) -> bytes:
        return self._emit("output_item.done")


def new_item(reply: ReplyContext, index: int, part: Part) -> ItemEncoder | None:
    """The item that a part begins; None where the format cannot express it."""
    match part:
        case Text() | Refusal():
            return MessageItemEncoder(reply, index, part)
        case Thinking():
            return ReasoningItemEncoder(reply, index, part)
        case ToolCall(namespace=None, name=name) if name in reply.client_tools:
            return ClientCallItemEncoder(reply, index, part)
        case ToolCall():
            return CallItemEncoder(reply, index, part)
        case ServerToolCall(name="web_search"):
            return SearchItemEncoder(reply, index, part)
        case UnknownPart() if part.data.format is Format.RESPONSES:
            return UnknownItemEncoder(reply, index, part)
        case ServerToolResult() if part.content.format is Format.RESPONSES:
            pass  # part of its search item
        case ReplyField("moderation", data) if results := moderation_results(
            data, Format.RESPONSES
        ):
            reply.fields["moderation"] = results
        case _:
            reply.dropped.add(_loss_name(part))
    return None


def _loss_name(part: Part) -> str:
    match part:
        case ServerToolCall() | ServerToolResult() | ReplyField():
            return part.name
        case UnknownPart():
            return part.kind
        case _:
            return type(part).__name__.lower()


def _text_kind(part: Part) -> _TextKind:
    return _REFUSAL if isinstance(part, Refusal) else _OUTPUT_TEXT


def _text_fields(part: Part) -> Payload:
    extra = part.extra if isinstance(part, Text) else None
    return ProviderData.native_fields(extra, Format.RESPONSES)


def _signature_item_id(signature: ProviderData | None) -> str:
    """The id of the item that a signature of this format belongs to."""
    return lenient_str(ProviderData.native_fields(signature, Format.RESPONSES).get("id"))
