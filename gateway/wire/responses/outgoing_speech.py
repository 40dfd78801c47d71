"""Messages and reasoning as they are told to a client. It must not know calls or searches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gateway.core.events import Signature
from gateway.core.formats import Format
from gateway.core.parts import Citation, ProviderData, Part, Refusal, Text, Thinking
from gateway.wire import carrier
from gateway.wire.fields import Payload
from gateway.wire.lenient import lenient_object, lenient_str
from gateway.wire.responses.citations import echo_citation, render_citation
from gateway.wire.responses.ids import IdGenerator
from gateway.wire.responses.outgoing import ItemEncoder, Piece, native_fields
from gateway.wire.responses.pen import DeltaWriter, EventWriter

_LOGPROBS: Final[Payload] = {"logprobs": []}


class MessageItemEncoder(ItemEncoder):
    """Texts that follow each other become one part: many clients read a message's first part alone.
    What an upstream of this format has kept apart stays apart.

    `dropped` gets the names of what cannot be said.
    """

    __slots__ = ("_offset", "_content", "_dropped", "_citations", "_deltas", "_native_id", "_pieces")

    def __init__(
        self, writer: EventWriter, index: int, part: Text | Refusal, ids: IdGenerator, dropped: set[str]
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
        return self._writer.write("content_part.added", place | {"part": opened}) + self._add_initial(part)

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
        return self._writer.write("output_text.annotation.added", place | {"annotation": annotation})

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

    __slots__ = ("_from_native", "_deltas", "_origin", "_pieces", "_redacted", "_signature")

    def __init__(self, writer: EventWriter, index: int, part: Thinking, ids: IdGenerator, origin: str) -> None:
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
        return self._writer.write("reasoning_summary_part.added", opened) + self._deltas.write(piece)

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
        return carrier.wrap(signature, self._origin, redacted=self._redacted)


def _text_fields(part: Part) -> Payload:
    return native_fields(part.extra) if isinstance(part, Text) else {}


def _signature_item_id(signature: ProviderData | None) -> str:
    """The item that a signature of this format belongs to."""
    if signature is None or signature.format is not Format.RESPONSES:
        return ""
    return lenient_str(lenient_object(signature.data).get("id"))
