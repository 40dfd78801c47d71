"""The output items of an arriving response: which of them a frame speaks of, and how much of each
was told already. It must not know events.

Upstreams differ in how they name an item: by `output_index`, by `item_id`, by both, by an id that
changes from frame to frame, or not at all.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from gateway.wire.fields import Payload
from gateway.wire.lenient import read_text

MESSAGE: Final = "message"
REASONING: Final = "reasoning"
FUNCTION: Final = "function_call"
CUSTOM: Final = "custom_tool_call"
CALLS: Final = (FUNCTION, CUSTOM)


@dataclass(slots=True)
class Telling:
    """How much of a text has become events. `cited` counts citations."""

    spoken: bool = False
    cited: int = 0
    done: bool = False


@dataclass(slots=True)
class Item:
    """One output item; `number` counts items as they arrived. For reasoning, `source` says which
    of its two texts is told (`summary`, `content`) and `segments` which pieces of it were."""

    number: int
    kind: str
    done: bool = False
    texts: dict[int, Telling] = field(default_factory=dict)
    source: str | None = None
    segments: set[int] = field(default_factory=set)

    def telling(self, index: int = 0) -> Telling:
        return self.texts.setdefault(index, Telling())


class Arrivals:
    __slots__ = ("_by_id", "_by_index", "_items")

    def __init__(self) -> None:
        self._items: list[Item] = []
        self._by_index: dict[int, Item] = {}
        self._by_id: dict[str, Item] = {}

    def named(self, data: Payload, kind: str) -> Item:
        """The item of a frame about the inside of an item; a new one of that kind if there is
        none."""
        index, item_id = data.get("output_index"), data.get("item_id")
        if isinstance(index, int):
            return self._by_index.get(index) or self._add(kind, index, item_id)
        if isinstance(item_id, str) and (known := self._by_id.get(item_id)):
            return known
        newest = self._items[-1] if self._items else None
        if newest and newest.kind == kind and not newest.done:
            return newest
        return self._add(kind, None, item_id)

    def added(self, data: Payload, item: Payload) -> Item:
        """The item that a frame announces."""
        kind = read_text(item.get("type"))
        return self._known(data, item) or self._add(kind, data.get("output_index"), item.get("id"))

    def completed(self, data: Payload, item: Payload) -> Item:
        """The item that a frame gives whole: the oldest unfinished one of its kind, if the frame
        does not say which."""
        known = self._known(data, item)
        if known is None and not isinstance(data.get("output_index"), int):
            kind = item.get("type")
            waiting = (one for one in self._items if one.kind == kind and not one.done)
            known = next(waiting, None)
        return known or self.added(data, item)

    def listed(self, position: int, item: Payload) -> Item:
        """The item that stands at a position of the finished reply's `output`."""
        item_id = item.get("id")
        if isinstance(item_id, str) and (known := self._by_id.get(item_id)):
            return known
        kind = read_text(item.get("type"))
        known = self._by_index.get(position)
        if known is None and position < len(self._items):
            known = self._items[position]
        return known if known and known.kind == kind else self._add(kind, None, item_id)

    def _known(self, data: Payload, item: Payload) -> Item | None:
        index, item_id = data.get("output_index"), item.get("id")
        if isinstance(index, int):
            return self._by_index.get(index)
        return self._by_id.get(item_id) if isinstance(item_id, str) else None

    def _add(self, kind: str, index: object, item_id: object) -> Item:
        item = Item(len(self._items), kind)
        self._items.append(item)
        if isinstance(index, int):
            self._by_index[index] = item
        if isinstance(item_id, str) and item_id:
            self._by_id[item_id] = item
        return item
