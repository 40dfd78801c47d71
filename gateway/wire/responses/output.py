"""Tells the output of an arriving response as parts. It must not know the response around it.

Items may interleave, and several frames tell the same text (deltas, three kinds of `done`, the
terminal event): each text is told once, by whichever frame has it first. While tool calls are open
nothing else may be, so frames about other items wait until the calls are complete.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Final

from gateway.core.events import Signature
from gateway.core.formats import Format
from gateway.core.parts import (
    Opaque,
    OpaquePart,
    Part,
    Refusal,
    ServerToolCall,
    ServerToolResult,
    Text,
    Thinking,
    ToolCall,
)
from gateway.wire.assembly import Assembly
from gateway.wire.fields import Payload
from gateway.wire.lenient import read_object, read_objects, read_text, write_json
from gateway.wire.responses.arrivals import (
    CALLS,
    CUSTOM,
    FUNCTION,
    MESSAGE,
    REASONING,
    Arrivals,
    Item,
)
from gateway.wire.responses.citations import parse_citation
from gateway.wire.responses.parts import labelled, parse_call, parse_signature, silent_reasoning

_TEXT: Final = Text()
_REFUSAL: Final = Refusal()
_THINKING: Final = Thinking()
_OPENINGS: Final[dict[str, tuple[Part, str]]] = {
    "output_text": (_TEXT, "text"),
    "refusal": (_REFUSAL, "refusal"),
}
"""The parts of message items: how they open, and the field with their text."""
_OF_OTHER_ITEMS: Final = (
    "response.content_part.",
    "response.output_text.",
    "response.refusal.",
    "response.reasoning_",
)


class Output:
    """`refused`: the model declined in words."""

    __slots__ = ("_arrivals", "_assembly", "_waiting", "refused")

    def __init__(self, assembly: Assembly) -> None:
        self._assembly = assembly
        self._arrivals = Arrivals()
        self._waiting: list[tuple[str, Payload]] = []
        self.refused = False

    def tell(self, kind: str, data: Payload) -> bool:
        """False for an event that is not about the output."""
        if (tell := self._EVENTS.get(kind)) is None:
            return False
        if self._assembly.calling() and _must_wait(kind, data):
            self._waiting.append((kind, data))
            return True
        tell(self, data)
        if self._waiting and not self._assembly.calling():
            self._go_on()
        return True

    def finish(self, items: Any) -> None:
        """Tells what no event has told of the items of the finished response."""
        self._assembly.close_all()
        self._go_on()
        given = read_objects(items)
        for item, whole in zip(self._arrivals.listed(given), given, strict=True):
            self._complete(item, whole)

    def _go_on(self) -> None:
        waiting, self._waiting = self._waiting, []
        for kind, data in waiting:
            self._EVENTS[kind](self, data)

    def _item_added(self, data: Payload) -> None:
        given = read_object(data.get("item"))
        item = self._arrivals.added(data, given)
        item.name(given)
        if item.kind in CALLS and given.get("name"):
            self._open_call(item, given)

    def _item_done(self, data: Payload) -> None:
        given = read_object(data.get("item"))
        self._complete(self._arrivals.completed(data, given), given)

    def _complete(self, item: Item, given: Payload) -> None:
        """Tells what no frame has told yet of an item that is given whole."""
        if item.done:
            return
        item.name(given)
        if item.kind == MESSAGE:
            for index, part in enumerate(read_objects(given.get("content"))):
                self._finish_part(item, index, part)
        elif item.kind == REASONING:
            self._finish_reasoning(item, given)
        elif item.kind in CALLS:
            field = "arguments" if item.kind == FUNCTION else "input"
            self._finish_call(item, given, given.get(field))
        elif item.kind:
            self._tell_whole(item, given)
        item.done = True

    # messages: texts and refusals

    def _part_added(self, data: Payload) -> None:
        part = read_object(data.get("part"))
        if opening := _OPENINGS.get(read_text(part.get("type"))):
            item = self._arrivals.named(data, MESSAGE)
            index = _index(data, "content_index")
            if not item.done and not item.telling(index).done:
                self._open_text(item, index, opening[0])

    def _part_done(self, data: Payload) -> None:
        part = read_object(data.get("part"))
        if read_text(part.get("type")) in _OPENINGS:
            item = self._arrivals.named(data, MESSAGE)
            self._finish_part(item, _index(data, "content_index"), part)

    def _text_delta(self, data: Payload) -> None:
        self._grow(data, _TEXT, data.get("delta"))

    def _refusal_delta(self, data: Payload) -> None:
        self._grow(data, _REFUSAL, data.get("delta"))

    def _text_done(self, data: Payload) -> None:
        self._grow(data, _TEXT, data.get("text"), late=True)

    def _refusal_done(self, data: Payload) -> None:
        self._grow(data, _REFUSAL, data.get("refusal"), late=True)

    def _annotation(self, data: Payload) -> None:
        item = self._arrivals.named(data, MESSAGE)
        index = _index(data, "content_index")
        if isinstance(self._assembly.part((item.number, index)), Text):
            item.telling(index).cited += 1
            citation = parse_citation(read_object(data.get("annotation")))
            self._assembly.add((item.number, index), citation)

    def _grow(self, data: Payload, opening: Part, text: Any, *, late: bool = False) -> None:
        """`late`: the text is the whole one, and news only if no delta told it."""
        if not isinstance(text, str) or not text:
            return
        item = self._arrivals.named(data, MESSAGE)
        index = _index(data, "content_index")
        telling = item.telling(index)
        if item.done or telling.done or (late and telling.spoken):
            return
        self._open_text(item, index, opening)
        self._assembly.add((item.number, index), text)
        telling.spoken = True

    def _open_text(self, item: Item, index: int, opening: Part) -> None:
        key = (item.number, index)
        if type(self._assembly.part(key)) is not type(opening):
            self.refused = self.refused or opening is _REFUSAL
            self._assembly.open(key, labelled(opening, item))

    def _finish_part(self, item: Item, index: int, part: Payload) -> None:
        kind = read_text(part.get("type"))
        telling = item.telling(index)
        if telling.done or kind not in _OPENINGS:
            return
        telling.done = True
        opening, field = _OPENINGS[kind]
        key = (item.number, index)
        if not telling.spoken:
            self._open_text(item, index, opening)
            self._assembly.add(key, read_text(part.get(field)))
        if isinstance(self._assembly.part(key), Text):
            for annotation in read_objects(part.get("annotations"))[telling.cited :]:
                self._assembly.add(key, parse_citation(annotation))
        self._assembly.close(key)

    # reasoning

    def _summary_delta(self, data: Payload) -> None:
        self._think(data, "summary", data.get("delta"))

    def _summary_done(self, data: Payload) -> None:
        self._think(data, "summary", data.get("text"), late=True)

    def _reasoning_delta(self, data: Payload) -> None:
        self._think(data, "content", data.get("delta"))

    def _reasoning_done(self, data: Payload) -> None:
        self._think(data, "content", data.get("text"), late=True)

    def _think(self, data: Payload, source: str, text: Any, *, late: bool = False) -> None:
        item = self._arrivals.named(data, REASONING)
        segment = _index(data, f"{source}_index")
        if not (late and segment in item.segments):
            self._reason(item, source, segment, text)

    def _reason(self, item: Item, source: str, segment: int, text: Any) -> None:
        """Of summary and raw reasoning only one is told: the one that comes first. The segments
        of either are joined by a blank line."""
        item.source = item.source or source
        if item.done or source != item.source or not isinstance(text, str) or not text:
            return
        key = (item.number, 0)
        if not isinstance(self._assembly.part(key), Thinking):
            self._assembly.open(key, labelled(_THINKING, item))
        if item.segments and segment not in item.segments:
            self._assembly.add(key, "\n\n")
        item.segments.add(segment)
        self._assembly.add(key, text)

    def _finish_reasoning(self, item: Item, given: Payload) -> None:
        texts = [read_text(part.get("text")) for part in read_objects(given.get("summary"))]
        source = "summary" if any(texts) else "content"
        if source == "content":
            texts = [read_text(part.get("text")) for part in read_objects(given.get("content"))]
        for segment, text in enumerate(texts):
            if segment not in item.segments:
                self._reason(item, source, segment, text)
        key = (item.number, 0)
        signature = parse_signature(given)
        if not item.segments:
            self._assembly.open(key, silent_reasoning(given, signature))
        elif signature and isinstance(self._assembly.part(key), Thinking):
            self._assembly.add(key, Signature(signature))
        self._assembly.close(key)

    # calls

    def _arguments_delta(self, data: Payload) -> None:
        self._call_with(self._arrivals.named(data, FUNCTION), data.get("delta"))

    def _input_delta(self, data: Payload) -> None:
        self._call_with(self._arrivals.named(data, CUSTOM), data.get("delta"))

    def _arguments_done(self, data: Payload) -> None:
        item = self._arrivals.named(data, FUNCTION)
        if not item.telling().spoken:
            self._call_with(item, data.get("arguments"))

    def _input_done(self, data: Payload) -> None:
        item = self._arrivals.named(data, CUSTOM)
        if not item.telling().spoken:
            self._call_with(item, data.get("input"))

    def _call_with(self, item: Item, piece: Any) -> None:
        if isinstance(self._assembly.part((item.number, 0)), ToolCall) and read_text(piece):
            self._assembly.add((item.number, 0), piece)
            item.telling().spoken = True

    def _open_call(self, item: Item, given: Payload) -> None:
        if not item.done and self._assembly.part((item.number, 0)) is None:
            unsaid = "{}" if item.kind == FUNCTION else ""
            self._assembly.open((item.number, 0), parse_call(given), unsaid)

    def _finish_call(self, item: Item, given: Payload, text: Any) -> None:
        telling = item.telling()
        if not telling.spoken:
            self._open_call(item, given)
            self._call_with(item, text)
        self._assembly.close((item.number, 0))

    # everything else

    def _tell_whole(self, item: Item, given: Payload) -> None:
        key = (item.number, 0)
        pocket = Opaque(Format.RESPONSES, given)
        if item.kind != "web_search_call":
            self._assembly.open(key, OpaquePart(item.kind, pocket))
        else:
            call_id = read_text(given.get("id"))
            self._assembly.open(key, ServerToolCall(call_id, "web_search", extra=pocket))
            self._assembly.add(key, write_json(read_object(given.get("action"))))
            self._assembly.open(key, ServerToolResult(call_id, "web_search", pocket))
        self._assembly.close(key)

    _EVENTS: ClassVar[dict[str, Callable[[Output, Payload], None]]] = {
        "response.output_item.added": _item_added,
        "response.output_item.done": _item_done,
        "response.content_part.added": _part_added,
        "response.content_part.done": _part_done,
        "response.output_text.delta": _text_delta,
        "response.output_text.done": _text_done,
        "response.output_text.annotation.added": _annotation,
        "response.refusal.delta": _refusal_delta,
        "response.refusal.done": _refusal_done,
        "response.reasoning_summary_text.delta": _summary_delta,
        "response.reasoning_summary_text.done": _summary_done,
        "response.reasoning_text.delta": _reasoning_delta,
        "response.reasoning_text.done": _reasoning_done,
        "response.function_call_arguments.delta": _arguments_delta,
        "response.function_call_arguments.done": _arguments_done,
        "response.custom_tool_call_input.delta": _input_delta,
        "response.custom_tool_call_input.done": _input_done,
    }


def _must_wait(kind: str, data: Payload) -> bool:
    """Whether a frame tells something of an item that is no call."""
    if kind == "response.output_item.done":
        return read_object(data.get("item")).get("type") not in CALLS
    return kind.startswith(_OF_OTHER_ITEMS)


def _index(data: Payload, name: str) -> int:
    value = data.get(name)
    return value if isinstance(value, int) else 0
