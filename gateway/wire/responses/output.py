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
    ProviderData,
    UnknownPart,
    Part,
    Refusal,
    ServerToolCall,
    ServerToolResult,
    Text,
    Thinking,
    ToolCall,
)
from gateway.wire.assembly import EventBuilder
from gateway.wire.fields import Payload
from gateway.wire.lenient import lenient_object, lenient_objects, lenient_str, dump_json
from gateway.wire.responses.arrivals import (
    CALLS,
    CUSTOM_CALL,
    FUNCTION_CALL,
    MESSAGE,
    REASONING,
    ItemTracker,
    OutputItem,
)
from gateway.wire.responses.citations import parse_citation
from gateway.wire.responses.parts import with_item_metadata, parse_tool_call, parse_signature, reasoning_without_text

_EMPTY_TEXT: Final = Text()
_EMPTY_REFUSAL: Final = Refusal()
_EMPTY_THINKING: Final = Thinking()
_MESSAGE_PARTS: Final[dict[str, tuple[Part, str]]] = {
    "output_text": (_EMPTY_TEXT, "text"),
    "refusal": (_EMPTY_REFUSAL, "refusal"),
}
"""The parts of message items: how they open, and the field with their text."""
_DEFERRED_PREFIXES: Final = (
    "response.content_part.",
    "response.output_text.",
    "response.refusal.",
    "response.reasoning_",
)


class OutputDecoder:
    """`refused`: the model declined in words."""

    __slots__ = ("_tracker", "_builder", "_deferred", "refused")

    def __init__(self, assembly: EventBuilder) -> None:
        self._builder = assembly
        self._tracker = ItemTracker()
        self._deferred: list[tuple[str, Payload]] = []
        self.refused = False

    def handle(self, kind: str, data: Payload) -> bool:
        """False for an event that is not about the output."""
        if (tell := self._HANDLERS.get(kind)) is None:
            return False
        if self._builder.tool_call_open() and _is_deferred(kind, data):
            self._deferred.append((kind, data))
            return True
        tell(self, data)
        if self._deferred and not self._builder.tool_call_open():
            self._replay_deferred()
        return True

    def finish(self, items: Any) -> None:
        """Tells what no event has told of the items of the finished response."""
        self._builder.close_all()
        self._replay_deferred()
        given = lenient_objects(items)
        for item, whole in zip(self._tracker.match_output(given), given, strict=True):
            self._finish_item(item, whole)

    def _replay_deferred(self) -> None:
        waiting, self._deferred = self._deferred, []
        for kind, data in waiting:
            self._HANDLERS[kind](self, data)

    def _on_item_added(self, data: Payload) -> None:
        given = lenient_object(data.get("item"))
        item = self._tracker.on_added(data, given)
        item.update_metadata(given)
        if item.kind in CALLS and given.get("name"):
            self._open_call(item, given)

    def _on_item_done(self, data: Payload) -> None:
        given = lenient_object(data.get("item"))
        self._finish_item(self._tracker.on_done(data, given), given)

    def _finish_item(self, item: OutputItem, given: Payload) -> None:
        """Tells what no frame has told yet of an item that is given whole."""
        if item.done:
            return
        item.update_metadata(given)
        if item.kind == MESSAGE:
            for index, part in enumerate(lenient_objects(given.get("content"))):
                self._finish_part(item, index, part)
        elif item.kind == REASONING:
            self._finish_reasoning(item, given)
        elif item.kind in CALLS:
            field = "arguments" if item.kind == FUNCTION_CALL else "input"
            self._finish_call(item, given, given.get(field))
        elif item.kind:
            self._add_complete_item(item, given)
        item.done = True

    # messages: texts and refusals

    def _on_part_added(self, data: Payload) -> None:
        part = lenient_object(data.get("part"))
        if opening := _MESSAGE_PARTS.get(lenient_str(part.get("type"))):
            item = self._tracker.for_event(data, MESSAGE)
            index = _index(data, "content_index")
            if not item.done and not item.progress(index).done:
                self._open_text(item, index, opening[0])

    def _on_part_done(self, data: Payload) -> None:
        part = lenient_object(data.get("part"))
        if lenient_str(part.get("type")) in _MESSAGE_PARTS:
            item = self._tracker.for_event(data, MESSAGE)
            self._finish_part(item, _index(data, "content_index"), part)

    def _on_text_delta(self, data: Payload) -> None:
        self._add_text(data, _EMPTY_TEXT, data.get("delta"))

    def _on_refusal_delta(self, data: Payload) -> None:
        self._add_text(data, _EMPTY_REFUSAL, data.get("delta"))

    def _on_text_done(self, data: Payload) -> None:
        self._add_text(data, _EMPTY_TEXT, data.get("text"), is_final_text=True)

    def _on_refusal_done(self, data: Payload) -> None:
        self._add_text(data, _EMPTY_REFUSAL, data.get("refusal"), is_final_text=True)

    def _on_annotation(self, data: Payload) -> None:
        item = self._tracker.for_event(data, MESSAGE)
        index = _index(data, "content_index")
        if isinstance(self._builder.open_part((item.number, index)), Text):
            item.progress(index).citations_emitted += 1
            citation = parse_citation(lenient_object(data.get("annotation")))
            self._builder.add((item.number, index), citation)

    def _add_text(self, data: Payload, opening: Part, text: Any, *, is_final_text: bool = False) -> None:
        """`late`: the text is the whole one, and news only if no delta told it."""
        if not isinstance(text, str) or not text:
            return
        item = self._tracker.for_event(data, MESSAGE)
        index = _index(data, "content_index")
        telling = item.progress(index)
        if item.done or telling.done or (is_final_text and telling.emitted):
            return
        self._open_text(item, index, opening)
        self._builder.add((item.number, index), text)
        telling.emitted = True

    def _open_text(self, item: OutputItem, index: int, opening: Part) -> None:
        key = (item.number, index)
        if type(self._builder.open_part(key)) is not type(opening):
            self.refused = self.refused or opening is _EMPTY_REFUSAL
            self._builder.open(key, with_item_metadata(opening, item))

    def _finish_part(self, item: OutputItem, index: int, part: Payload) -> None:
        kind = lenient_str(part.get("type"))
        telling = item.progress(index)
        if telling.done or kind not in _MESSAGE_PARTS:
            return
        telling.done = True
        opening, field = _MESSAGE_PARTS[kind]
        key = (item.number, index)
        if not telling.emitted:
            self._open_text(item, index, opening)
            self._builder.add(key, lenient_str(part.get(field)))
        if isinstance(self._builder.open_part(key), Text):
            for annotation in lenient_objects(part.get("annotations"))[telling.citations_emitted :]:
                self._builder.add(key, parse_citation(annotation))
        self._builder.close(key)

    # reasoning

    def _on_summary_delta(self, data: Payload) -> None:
        self._on_reasoning(data, "summary", data.get("delta"))

    def _on_summary_done(self, data: Payload) -> None:
        self._on_reasoning(data, "summary", data.get("text"), is_final_text=True)

    def _on_reasoning_delta(self, data: Payload) -> None:
        self._on_reasoning(data, "content", data.get("delta"))

    def _on_reasoning_done(self, data: Payload) -> None:
        self._on_reasoning(data, "content", data.get("text"), is_final_text=True)

    def _on_reasoning(self, data: Payload, source: str, text: Any, *, is_final_text: bool = False) -> None:
        item = self._tracker.for_event(data, REASONING)
        segment = _index(data, f"{source}_index")
        if not (is_final_text and segment in item.segments):
            self._add_reasoning(item, source, segment, text)

    def _add_reasoning(self, item: OutputItem, source: str, segment: int, text: Any) -> None:
        """Of summary and raw reasoning only one is told: the one that comes first. The segments
        of either are joined by a blank line."""
        item.source = item.source or source
        if item.done or source != item.source or not isinstance(text, str) or not text:
            return
        key = (item.number, 0)
        if not isinstance(self._builder.open_part(key), Thinking):
            self._builder.open(key, with_item_metadata(_EMPTY_THINKING, item))
        if item.segments and segment not in item.segments:
            self._builder.add(key, "\n\n")
        item.segments.add(segment)
        self._builder.add(key, text)

    def _finish_reasoning(self, item: OutputItem, given: Payload) -> None:
        texts = [lenient_str(part.get("text")) for part in lenient_objects(given.get("summary"))]
        source = "summary" if any(texts) else "content"
        if source == "content":
            texts = [lenient_str(part.get("text")) for part in lenient_objects(given.get("content"))]
        for segment, text in enumerate(texts):
            if segment not in item.segments:
                self._add_reasoning(item, source, segment, text)
        key = (item.number, 0)
        signature = parse_signature(given)
        if not item.segments:
            self._builder.open(key, reasoning_without_text(given, signature))
        elif signature and isinstance(self._builder.open_part(key), Thinking):
            self._builder.add(key, Signature(signature))
        self._builder.close(key)

    # calls

    def _on_arguments_delta(self, data: Payload) -> None:
        self._add_arguments(self._tracker.for_event(data, FUNCTION_CALL), data.get("delta"))

    def _on_input_delta(self, data: Payload) -> None:
        self._add_arguments(self._tracker.for_event(data, CUSTOM_CALL), data.get("delta"))

    def _on_arguments_done(self, data: Payload) -> None:
        item = self._tracker.for_event(data, FUNCTION_CALL)
        if not item.progress().emitted:
            self._add_arguments(item, data.get("arguments"))

    def _on_input_done(self, data: Payload) -> None:
        item = self._tracker.for_event(data, CUSTOM_CALL)
        if not item.progress().emitted:
            self._add_arguments(item, data.get("input"))

    def _add_arguments(self, item: OutputItem, piece: Any) -> None:
        if isinstance(self._builder.open_part((item.number, 0)), ToolCall) and lenient_str(piece):
            self._builder.add((item.number, 0), piece)
            item.progress().emitted = True

    def _open_call(self, item: OutputItem, given: Payload) -> None:
        if not item.done and self._builder.open_part((item.number, 0)) is None:
            unsaid = "{}" if item.kind == FUNCTION_CALL else ""
            self._builder.open((item.number, 0), parse_tool_call(given), unsaid)

    def _finish_call(self, item: OutputItem, given: Payload, text: Any) -> None:
        telling = item.progress()
        if not telling.emitted:
            self._open_call(item, given)
            self._add_arguments(item, text)
        self._builder.close((item.number, 0))

    # everything else

    def _add_complete_item(self, item: OutputItem, given: Payload) -> None:
        key = (item.number, 0)
        pocket = ProviderData(Format.RESPONSES, given)
        if item.kind != "web_search_call":
            self._builder.open(key, UnknownPart(item.kind, pocket))
        else:
            call_id = lenient_str(given.get("id"))
            self._builder.open(key, ServerToolCall(call_id, "web_search", extra=pocket))
            self._builder.add(key, dump_json(lenient_object(given.get("action"))))
            self._builder.open(key, ServerToolResult(call_id, "web_search", pocket))
        self._builder.close(key)

    _HANDLERS: ClassVar[dict[str, Callable[[OutputDecoder, Payload], None]]] = {
        "response.output_item.added": _on_item_added,
        "response.output_item.done": _on_item_done,
        "response.content_part.added": _on_part_added,
        "response.content_part.done": _on_part_done,
        "response.output_text.delta": _on_text_delta,
        "response.output_text.done": _on_text_done,
        "response.output_text.annotation.added": _on_annotation,
        "response.refusal.delta": _on_refusal_delta,
        "response.refusal.done": _on_refusal_done,
        "response.reasoning_summary_text.delta": _on_summary_delta,
        "response.reasoning_summary_text.done": _on_summary_done,
        "response.reasoning_text.delta": _on_reasoning_delta,
        "response.reasoning_text.done": _on_reasoning_done,
        "response.function_call_arguments.delta": _on_arguments_delta,
        "response.function_call_arguments.done": _on_arguments_done,
        "response.custom_tool_call_input.delta": _on_input_delta,
        "response.custom_tool_call_input.done": _on_input_done,
    }


def _is_deferred(kind: str, data: Payload) -> bool:
    """Whether a frame tells something of an item that is no call."""
    if kind == "response.output_item.done":
        return lenient_object(data.get("item")).get("type") not in CALLS
    return kind.startswith(_DEFERRED_PREFIXES)


def _index(data: Payload, name: str) -> int:
    value = data.get(name)
    return value if isinstance(value, int) else 0
