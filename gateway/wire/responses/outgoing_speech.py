"""Messages and reasoning as they are told to a client. It must not know calls or searches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gateway.core.events import Signature
from gateway.core.formats import Format
from gateway.core.parts import Citation, Opaque, Part, Refusal, Text, Thinking
from gateway.wire import carrier
from gateway.wire.fields import Payload
from gateway.wire.lenient import read_object, read_text
from gateway.wire.responses.citations import own_citation, web_citation
from gateway.wire.responses.ids import Ids
from gateway.wire.responses.outgoing import OutgoingItem, Piece, own_fields
from gateway.wire.responses.pen import Line, Pen

_LOGPROBS: Final[Payload] = {"logprobs": []}


class OutgoingMessage(OutgoingItem):
    """Texts that follow each other become one part: many clients read a message's first part alone.
    What an upstream of this format has kept apart stays apart.

    `dropped` gets the names of what cannot be said.
    """

    __slots__ = ("_base", "_content", "_dropped", "_held", "_line", "_own_id", "_pieces")

    def __init__(
        self, pen: Pen, index: int, part: Text | Refusal, ids: Ids, dropped: set[str]
    ) -> None:
        own = _own(part)
        self._own_id = own.get("id")
        self._content: list[Payload] = []
        body: Payload = {
            "id": ids.item("msg", self._own_id),
            "type": "message",
            "role": "assistant",
            "status": "in_progress",
            "content": self._content,
        }
        if phase := read_text(own.get("phase")):
            body["phase"] = phase
        super().__init__(pen, index, body)
        self._dropped = dropped
        self._pieces: list[str] = []
        self._held: list[Citation] = []
        self._base = 0

    def begin(self, part: Part) -> bytes:
        return super().begin(part) + self._open(part)

    def take(self, part: Part) -> bytes | None:
        if not isinstance(part, Text | Refusal):
            return None
        own_id = _own(part).get("id")
        if own_id != self._own_id and isinstance(part, Text):
            return None
        joins = isinstance(part, Text) and own_id is None and "text" in self._content[-1]
        if not joins:
            return self._close() + self._open(part)
        self._base = len("".join(self._pieces))
        return self._say(part)

    def add(self, piece: Piece) -> bytes:
        if type(piece) is str:
            self._pieces.append(piece)
            return self._line.write(piece)
        if isinstance(piece, Citation):
            self._held.append(piece)
        return b""

    def add_texts(self, texts: Sequence[str], spelled: Sequence[bytes]) -> bytes:
        self._pieces += texts
        return self._line.write_texts(spelled)

    def end(self) -> bytes:
        """Citations wait for this: they may cover the whole text, however long it gets."""
        if not self._held:
            return b""
        length = len("".join(self._pieces))
        told = b"".join(self._cite(citation, length) for citation in self._held)
        self._held = []
        return told

    def done(self, status: str) -> bytes:
        return self._close() + super().done(status)

    def _open(self, part: Part) -> bytes:
        """A new part of the message."""
        place = self._place(content_index=len(self._content))
        if isinstance(part, Refusal):
            opened: Payload = {"type": "refusal", "refusal": ""}
            self._line = self._pen.line("refusal.delta", place)
        else:
            opened = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
            self._line = self._pen.line("output_text.delta", place, _LOGPROBS)
        self._content.append(opened)
        self._pieces, self._held, self._base = [], [], 0
        return self._pen.write("content_part.added", place | {"part": opened}) + self._say(part)

    def _say(self, part: Part) -> bytes:
        """What a part says from the start."""
        if isinstance(part, Text):
            self._held += part.citations
        text = part.text if isinstance(part, Text | Refusal) else ""
        return self.add(text) if text else b""

    def _cite(self, citation: Citation, length: int) -> bytes:
        start, end = self._base, length
        if citation.start is not None and citation.end is not None:
            start = min(max(self._base + citation.start, 0), length)
            end = min(max(self._base + citation.end, start), length)
        annotation = web_citation(citation, start, end) or own_citation(citation)
        if annotation is None:
            self._dropped.add("citations")
            return b""
        place = self._place(content_index=len(self._content) - 1)
        annotations: list[Payload] = self._content[-1]["annotations"]
        place["annotation_index"] = len(annotations)
        annotations.append(annotation)
        return self._pen.write("output_text.annotation.added", place | {"annotation": annotation})

    def _close(self) -> bytes:
        """The newest part is whole."""
        part, place = self._content[-1], self._place(content_index=len(self._content) - 1)
        name, field = ("output_text", "text") if "text" in part else ("refusal", "refusal")
        part[field] = "".join(self._pieces)
        more = _LOGPROBS if name == "output_text" else {}
        whole = self._pen.write(f"{name}.done", place | {field: part[field]} | more)
        return whole + self._pen.write("content_part.done", place | {"part": part})


class OutgoingReasoning(OutgoingItem):
    """What there is to read of it is told as one summary. What proves it stands in the encrypted
    content: bare where it is this format's own and bound to this very item, else packed together
    with its `origin`, so that unsigned reasoning has one too. Only what an upstream of this format
    has not signed itself stays bare of it."""

    __slots__ = ("_labelled", "_line", "_origin", "_pieces", "_redacted", "_signature")

    def __init__(self, pen: Pen, index: int, part: Thinking, ids: Ids, origin: str) -> None:
        label = own_fields(part.extra)
        id = ids.item("rs", label.get("id") or _signed_id(part.signature))
        body: Payload = {"id": id, "type": "reasoning", "status": "in_progress", "summary": []}
        super().__init__(pen, index, body)
        self._labelled = bool(label)
        self._origin = origin
        self._signature = part.signature
        self._redacted = part.redacted
        self._line: Line | None = None
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
        if self._line is not None:
            return self._line.write(piece)
        place = self._place(summary_index=0)
        self._line = self._pen.line("reasoning_summary_text.delta", place)
        opened = place | {"part": {"type": "summary_text", "text": ""}}
        return self._pen.write("reasoning_summary_part.added", opened) + self._line.write(piece)

    def add_texts(self, texts: Sequence[str], spelled: Sequence[bytes]) -> bytes:
        if self._line is None:
            return super().add_texts(texts, spelled)
        self._pieces += texts
        return self._line.write_texts(spelled)

    def end(self) -> bytes:
        if self._line is None:
            return b""
        place, text = self._place(summary_index=0), "".join(self._pieces)
        part = {"type": "summary_text", "text": text}
        self.body["summary"] = [part]
        whole = self._pen.write("reasoning_summary_text.done", place | {"text": text})
        return whole + self._pen.write("reasoning_summary_part.done", place | {"part": part})

    def done(self, status: str) -> bytes:
        if self._signature is not None or not self._labelled:
            self.body["encrypted_content"] = self._encrypted()
        return super().done(status)

    def _encrypted(self) -> str:
        signature = self._signature
        if signature is not None and _signed_id(signature) == self.body["id"]:
            bare = read_text(read_object(signature.data).get("encrypted_content"))
            if bare:
                return bare
        return carrier.pack(signature, self._origin, redacted=self._redacted)


def _own(part: Part) -> Payload:
    return own_fields(part.extra) if isinstance(part, Text) else {}


def _signed_id(signature: Opaque | None) -> str:
    """The item that a signature of this format belongs to."""
    if signature is None or signature.format is not Format.RESPONSES:
        return ""
    return read_text(read_object(signature.data).get("id"))
