"""The output items of an arriving response: which of them a frame speaks of, and how much of each
was told already. It must not know events.

Upstreams differ in how they name an item: by `output_index`, by `item_id`, by both, by an id that
changes from frame to frame, or not at all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from gateway.wire.fields import Payload
from gateway.wire.lenient import lenient_str

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
