"""Output items of arriving replies to parts: piece by piece from a stream, or complete.

Items may interleave, and several frames carry the same text (deltas, three kinds of `done`, the
terminal event): each text is emitted once, from whichever frame has it first. While tool calls are
open no other part may be, so frames about other items are deferred until the calls are complete.
"""

from __future__ import annotations

from collections import defaultdict, deque
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
from gateway.core.reply import initial_pieces, opening_part
from gateway.core.value import replace
from gateway.wire.json.fields import (
    Payload,
    dump_json,
    lenient_object,
    lenient_objects,
    lenient_str,
)
from gateway.wire.responses.content import parse_citation
from gateway.wire.responses.usage import is_search
from gateway.wire.stream.event_builder import EventBuilder

MESSAGE: Final = "message"
REASONING: Final = "reasoning"
_SEARCH_CALL: Final = "web_search_call"
_FUNCTION: Final = "function_call"
_CUSTOM: Final = "custom_tool_call"
CALLS: Final = {_FUNCTION: "arguments", _CUSTOM: "input"}
"""The types of tool call items, and the field with their arguments."""

_CALL_FIELDS: Final = frozenset(
    {"type", "status", "call_id", "name", "namespace", "arguments", "input"}
)
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


@dataclass(slots=True)
class TextProgress:
    """The part of a text that has been emitted as events."""

    emitted: bool = False
    citations_emitted: int = 0
    done: bool = False


@dataclass(slots=True)
class OutputItem:
    """One output item. `number` counts items in order of arrival; `metadata` goes into the
    `extra` of its parts. For reasoning, `source` is the one of its two texts that is emitted
    (`summary`, `content`), and `segments` are the emitted pieces of it."""

    number: int
    kind: str
    metadata: Payload = field(default_factory=dict)
    done: bool = False
    texts: dict[int, TextProgress] = field(default_factory=dict)
    source: str | None = None
    segments: set[int] = field(default_factory=set)

    def progress(self, index: int = 0) -> TextProgress:
        if (progress := self.texts.get(index)) is None:
            progress = self.texts[index] = TextProgress()
        return progress

    def update_metadata(self, data: Payload) -> None:
        """Models state the phase of their work, and expect it back in the history."""
        if phase := lenient_str(data.get("phase")):
            self.metadata["phase"] = phase

    def add_metadata(self, part: Part) -> Part:
        """`part` with the metadata, by which the encoder recognizes its item."""
        if not self.metadata or not isinstance(part, Text | Thinking):
            return part
        return replace(part, extra=ProviderData(Format.RESPONSES, self.metadata))


class ItemTracker:
    """Finds the item of a frame. Upstreams identify an item by `output_index`, by `item_id`, by
    both, by an id that changes from frame to frame, or not at all."""

    __slots__ = ("_by_id", "_by_index", "_items")

    def __init__(self) -> None:
        self._items: list[OutputItem] = []
        self._by_index: dict[int, OutputItem] = {}
        self._by_id: dict[str, OutputItem] = {}

    def for_event(self, data: Payload, kind: str) -> OutputItem:
        """The item of a frame about a piece of an item; a new one of that kind if there is none."""
        index, item_id = data.get("output_index"), data.get("item_id")
        if isinstance(index, int):
            item = self._by_index.get(index)
        else:
            item = self._find(None, item_id)
            if item is None and self._items and not self._items[-1].done:
                item = self._items[-1]
        return item if item and item.kind == kind else self._add(kind, index, item_id)

    def on_added(self, data: Payload, item: Payload) -> OutputItem:
        """The item that a frame announces."""
        index, item_id, kind = data.get("output_index"), item.get("id"), item.get("type")
        return self._find(index, item_id) or self._add(lenient_str(kind), index, item_id)

    def on_done(self, data: Payload, item: Payload) -> OutputItem:
        """The item that a frame completes: the oldest unfinished one of its type, if the frame does
        not identify it."""
        index, kind = data.get("output_index"), item.get("type")
        if not isinstance(index, int) and self._find(index, item.get("id")) is None:
            for candidate in self._items:
                if candidate.kind == kind and not candidate.done:
                    return candidate
        return self.on_added(data, item)

    def match_output(self, items: Sequence[Payload]) -> list[OutputItem]:
        """The items of the finished reply's `output`. Without matching ids, the second message
        listed is the second that arrived: upstreams omit whole types from that list."""
        arrived: defaultdict[str, deque[OutputItem]] = defaultdict(deque)
        for item in self._items:
            arrived[item.kind].append(item)
        matches: list[OutputItem] = []
        for data in items:
            item_id, kind = data.get("id"), lenient_str(data.get("type"))
            same = arrived[kind].popleft() if arrived[kind] else None
            matches.append(self._find(None, item_id) or same or self._add(kind, None, item_id))
        return matches

    def _find(self, index: object, item_id: object) -> OutputItem | None:
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


class OutputDecoder:
    """`refused`: the model declined to answer. `searches` is the number of web searches."""

    __slots__ = ("_builder", "_deferred", "_tracker", "refused", "searches")

    def __init__(self, builder: EventBuilder) -> None:
        self._builder = builder
        self._tracker = ItemTracker()
        self._deferred: list[tuple[str, Payload]] = []
        self.refused = False
        self.searches = 0

    def handle(self, kind: str, data: Payload) -> bool:
        """False for an event that is not about the output."""
        if (handler := self._HANDLERS.get(kind)) is None:
            return False
        if self._builder.tool_call_open() and _is_deferred(kind, data):
            self._deferred.append((kind, data))
            return True
        handle, arguments = handler
        handle(self, data, *arguments)
        if self._deferred and not self._builder.tool_call_open():
            self._replay_deferred()
        return True

    def finish(self, items: Any) -> None:
        """Emits what no event has carried of the items of the finished response."""
        self._builder.close_all()
        self._replay_deferred()
        output = lenient_objects(items)
        for item, data in zip(self._tracker.match_output(output), output, strict=True):
            self._finish_item(item, data)

    def _replay_deferred(self) -> None:
        deferred, self._deferred = self._deferred, []
        for kind, data in deferred:
            self.handle(kind, data)

    def _on_item_added(self, event: Payload) -> None:
        data = lenient_object(event.get("item"))
        item = self._tracker.on_added(event, data)
        item.update_metadata(data)
        if item.kind in CALLS and data.get("name"):
            self._open_call(item, data)

    def _on_item_done(self, event: Payload) -> None:
        data = lenient_object(event.get("item"))
        self._finish_item(self._tracker.on_done(event, data), data)

    def _finish_item(self, item: OutputItem, data: Payload) -> None:
        """Emits what no frame has carried yet of a complete item."""
        if item.done:
            return
        item.update_metadata(data)
        if item.kind == MESSAGE:
            for index, part in enumerate(lenient_objects(data.get("content"))):
                self._finish_part(item, index, part)
        elif item.kind == REASONING:
            self._finish_reasoning(item, data)
        elif item.kind in CALLS:
            self._finish_call(item, data)
        elif item.kind:
            self._add_complete_item(item, data)
        item.done = True

    # messages: texts and refusals

    def _on_part(self, data: Payload, done: bool) -> None:
        part = lenient_object(data.get("part"))
        if (kind := lenient_str(part.get("type"))) not in _MESSAGE_PARTS:
            return
        item = self._tracker.for_event(data, MESSAGE)
        index = _index(data, "content_index")
        if done:
            self._finish_part(item, index, part)
        elif not item.done and not item.progress(index).done:
            self._open_text(item, index, _MESSAGE_PARTS[kind][0])

    def _on_text(self, data: Payload, opening: Part, field: str) -> None:
        """A delta, or the final text, which counts only if no delta has carried it."""
        text = data.get(field)
        if not isinstance(text, str) or not text:
            return
        item = self._tracker.for_event(data, MESSAGE)
        index = _index(data, "content_index")
        progress = item.progress(index)
        if item.done or progress.done or (field != "delta" and progress.emitted):
            return
        self._open_text(item, index, opening)
        self._builder.add((item.number, index), text)
        progress.emitted = True

    def _on_annotation(self, data: Payload) -> None:
        item = self._tracker.for_event(data, MESSAGE)
        index = _index(data, "content_index")
        if isinstance(self._builder.open_part((item.number, index)), Text):
            item.progress(index).citations_emitted += 1
            citation = parse_citation(lenient_object(data.get("annotation")))
            self._builder.add((item.number, index), citation)

    def _open_text(self, item: OutputItem, index: int, opening: Part) -> None:
        key = (item.number, index)
        if type(self._builder.open_part(key)) is not type(opening):
            self.refused = self.refused or opening is _EMPTY_REFUSAL
            self._builder.open(key, item.add_metadata(opening))

    def _finish_part(self, item: OutputItem, index: int, part: Payload) -> None:
        kind = lenient_str(part.get("type"))
        progress = item.progress(index)
        if progress.done or kind not in _MESSAGE_PARTS:
            return
        progress.done = True
        opening, field = _MESSAGE_PARTS[kind]
        key = (item.number, index)
        if not progress.emitted:
            self._open_text(item, index, opening)
            self._builder.add(key, lenient_str(part.get(field)))
        if isinstance(self._builder.open_part(key), Text):
            annotations = lenient_objects(part.get("annotations"))
            for annotation in annotations[progress.citations_emitted :]:
                self._builder.add(key, parse_citation(annotation))
        self._builder.close(key)

    # reasoning

    def _on_reasoning(self, data: Payload, source: str, field: str) -> None:
        item = self._tracker.for_event(data, REASONING)
        segment = _index(data, f"{source}_index")
        if field == "delta" or segment not in item.segments:
            self._add_reasoning(item, source, segment, data.get(field))

    def _add_reasoning(self, item: OutputItem, source: str, segment: int, text: Any) -> None:
        """Emits summary or raw reasoning, whichever comes first. Segments are joined by a blank
        line."""
        item.source = item.source or source
        if item.done or source != item.source or not isinstance(text, str) or not text:
            return
        key = (item.number, 0)
        self._open_text(item, 0, _EMPTY_THINKING)
        if item.segments and segment not in item.segments:
            self._builder.add(key, "\n\n")
        item.segments.add(segment)
        self._builder.add(key, text)

    def _finish_reasoning(self, item: OutputItem, data: Payload) -> None:
        source, texts = _reasoning_texts(data)
        for segment, text in enumerate(texts):
            if segment not in item.segments:
                self._add_reasoning(item, source, segment, text)
        key = (item.number, 0)
        signature = _parse_signature(data)
        if not item.segments:
            self._builder.open(key, _reasoning_without_text(data, signature))
        elif signature and isinstance(self._builder.open_part(key), Thinking):
            self._builder.add(key, Signature(signature))
        self._builder.close(key)

    # calls

    def _on_arguments(self, data: Payload, kind: str, field: str) -> None:
        item = self._tracker.for_event(data, kind)
        if field == "delta" or not item.progress().emitted:
            self._add_arguments(item, data.get(field))

    def _add_arguments(self, item: OutputItem, text: Any) -> None:
        if isinstance(self._builder.open_part((item.number, 0)), ToolCall) and lenient_str(text):
            self._builder.add((item.number, 0), text)
            item.progress().emitted = True

    def _open_call(self, item: OutputItem, data: Payload) -> None:
        if not item.done and self._builder.open_part((item.number, 0)) is None:
            default = "{}" if item.kind == _FUNCTION else ""
            self._builder.open((item.number, 0), _parse_call(data), default)

    def _finish_call(self, item: OutputItem, data: Payload) -> None:
        if not item.progress().emitted:
            self._open_call(item, data)
            self._add_arguments(item, data.get(CALLS[item.kind]))
        self._builder.close((item.number, 0))

    # everything else

    def _add_complete_item(self, item: OutputItem, data: Payload) -> None:
        self.searches += is_search(data)
        key = (item.number, 0)
        for part in _other_parts(item.kind, data):
            self._builder.open(key, opening_part(part))
            for piece in initial_pieces(part):
                self._builder.add(key, piece)
        self._builder.close(key)

    _HANDLERS: ClassVar[dict[str, tuple[Callable[..., None], tuple[Any, ...]]]] = {
        "response.output_item.added": (_on_item_added, ()),
        "response.output_item.done": (_on_item_done, ()),
        "response.content_part.added": (_on_part, (False,)),
        "response.content_part.done": (_on_part, (True,)),
        "response.output_text.delta": (_on_text, (_EMPTY_TEXT, "delta")),
        "response.output_text.done": (_on_text, (_EMPTY_TEXT, "text")),
        "response.output_text.annotation.added": (_on_annotation, ()),
        "response.refusal.delta": (_on_text, (_EMPTY_REFUSAL, "delta")),
        "response.refusal.done": (_on_text, (_EMPTY_REFUSAL, "refusal")),
        "response.reasoning_summary_text.delta": (_on_reasoning, ("summary", "delta")),
        "response.reasoning_summary_text.done": (_on_reasoning, ("summary", "text")),
        "response.reasoning_text.delta": (_on_reasoning, ("content", "delta")),
        "response.reasoning_text.done": (_on_reasoning, ("content", "text")),
        "response.function_call_arguments.delta": (_on_arguments, (_FUNCTION, "delta")),
        "response.function_call_arguments.done": (_on_arguments, (_FUNCTION, "arguments")),
        "response.custom_tool_call_input.delta": (_on_arguments, (_CUSTOM, "delta")),
        "response.custom_tool_call_input.done": (_on_arguments, (_CUSTOM, "input")),
    }


def parse_output_item(item: Payload) -> Sequence[Part]:
    """The parts of a complete item."""
    kind = lenient_str(item.get("type"))
    if kind == MESSAGE:
        return _parse_message(item)
    if kind == REASONING:
        return (_parse_reasoning(item),)
    if kind in CALLS:
        default = "{}" if kind == _FUNCTION else ""
        return (_parse_call(item, lenient_str(item.get(CALLS[kind])) or default),)
    return _other_parts(kind, item)


def _parse_message(item: Payload) -> list[Part]:
    parts: list[Part] = []
    metadata = _metadata(item)
    for part in lenient_objects(item.get("content")):
        kind = part.get("type")
        if kind == "output_text":
            annotations = lenient_objects(part.get("annotations"))
            citations = tuple([parse_citation(annotation) for annotation in annotations])
            parts.append(Text(lenient_str(part.get("text")), citations, extra=metadata))
        elif kind == "refusal":
            parts.append(Refusal(lenient_str(part.get("refusal"))))
    return parts


def _parse_reasoning(item: Payload) -> Part:
    text = "\n\n".join(filter(None, _reasoning_texts(item)[1]))
    signature = _parse_signature(item)
    if not text:
        return _reasoning_without_text(item, signature)
    return Thinking(text, signature, extra=_metadata(item))


def _parse_call(item: Payload, arguments: str = "") -> ToolCall:
    """`status` is left out: it changes when the call is complete."""
    extra = {name: value for name, value in item.items() if name not in _CALL_FIELDS}
    return ToolCall(
        id=lenient_str(item.get("call_id")) or lenient_str(item.get("id")),
        name=lenient_str(item.get("name")),
        arguments=arguments,
        kind=CallKind.CUSTOM if item.get("type") == _CUSTOM else CallKind.FUNCTION,
        namespace=lenient_str(item.get("namespace")) or None,
        extra=ProviderData(Format.RESPONSES, extra) if extra else None,
    )


def _other_parts(kind: str, item: Payload) -> Sequence[Part]:
    extra = ProviderData(Format.RESPONSES, item)
    if kind != _SEARCH_CALL:
        return (UnknownPart(kind, extra),) if kind else ()
    call_id = lenient_str(item.get("id"))
    action = dump_json(lenient_object(item.get("action")))
    return (
        ServerToolCall(call_id, "web_search", action, extra=extra),
        ServerToolResult(call_id, "web_search", extra),
    )


def _parse_signature(item: Payload) -> ProviderData | None:
    """The proof of a reasoning item: its ciphertext, which is bound to its id."""
    if not (content := lenient_str(item.get("encrypted_content"))):
        return None
    data = {"id": item.get("id"), "encrypted_content": content}
    return ProviderData(Format.RESPONSES, data)


def _reasoning_texts(item: Payload) -> tuple[str, list[str]]:
    """The source and segments of a reasoning text: the summary, else the raw text."""
    texts: list[str] = []
    for source in ("summary", "content"):
        texts = [lenient_str(part.get("text")) for part in lenient_objects(item.get(source))]
        if any(texts):
            return source, texts
    return "content", texts


def _reasoning_without_text(item: Payload, signature: ProviderData | None) -> Part:
    if signature:
        return Thinking(signature=signature, redacted=True)
    return UnknownPart(REASONING, ProviderData(Format.RESPONSES, item))


def _metadata(item: Payload) -> ProviderData | None:
    """See `OutputItem.add_metadata`."""
    metadata: Payload = {"id": item["id"]} if item.get("id") else {}
    if phase := lenient_str(item.get("phase")):
        metadata["phase"] = phase
    return ProviderData(Format.RESPONSES, metadata) if metadata else None


def _is_deferred(kind: str, data: Payload) -> bool:
    """Tells whether a frame is about an item that is not a call."""
    if kind == "response.output_item.done":
        return lenient_str(lenient_object(data.get("item")).get("type")) not in CALLS
    return kind.startswith(_DEFERRED_PREFIXES)


def _index(data: Payload, name: str) -> int:
    value = data.get(name)
    return value if isinstance(value, int) else 0
