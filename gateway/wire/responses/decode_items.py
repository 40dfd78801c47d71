"""The output items of an arriving response: which of them a frame speaks of, and how much of each
was told already. It must not know events.

Upstreams differ in how they name an item: by `output_index`, by `item_id`, by both, by an id that
changes from frame to frame, or not at all.

Makes parts of single output items. It must not know how the items arrive.

Tells the output of an arriving response as parts. It must not know the response around it.

Items may interleave, and several frames tell the same text (deltas, three kinds of `done`, the
terminal event): each text is told once, by whichever frame has it first. While tool calls are open
nothing else may be, so frames about other items wait until the calls are complete.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from gateway.core.events import Signature
from gateway.core.formats import Format
from gateway.core.parts import (
    CallKind,
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
from gateway.core.value import replace
from gateway.wire.event_builder import EventBuilder
from gateway.wire.json_fields import (
    Payload,
    dump_json,
    lenient_object,
    lenient_objects,
    lenient_str,
)
from gateway.wire.responses.content import parse_citation

MESSAGE: Final = "message"
REASONING: Final = "reasoning"
FUNCTION_CALL: Final = "function_call"
CUSTOM_CALL: Final = "custom_tool_call"
CALLS: Final = (FUNCTION_CALL, CUSTOM_CALL)


@dataclass(slots=True)
class TextProgress:
    """How much of a text has become events. `cited` counts citations."""

    emitted: bool = False
    citations_emitted: int = 0
    done: bool = False


@dataclass(slots=True)
class OutputItem:
    """One output item; `number` counts items as they arrived, `label` is what its parts are to be
    known by. For reasoning, `source` says which of its two texts is told (`summary`, `content`) and
    `segments` which pieces of it were."""

    number: int
    kind: str
    metadata: Payload = field(default_factory=dict)
    done: bool = False
    texts: dict[int, TextProgress] = field(default_factory=dict)
    source: str | None = None
    segments: set[int] = field(default_factory=set)

    def progress(self, index: int = 0) -> TextProgress:
        return self.texts.setdefault(index, TextProgress())

    def update_metadata(self, given: Payload) -> None:
        """Models say in which phase of their work they speak, and want to be told so again."""
        if phase := lenient_str(given.get("phase")):
            self.metadata["phase"] = phase


class ItemTracker:
    __slots__ = ("_by_id", "_by_index", "_items")

    def __init__(self) -> None:
        self._items: list[OutputItem] = []
        self._by_index: dict[int, OutputItem] = {}
        self._by_id: dict[str, OutputItem] = {}

    def for_event(self, data: Payload, kind: str) -> OutputItem:
        """The item of a frame about the inside of an item; a new one of that kind if there is
        none."""
        index, item_id = data.get("output_index"), data.get("item_id")
        if isinstance(index, int):
            known = self._by_index.get(index)
        else:
            known = self._by_id.get(item_id) if isinstance(item_id, str) else None
            newest = self._items[-1] if self._items else None
            if known is None and newest and not newest.done:
                known = newest
        return known if known and known.kind == kind else self._add(kind, index, item_id)

    def on_added(self, data: Payload, item: Payload) -> OutputItem:
        """The item that a frame announces."""
        kind = lenient_str(item.get("type"))
        return self._find(data, item) or self._add(kind, data.get("output_index"), item.get("id"))

    def on_done(self, data: Payload, item: Payload) -> OutputItem:
        """The item that a frame gives whole: the oldest unfinished one of its kind, if the frame
        does not say which."""
        known = self._find(data, item)
        if known is None and not isinstance(data.get("output_index"), int):
            kind = item.get("type")
            waiting = (one for one in self._items if one.kind == kind and not one.done)
            known = next(waiting, None)
        return known or self.on_added(data, item)

    def match_output(self, items: Sequence[Payload]) -> list[OutputItem]:
        """The items of the finished reply's `output`. Where ids do not tell, the second message
        listed is the second that arrived: upstreams leave out whole kinds from that list."""
        arrived: dict[str, list[OutputItem]] = {}
        for item in self._items:
            arrived.setdefault(item.kind, []).append(item)
        places: Counter[str] = Counter()
        found: list[OutputItem] = []
        for given in items:
            item_id, kind = given.get("id"), lenient_str(given.get("type"))
            same = arrived.get(kind, [])[places[kind] : places[kind] + 1]
            places[kind] += 1
            known = self._by_id.get(item_id) if isinstance(item_id, str) else None
            found.append(known or (same[0] if same else self._add(kind, None, item_id)))
        return found

    def _find(self, data: Payload, item: Payload) -> OutputItem | None:
        index, item_id = data.get("output_index"), item.get("id")
        if isinstance(index, int):
            return self._by_index.get(index)
        return self._by_id.get(item_id) if isinstance(item_id, str) else None

    def _add(self, kind: str, index: object, item_id: object) -> OutputItem:
        item = OutputItem(len(self._items), kind, {"id": item_id} if item_id else {})
        self._items.append(item)
        if isinstance(index, int):
            self._by_index[index] = item
        if isinstance(item_id, str) and item_id:
            self._by_id[item_id] = item
        return item


_CALL_FIELDS: Final = frozenset(
    {"type", "status", "call_id", "name", "namespace", "arguments", "input"}
)


def parse_signature(item: Payload) -> ProviderData | None:
    """What proves a reasoning item to its upstream: the ciphertext, which is bound to the id."""
    if not (content := lenient_str(item.get("encrypted_content"))):
        return None
    data = {"id": item.get("id"), "encrypted_content": content}
    return ProviderData(Format.RESPONSES, data)


def reasoning_without_text(item: Payload, signature: ProviderData | None) -> Part:
    """Reasoning without a word to read."""
    if signature:
        return Thinking(signature=signature, redacted=True)
    return UnknownPart(REASONING, ProviderData(Format.RESPONSES, item))


def parse_tool_call(item: Payload, arguments: str = "") -> ToolCall:
    """`status` is left out: it is another one when the call is complete."""
    more = {name: value for name, value in item.items() if name not in _CALL_FIELDS}
    return ToolCall(
        id=lenient_str(item.get("call_id")) or lenient_str(item.get("id")),
        name=lenient_str(item.get("name")),
        arguments=arguments,
        kind=CallKind.CUSTOM if item.get("type") == CUSTOM_CALL else CallKind.FUNCTION,
        namespace=lenient_str(item.get("namespace")) or None,
        extra=ProviderData(Format.RESPONSES, more) if more else None,
    )


def with_item_metadata(opening: Part, item: OutputItem) -> Part:
    """A part that this format's own encoder knows its item by."""
    if not item.metadata or not isinstance(opening, Text | Thinking):
        return opening
    return replace(opening, extra=ProviderData(Format.RESPONSES, item.metadata))


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

    __slots__ = ("_builder", "_deferred", "_tracker", "refused")

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

    def _add_text(
        self, data: Payload, opening: Part, text: Any, *, is_final_text: bool = False
    ) -> None:
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

    def _on_reasoning(
        self, data: Payload, source: str, text: Any, *, is_final_text: bool = False
    ) -> None:
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
            texts = [
                lenient_str(part.get("text")) for part in lenient_objects(given.get("content"))
            ]
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
