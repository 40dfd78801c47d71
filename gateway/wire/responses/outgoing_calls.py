"""Calls, searches and items of unknown types as they are told to a client. It must not
know texts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import orjson

from gateway.core.parts import (
    CallKind,
    OpaquePart,
    Part,
    ServerToolCall,
    ServerToolResult,
    ToolCall,
)
from gateway.wire.fields import Payload
from gateway.wire.lenient import read_object, read_objects, read_text
from gateway.wire.responses.client_tools import ClientTool
from gateway.wire.responses.ids import Ids
from gateway.wire.responses.outgoing import INCOMPLETE, OutgoingItem, Piece, own_fields
from gateway.wire.responses.pen import Pen

_FUNCTION: Final = ("function_call", "fc", "arguments", "function_call_arguments")
_CUSTOM: Final = ("custom_tool_call", "ctc", "input", "custom_tool_call_input")
_STAGES: Final = ("in_progress", "searching")


class OutgoingCall(OutgoingItem):
    """A call that the client runs: JSON arguments, or the free text of a custom tool."""

    __slots__ = ("_field", "_line", "_pieces", "_told")

    def __init__(self, pen: Pen, index: int, part: ToolCall, ids: Ids) -> None:
        custom = part.kind is CallKind.CUSTOM
        type_, prefix, self._field, self._told = _CUSTOM if custom else _FUNCTION
        own = own_fields(part.extra)
        body: Payload = {
            "id": ids.item(prefix, own.get("id")),
            "type": type_,
            "status": "in_progress",
            "call_id": ids.call(part.id),
            "name": part.name,
        }
        if part.namespace is not None:
            body["namespace"] = part.namespace
        super().__init__(pen, index, own | body | {self._field: ""})
        self._line = pen.line(f"{self._told}.delta", self._place())
        self._pieces: list[str] = []

    def begin(self, part: Part) -> bytes:
        said = part.arguments if isinstance(part, ToolCall) else ""
        return super().begin(part) + (self.add(said) if said else b"")

    def add(self, piece: Piece) -> bytes:
        if type(piece) is not str:
            return b""
        self._pieces.append(piece)
        return self._line.write(piece)

    def end(self) -> bytes:
        """Nobody can parse a function's arguments of no characters."""
        unsaid = b""
        if not self._pieces and self._field == "arguments":
            unsaid = self.add("{}")
        whole = "".join(self._pieces)
        self.body[self._field] = whole
        done = self._place() | {self._field: whole}
        if self._field == "arguments":
            done["name"] = self.body["name"]
        return unsaid + self._pen.write(f"{self._told}.done", done)

    def is_whole(self) -> bool:
        if self._field != "arguments":
            return True
        try:
            orjson.loads(self.body[self._field])
        except orjson.JSONDecodeError:
            return False
        return True


class OutgoingClientCall(OutgoingItem):
    """A call of a tool that the client knows by its type: its arguments have a form of their own,
    so it is told once it is whole."""

    __slots__ = ("_ids", "_pieces", "_tool")

    def __init__(self, pen: Pen, index: int, part: ToolCall, ids: Ids, tool: ClientTool) -> None:
        self._ids = {"id": ids.item(tool.prefix), "call_id": ids.call(part.id)}
        self._tool = tool
        self._pieces = [part.arguments]
        body = self._ids | tool.call_item("") | {"status": "in_progress"}
        super().__init__(pen, index, body)

    def add(self, piece: Piece) -> bytes:
        if isinstance(piece, str):
            self._pieces.append(piece)
        return b""

    def end(self) -> bytes:
        self.body = self._ids | self._tool.call_item("".join(self._pieces))
        return b""


class OutgoingSearch(OutgoingItem):
    """A search of the web that the upstream ran, and what it has found."""

    __slots__ = ("_call_id", "_pieces", "_sources")

    def __init__(self, pen: Pen, index: int, part: ServerToolCall, ids: Ids) -> None:
        own = own_fields(part.extra)
        body = {
            "id": ids.item("ws", own.get("id") or part.id),
            "type": "web_search_call",
            "status": "in_progress",
            "action": {"type": "search", "query": ""},
        }
        super().__init__(pen, index, body)
        self._call_id = part.id
        self._pieces = [part.arguments]
        self._sources: list[str] = []

    def begin(self, part: Part) -> bytes:
        added = super().begin(part)
        stages = [self._pen.write(f"web_search_call.{stage}", self._place()) for stage in _STAGES]
        return added + b"".join(stages)

    def take(self, part: Part) -> bytes | None:
        if not isinstance(part, ServerToolResult) or part.call_id != self._call_id:
            return None
        self._sources += _addresses(part.content.data)
        return b""

    def add(self, piece: Piece) -> bytes:
        if isinstance(piece, str):
            self._pieces.append(piece)
        return b""

    def end(self) -> bytes:
        return b""

    def done(self, status: str) -> bytes:
        self.body["action"] = self._action()
        if status == INCOMPLETE:
            return super().done(status)
        return self._pen.write("web_search_call.completed", self._place()) + super().done(status)

    def _action(self) -> Payload:
        """What was searched for. Upstreams of other formats tell the query alone."""
        try:
            told = read_object(orjson.loads("".join(self._pieces)))
        except orjson.JSONDecodeError:
            told = {}
        if "type" in told:
            return told
        query = read_text(told.get("query"))
        sources = [{"type": "url", "url": address} for address in dict.fromkeys(self._sources)]
        return {"type": "search", "query": query, "queries": [query], "sources": sources}


class OutgoingOther(OutgoingItem):
    """An item that only this format has a word for: whole from the start."""

    __slots__ = ()

    def __init__(self, pen: Pen, index: int, part: OpaquePart, ids: Ids) -> None:
        item = own_fields(part.data)
        prefix = read_text(item.get("id")).partition("_")[0] or "item"
        super().__init__(pen, index, item | {"id": ids.item(prefix, item.get("id"))})

    def add(self, piece: Piece) -> bytes:
        return b""

    def end(self) -> bytes:
        return b""

    def done(self, status: str) -> bytes:
        return self._tell("output_item.done")


def _addresses(found: Any) -> Iterator[str]:
    """The pages that a search has found, as far as its upstream lists them."""
    for entry in read_objects(read_object(found).get("content")):
        if address := read_text(entry.get("url")):
            yield address
