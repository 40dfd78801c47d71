"""Writes the events of one stream, numbered without gaps. It must not know what they tell.

What output items have in common as they are told to a client. It must not know their types.

An item is begun, grows piece by piece, ends with its part, and is done when nothing more can come:
only then is it known whether it is complete.

Messages and reasoning as they are told to a client. It must not know calls or searches.

Calls, searches and items of unknown types as they are told to a client. It must not
know texts.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, Final

import orjson

from gateway.core.events import Signature
from gateway.core.formats import Format
from gateway.core.parts import (
    CallKind,
    Citation,
    Part,
    ProviderData,
    Refusal,
    ServerToolCall,
    ServerToolResult,
    Text,
    Thinking,
    ToolCall,
    UnknownPart,
)
from gateway.wire import signatures
from gateway.wire.json_fields import Payload, lenient_object, lenient_objects, lenient_str
from gateway.wire.responses.client_tools import ClientTool
from gateway.wire.responses.content import echo_citation, render_citation
from gateway.wire.responses.ids import IdGenerator

_FRAME_HEAD: Final = b'event: %b\ndata: {"type":"%b","sequence_number":'


class EventWriter:
    """`sequence` is the number of the next event."""

    __slots__ = ("sequence",)

    def __init__(self) -> None:
        self.sequence = 0

    def write(self, kind: str, fields: Payload) -> bytes:
        """One event; `kind` is its type without the prefix that they share."""
        name = b"response." + kind.encode()
        number = self.sequence
        self.sequence = number + 1
        return b"%b%d,%b\n\n" % (_FRAME_HEAD % (name, name), number, orjson.dumps(fields)[1:])

    def delta_writer(
        self, kind: str, position: Payload, trailer: Payload | None = None
    ) -> DeltaWriter:
        """For events of one kind about one part; see `Line`."""
        return DeltaWriter(self, kind, position, trailer)


class DeltaWriter:
    """Writes events that differ in their piece alone: nearly all that a stream has."""

    __slots__ = ("_after", "_before", "_end", "_writer")

    def __init__(
        self, writer: EventWriter, kind: str, position: Payload, trailer: Payload | None = None
    ) -> None:
        """`place` says where the pieces belong; `more` stands behind each of them."""
        name = b"response." + kind.encode()
        self._writer = writer
        self._before = _FRAME_HEAD % (name, name)
        self._after = b',%b,"delta":' % orjson.dumps(position)[1:-1]
        self._end = (b",%b\n\n" % orjson.dumps(trailer)[1:]) if trailer else b"}\n\n"

    def write(self, piece: Any) -> bytes:
        pen = self._writer
        number = pen.sequence
        pen.sequence = number + 1
        return b"%b%d%b%b%b" % (
            self._before,
            number,
            self._after,
            orjson.dumps(piece),
            self._end,
        )

    def write_run(self, json_texts: Sequence[bytes]) -> bytes:
        """Several pieces at once, each as JSON spells it inside its quotes."""
        pen = self._writer
        number = pen.sequence
        pen.sequence = number + len(json_texts)
        after, between = self._after + b'"', b'"' + self._end + self._before
        numbered = (b"%d%b%b" % (at, after, text) for at, text in enumerate(json_texts, number))
        return b'%b%b"%b' % (self._before, between.join(numbered), self._end)


class NullWriter(EventWriter):
    """Writes nothing, for those who only want the response that a stream ends with."""

    __slots__ = ()

    def write(self, kind: str, fields: Payload) -> bytes:
        return b""

    def delta_writer(
        self, kind: str, position: Payload, trailer: Payload | None = None
    ) -> DeltaWriter:
        return _NULL_DELTA_WRITER


class _NullDeltaWriter(DeltaWriter):
    __slots__ = ()

    def __init__(self) -> None:
        """It has nothing to remember."""

    def write(self, piece: Any) -> bytes:
        return b""

    def write_run(self, json_texts: Sequence[bytes]) -> bytes:
        return b""


_NULL_DELTA_WRITER: Final = _NullDeltaWriter()


Piece = str | Signature | Citation

COMPLETED = "completed"
INCOMPLETE = "incomplete"


class ItemEncoder(ABC):
    """`body` is the item as it stands: whole once it is done."""

    __slots__ = ("_index", "_writer", "body")

    def __init__(self, writer: EventWriter, index: int, body: Payload) -> None:
        self._writer = writer
        self._index = index
        self.body = body

    def begin(self, part: Part) -> bytes:
        """The item as it opens, and what its part says from the start."""
        return self._emit("output_item.added")

    def continue_with(self, part: Part) -> bytes | None:
        """Goes on with a part that opens after the item's own has ended; None where that part
        belongs to another item."""
        return None

    @abstractmethod
    def add(self, piece: Piece) -> bytes:
        """One more piece of the open part."""

    def add_text_run(self, texts: Sequence[str], json_texts: Sequence[bytes]) -> bytes:
        """Several pieces of it, and how JSON spells each of them inside its quotes."""
        return b"".join(map(self.add, texts))

    @abstractmethod
    def end_part(self) -> bytes:
        """The open part has closed."""

    def is_complete(self) -> bool:
        """False where the part can be seen to have been cut off."""
        return True

    def finish(self, status: str) -> bytes:
        self.body["status"] = status
        return self._emit("output_item.done")

    def _emit(self, kind: str) -> bytes:
        return self._writer.write(kind, {"output_index": self._index, "item": self.body})

    def _position(self, **inside: int) -> Payload:
        """Where in the output an event belongs."""
        return {"item_id": self.body["id"], "output_index": self._index, **inside}


def native_fields(extra: ProviderData | None) -> Payload:
    """What an upstream of this format has said beyond the hub's words."""
    if extra is None or extra.format is not Format.RESPONSES:
        return {}
    return lenient_object(extra.data)


_LOGPROBS: Final[Payload] = {"logprobs": []}


class MessageItemEncoder(ItemEncoder):
    """Texts that follow each other become one part: many clients read a message's first part alone.
    What an upstream of this format has kept apart stays apart.

    `dropped` gets the names of what cannot be said.
    """

    __slots__ = (
        "_citations",
        "_content",
        "_deltas",
        "_dropped",
        "_native_id",
        "_offset",
        "_pieces",
    )

    def __init__(
        self,
        writer: EventWriter,
        index: int,
        part: Text | Refusal,
        ids: IdGenerator,
        dropped: set[str],
    ) -> None:
        own = _text_fields(part)
        self._native_id = own.get("id")
        self._content: list[Payload] = []
        body: Payload = {
            "id": ids.item_id("msg", self._native_id),
            "type": "message",
            "role": "assistant",
            "status": "in_progress",
            "content": self._content,
        }
        if phase := lenient_str(own.get("phase")):
            body["phase"] = phase
        super().__init__(writer, index, body)
        self._dropped = dropped
        self._pieces: list[str] = []
        self._citations: list[Citation] = []
        self._offset = 0

    def begin(self, part: Part) -> bytes:
        return super().begin(part) + self._open_part(part)

    def continue_with(self, part: Part) -> bytes | None:
        if not isinstance(part, Text | Refusal):
            return None
        own_id = _text_fields(part).get("id")
        if own_id != self._native_id and isinstance(part, Text):
            return None
        joins = isinstance(part, Text) and own_id is None and "text" in self._content[-1]
        if not joins:
            return self._close_part() + self._open_part(part)
        self._offset = len("".join(self._pieces))
        return self._add_initial(part)

    def add(self, piece: Piece) -> bytes:
        if type(piece) is str:
            self._pieces.append(piece)
            return self._deltas.write(piece)
        if isinstance(piece, Citation):
            self._citations.append(piece)
        return b""

    def add_text_run(self, texts: Sequence[str], json_texts: Sequence[bytes]) -> bytes:
        self._pieces += texts
        return self._deltas.write_run(json_texts)

    def end_part(self) -> bytes:
        """Citations wait for this: they may cover the whole text, however long it gets."""
        if not self._citations:
            return b""
        length = len("".join(self._pieces))
        told = b"".join(self._emit_citation(citation, length) for citation in self._citations)
        self._citations = []
        return told

    def finish(self, status: str) -> bytes:
        return self._close_part() + super().finish(status)

    def _open_part(self, part: Part) -> bytes:
        """A new part of the message."""
        place = self._position(content_index=len(self._content))
        if isinstance(part, Refusal):
            opened: Payload = {"type": "refusal", "refusal": ""}
            self._deltas = self._writer.delta_writer("refusal.delta", place)
        else:
            opened = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
            self._deltas = self._writer.delta_writer("output_text.delta", place, _LOGPROBS)
        self._content.append(opened)
        self._pieces, self._citations, self._offset = [], [], 0
        return self._writer.write(
            "content_part.added", place | {"part": opened}
        ) + self._add_initial(part)

    def _add_initial(self, part: Part) -> bytes:
        """What a part says from the start."""
        if isinstance(part, Text):
            self._citations += part.citations
        text = part.text if isinstance(part, Text | Refusal) else ""
        return self.add(text) if text else b""

    def _emit_citation(self, citation: Citation, length: int) -> bytes:
        start, end = self._offset, length
        if citation.start is not None and citation.end is not None:
            start = min(max(self._offset + citation.start, 0), length)
            end = min(max(self._offset + citation.end, start), length)
        annotation = render_citation(citation, start, end) or echo_citation(citation)
        if annotation is None:
            self._dropped.add("citations")
            return b""
        place = self._position(content_index=len(self._content) - 1)
        annotations: list[Payload] = self._content[-1]["annotations"]
        place["annotation_index"] = len(annotations)
        annotations.append(annotation)
        return self._writer.write(
            "output_text.annotation.added", place | {"annotation": annotation}
        )

    def _close_part(self) -> bytes:
        """The newest part is whole."""
        part, place = self._content[-1], self._position(content_index=len(self._content) - 1)
        name, field = ("output_text", "text") if "text" in part else ("refusal", "refusal")
        part[field] = "".join(self._pieces)
        more = _LOGPROBS if name == "output_text" else {}
        whole = self._writer.write(f"{name}.done", place | {field: part[field]} | more)
        return whole + self._writer.write("content_part.done", place | {"part": part})


class ReasoningItemEncoder(ItemEncoder):
    """What there is to read of it is told as one summary. What proves it stands in the encrypted
    content: bare where it is this format's own and bound to this very item, else packed together
    with its `origin`, so that unsigned reasoning has one too. Only what an upstream of this format
    has not signed itself stays bare of it."""

    __slots__ = ("_deltas", "_from_native", "_origin", "_pieces", "_redacted", "_signature")

    def __init__(
        self, writer: EventWriter, index: int, part: Thinking, ids: IdGenerator, origin: str
    ) -> None:
        label = native_fields(part.extra)
        id = ids.item_id("rs", label.get("id") or _signature_item_id(part.signature))
        body: Payload = {"id": id, "type": "reasoning", "status": "in_progress", "summary": []}
        super().__init__(writer, index, body)
        self._from_native = bool(label)
        self._origin = origin
        self._signature = part.signature
        self._redacted = part.redacted
        self._deltas: DeltaWriter | None = None
        self._pieces: list[str] = []

    def begin(self, part: Part) -> bytes:
        text = part.text if isinstance(part, Thinking) else ""
        return super().begin(part) + (self.add(text) if text else b"")

    def add(self, piece: Piece) -> bytes:
        if type(piece) is not str:
            if isinstance(piece, Signature):
                self._signature = piece.value
            return b""
        self._pieces.append(piece)
        if self._deltas is not None:
            return self._deltas.write(piece)
        place = self._position(summary_index=0)
        self._deltas = self._writer.delta_writer("reasoning_summary_text.delta", place)
        opened = place | {"part": {"type": "summary_text", "text": ""}}
        return self._writer.write("reasoning_summary_part.added", opened) + self._deltas.write(
            piece
        )

    def add_text_run(self, texts: Sequence[str], json_texts: Sequence[bytes]) -> bytes:
        if self._deltas is None:
            return super().add_text_run(texts, json_texts)
        self._pieces += texts
        return self._deltas.write_run(json_texts)

    def end_part(self) -> bytes:
        if self._deltas is None:
            return b""
        place, text = self._position(summary_index=0), "".join(self._pieces)
        part = {"type": "summary_text", "text": text}
        self.body["summary"] = [part]
        whole = self._writer.write("reasoning_summary_text.done", place | {"text": text})
        return whole + self._writer.write("reasoning_summary_part.done", place | {"part": part})

    def finish(self, status: str) -> bytes:
        if self._signature is not None or not self._from_native:
            self.body["encrypted_content"] = self._encrypted_content()
        return super().finish(status)

    def _encrypted_content(self) -> str:
        signature = self._signature
        if signature is not None and _signature_item_id(signature) == self.body["id"]:
            bare = lenient_str(lenient_object(signature.data).get("encrypted_content"))
            if bare:
                return bare
        return signatures.wrap(signature, self._origin, redacted=self._redacted)


def _text_fields(part: Part) -> Payload:
    return native_fields(part.extra) if isinstance(part, Text) else {}


def _signature_item_id(signature: ProviderData | None) -> str:
    """The item that a signature of this format belongs to."""
    if signature is None or signature.format is not Format.RESPONSES:
        return ""
    return lenient_str(lenient_object(signature.data).get("id"))


_FUNCTION_CALL_NAMES: Final = ("function_call", "fc", "arguments", "function_call_arguments")
_CUSTOM_CALL_NAMES: Final = ("custom_tool_call", "ctc", "input", "custom_tool_call_input")
_SEARCH_STAGES: Final = ("in_progress", "searching")


class CallItemEncoder(ItemEncoder):
    """A call that the client runs: JSON arguments, or the free text of a custom tool."""

    __slots__ = ("_deltas", "_event_name", "_field", "_pieces")

    def __init__(self, writer: EventWriter, index: int, part: ToolCall, ids: IdGenerator) -> None:
        custom = part.kind is CallKind.CUSTOM
        type_, prefix, self._field, self._event_name = (
            _CUSTOM_CALL_NAMES if custom else _FUNCTION_CALL_NAMES
        )
        own = native_fields(part.extra)
        body: Payload = {
            "id": ids.item_id(prefix, own.get("id")),
            "type": type_,
            "status": "in_progress",
            "call_id": ids.call_id(part.id),
            "name": part.name,
        }
        if part.namespace is not None:
            body["namespace"] = part.namespace
        super().__init__(writer, index, own | body | {self._field: ""})
        self._deltas = writer.delta_writer(f"{self._event_name}.delta", self._position())
        self._pieces: list[str] = []

    def begin(self, part: Part) -> bytes:
        said = part.arguments if isinstance(part, ToolCall) else ""
        return super().begin(part) + (self.add(said) if said else b"")

    def add(self, piece: Piece) -> bytes:
        if type(piece) is not str:
            return b""
        self._pieces.append(piece)
        return self._deltas.write(piece)

    def end_part(self) -> bytes:
        """Nobody can parse a function's arguments of no characters."""
        unsaid = b""
        if not self._pieces and self._field == "arguments":
            unsaid = self.add("{}")
        whole = "".join(self._pieces)
        self.body[self._field] = whole
        done = self._position() | {self._field: whole}
        if self._field == "arguments":
            done["name"] = self.body["name"]
        return unsaid + self._writer.write(f"{self._event_name}.done", done)

    def is_complete(self) -> bool:
        if self._field != "arguments":
            return True
        try:
            orjson.loads(self.body[self._field])
        except orjson.JSONDecodeError:
            return False
        return True


class ClientCallItemEncoder(ItemEncoder):
    """A call of a tool that the client knows by its type: its arguments have a form of their own,
    so it is told once it is whole."""

    __slots__ = ("_ids", "_pieces", "_tool")

    def __init__(
        self, writer: EventWriter, index: int, part: ToolCall, ids: IdGenerator, tool: ClientTool
    ) -> None:
        self._ids = {"id": ids.item_id(tool.prefix), "call_id": ids.call_id(part.id)}
        self._tool = tool
        self._pieces = [part.arguments]
        body = self._ids | tool.call_item("") | {"status": "in_progress"}
        super().__init__(writer, index, body)

    def add(self, piece: Piece) -> bytes:
        if isinstance(piece, str):
            self._pieces.append(piece)
        return b""

    def end_part(self) -> bytes:
        self.body = self._ids | self._tool.call_item("".join(self._pieces))
        return b""


class SearchItemEncoder(ItemEncoder):
    """A search of the web that the upstream ran, and what it has found."""

    __slots__ = ("_call_id", "_pieces", "_sources")

    def __init__(
        self, writer: EventWriter, index: int, part: ServerToolCall, ids: IdGenerator
    ) -> None:
        own = native_fields(part.extra)
        body = {
            "id": ids.item_id("ws", own.get("id") or part.id),
            "type": "web_search_call",
            "status": "in_progress",
            "action": {"type": "search", "query": ""},
        }
        super().__init__(writer, index, body)
        self._call_id = part.id
        self._pieces = [part.arguments]
        self._sources: list[str] = []

    def begin(self, part: Part) -> bytes:
        added = super().begin(part)
        stages = [
            self._writer.write(f"web_search_call.{stage}", self._position())
            for stage in _SEARCH_STAGES
        ]
        return added + b"".join(stages)

    def continue_with(self, part: Part) -> bytes | None:
        if not isinstance(part, ServerToolResult) or part.call_id != self._call_id:
            return None
        self._sources += _source_urls(part.content.data)
        return b""

    def add(self, piece: Piece) -> bytes:
        if isinstance(piece, str):
            self._pieces.append(piece)
        return b""

    def end_part(self) -> bytes:
        return b""

    def finish(self, status: str) -> bytes:
        self.body["action"] = self._action()
        if status == INCOMPLETE:
            return super().finish(status)
        return self._writer.write("web_search_call.completed", self._position()) + super().finish(
            status
        )

    def _action(self) -> Payload:
        """What was searched for. Upstreams of other formats tell the query alone."""
        try:
            told = lenient_object(orjson.loads("".join(self._pieces)))
        except orjson.JSONDecodeError:
            told = {}
        if "type" in told:
            return told
        query = lenient_str(told.get("query"))
        sources = [{"type": "url", "url": address} for address in dict.fromkeys(self._sources)]
        return {"type": "search", "query": query, "queries": [query], "sources": sources}


class UnknownItemEncoder(ItemEncoder):
    """An item that only this format has a word for: whole from the start."""

    __slots__ = ()

    def __init__(
        self, writer: EventWriter, index: int, part: UnknownPart, ids: IdGenerator
    ) -> None:
        item = native_fields(part.data)
        prefix = lenient_str(item.get("id")).partition("_")[0] or "item"
        super().__init__(writer, index, item | {"id": ids.item_id(prefix, item.get("id"))})

    def add(self, piece: Piece) -> bytes:
        return b""

    def end_part(self) -> bytes:
        return b""

    def finish(self, status: str) -> bytes:
        return self._emit("output_item.done")


def _source_urls(found: Any) -> Iterator[str]:
    """The pages that a search has found, as far as its upstream lists them."""
    for entry in lenient_objects(lenient_object(found).get("content")):
        if address := lenient_str(entry.get("url")):
            yield address
