"""The events of a background response: one id, numbers without gaps, a status of its own.

An upstream's stream becomes the stream of a response that existed before it: `response.created` and
`response.queued` are the gateway's, and the upstream's own opening is left out.
"""

from __future__ import annotations

from io import StringIO
from typing import Any, Final

import orjson

from gateway.core.events import Usage
from gateway.errors import GatewayError
from gateway.wire.json.edit import edit_object
from gateway.wire.json.fields import Payload
from gateway.wire.responses.usage import render_usage
from gateway.wire.stream.sse import Framer, read_frame, write_frame

QUEUED: Final = "queued"
IN_PROGRESS: Final = "in_progress"
CANCELLED: Final = "cancelled"
FAILED: Final = "failed"
RUNNING: Final = (QUEUED, IN_PROGRESS)

_OPENING: Final = ("response.created", "response.queued")
_TERMINAL: Final = ("response.completed", "response.incomplete", "response.failed")

_TEXT: Final = {"type": "output_text", "annotations": [], "logprobs": []}
_DELTAS: Final[dict[str, tuple[str, str, str, Payload]]] = {
    "response.output_text.delta": ("content", "content_index", "text", _TEXT),
    "response.refusal.delta": ("content", "content_index", "refusal", {"type": "refusal"}),
    "response.reasoning_text.delta": (
        *("content", "content_index", "text"),
        {"type": "reasoning_text"},
    ),
    "response.reasoning_summary_text.delta": (
        *("summary", "summary_index", "text"),
        {"type": "summary_text"},
    ),
}
"""Events with a piece of a text: the item's list of parts, the event's field with the index in it,
the field of the text, and the other fields of the part."""
_MAX_OPEN: Final = 4 * 1024 * 1024
"""Characters that are kept of items before they are complete."""
_TEXT_SIZE: Final = 256
"""Characters that a text counts besides its own."""


class BackgroundEvents:
    """`response` is the response object so far; `ended`: its terminal event was written. `count` is
    the number of events, which is the number of the next one too."""

    __slots__ = ("_framer", "_output", "_own", "count", "ended", "response")

    def __init__(self, opening: Payload, own: Payload) -> None:
        """`opening` is the response before its work begins; `own` are fields of it that no upstream
        decides, its id among them."""
        self._own = own
        self._framer = Framer()
        self._output = _Output()
        self.response = opening | own | {"status": QUEUED}
        self.count = 0
        self.ended = False

    def open(self) -> list[bytes]:
        """The first events."""
        return [self._write(name, {"response": self.response}) for name in _OPENING]

    def rewrite(self, data: bytes) -> list[bytes]:
        """The response's own frames for complete frames of the reply; nothing after its end."""
        text = self._framer.complete_frames(data)
        frames: list[bytes] = []
        start = 0
        while start < len(text) and not self.ended:
            end = self._framer.end_of(text, start)
            if (frame := self._rewrite(text[start:end])) is not None:
                frames.append(frame)
            start = end
        return frames

    def end(self, status: str, error: Payload | None, usage: Usage | None = None) -> list[bytes]:
        """The terminal event of a response that ends otherwise than by its reply; it keeps the
        output so far. A cancelled response has no event type of its own."""
        if self.ended:
            return []
        fields = {"status": status, "error": error, "output": self._output.items()}
        if usage is not None:
            fields |= render_usage(usage)
        self.response = self.response | fields
        self.ended = True
        return [self._write("response.failed", {"response": self.response})]

    def _rewrite(self, raw: bytes) -> bytes | None:
        frame = read_frame(raw)
        try:
            data: Any = orjson.loads(frame.data or b"")
        except orjson.JSONDecodeError:
            return None  # a comment, `[DONE]`, or what no client could read either
        name = data.get("type") if isinstance(data, dict) else None
        if not isinstance(name, str):
            return None
        if name == "error":
            return b"".join(self.end(FAILED, _error_fields(data)))
        changes: Payload = {"sequence_number": self.count}
        if isinstance(response := data.get("response"), dict):
            self.response = changes["response"] = response | self._own
        if name in _OPENING:
            return None
        self._output.add(name, data, len(raw))
        self.ended = name in _TERMINAL
        self.count += 1
        after = data | changes
        edited = None if frame.data is None else edit_object(frame.data, data, after)
        return write_frame(name.encode(), orjson.dumps(after) if edited is None else edited)

    def _write(self, name: str, fields: Payload) -> bytes:
        event = {"type": name, "sequence_number": self.count} | fields
        self.count += 1
        return write_frame(name.encode(), orjson.dumps(event))


class _Output:
    """The items of a reply so far. `_texts` are those of items that are not complete."""

    __slots__ = ("_items", "_room", "_texts")

    def __init__(self) -> None:
        self._items: dict[int, Payload] = {}
        self._texts: dict[int, dict[tuple[str, int], StringIO]] = {}
        self._room = _MAX_OPEN

    def add(self, name: str, event: Payload, size: int) -> None:
        """An event of `size` bytes. An upstream may have sent anything."""
        index, item = event.get("output_index"), event.get("item")
        if not isinstance(index, int):
            return
        if name in _DELTAS:
            self._add_text(name, event, self._texts.get(index))
        elif name == "response.output_item.done" and isinstance(item, dict):
            self._items[index] = item
            self._texts.pop(index, None)
        elif name == "response.output_item.added" and isinstance(item, dict) and size < self._room:
            self._room -= size
            self._items[index] = item
            self._texts[index] = {}

    def _add_text(
        self, name: str, event: Payload, texts: dict[tuple[str, int], StringIO] | None
    ) -> None:
        number, delta = event.get(_DELTAS[name][1]), event.get("delta")
        if texts is None or not isinstance(number, int) or not isinstance(delta, str):
            return
        key = name, number
        size = len(delta) if key in texts else len(delta) + _TEXT_SIZE
        if size < self._room:
            self._room -= size
            texts.setdefault(key, StringIO()).write(delta)

    def items(self) -> list[Payload]:
        """Returns the items in their order: those that are complete, and of the others those that
        have a text."""
        found: list[Payload] = []
        for index in sorted(self._items):
            item, texts = self._items[index], self._texts.get(index)
            if texts is None:
                found.append(item)
            elif texts:
                found.append(item | _parts(texts) | {"status": "incomplete"})
        return found


def _parts(texts: dict[tuple[str, int], StringIO]) -> Payload:
    """Content and summary of an item."""
    parts: dict[str, list[Payload]] = {}
    for name, number in sorted(texts, key=lambda key: key[1]):
        holder, _, field, other = _DELTAS[name]
        text = texts[name, number].getvalue()
        parts.setdefault(holder, []).append(other | {field: text})
    return parts


def event_number(frame: bytes) -> int:
    """The number of an event that was written here."""
    return int(orjson.loads(read_frame(frame).data or b"")["sequence_number"])


def failed_event(response: Payload, number: int) -> bytes:
    """The terminal event of a response that has failed, under any number."""
    event = {"type": "response.failed", "sequence_number": number, "response": response}
    return write_frame(b"response.failed", orjson.dumps(event))


def error_fields(error: GatewayError) -> Payload:
    """An error as the response object has it."""
    return {"code": error.code or error.type, "message": error.message}


def _error_fields(data: Payload) -> Payload:
    """Returns the error's fields of an upstream's `error` event, in either of its forms."""
    nested = data.get("error")
    fields = nested if isinstance(nested, dict) else data
    code, message = fields.get("code"), fields.get("message")
    return {
        "code": code if isinstance(code, str) else "server_error",
        "message": message if isinstance(message, str) else "the upstream reported an error",
    }
