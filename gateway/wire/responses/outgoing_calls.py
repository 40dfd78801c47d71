"""Calls, searches and items of unknown types as they are told to a client. It must not
know texts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import orjson

from gateway.core.parts import (
    CallKind,
    UnknownPart,
    Part,
    ServerToolCall,
    ServerToolResult,
    ToolCall,
)
from gateway.wire.fields import Payload
from gateway.wire.lenient import lenient_object, lenient_objects, lenient_str
from gateway.wire.responses.client_tools import ClientTool
from gateway.wire.responses.ids import IdGenerator
from gateway.wire.responses.outgoing import INCOMPLETE, ItemEncoder, Piece, native_fields
from gateway.wire.responses.pen import EventWriter

_FUNCTION_CALL_NAMES: Final = ("function_call", "fc", "arguments", "function_call_arguments")
_CUSTOM_CALL_NAMES: Final = ("custom_tool_call", "ctc", "input", "custom_tool_call_input")
_SEARCH_STAGES: Final = ("in_progress", "searching")


class CallItemEncoder(ItemEncoder):
    """A call that the client runs: JSON arguments, or the free text of a custom tool."""

    __slots__ = ("_field", "_deltas", "_pieces", "_event_name")

    def __init__(self, writer: EventWriter, index: int, part: ToolCall, ids: IdGenerator) -> None:
        custom = part.kind is CallKind.CUSTOM
        type_, prefix, self._field, self._event_name = _CUSTOM_CALL_NAMES if custom else _FUNCTION_CALL_NAMES
        own = native_fields(part.extra)
        body: Payload = {
            "id": ids.item_id(prefix, own.get("id")),
            "type": type_,
            "status": "in_progress",
            "call_id": ids.call_id(part.id),
            "name": part.name,
        }
        if part.namespace is not None:
            body["namespace"] = part.namespace
        super().__init__(writer, index, own | body | {self._field: ""})
        self._deltas = writer.delta_writer(f"{self._event_name}.delta", self._position())
        self._pieces: list[str] = []

    def begin(self, part: Part) -> bytes:
        said = part.arguments if isinstance(part, ToolCall) else ""
        return super().begin(part) + (self.add(said) if said else b"")

    def add(self, piece: Piece) -> bytes:
        if type(piece) is not str:
            return b""
        self._pieces.append(piece)
        return self._deltas.write(piece)

    def end_part(self) -> bytes:
        """Nobody can parse a function's arguments of no characters."""
        unsaid = b""
        if not self._pieces and self._field == "arguments":
            unsaid = self.add("{}")
        whole = "".join(self._pieces)
        self.body[self._field] = whole
        done = self._position() | {self._field: whole}
        if self._field == "arguments":
            done["name"] = self.body["name"]
        return unsaid + self._writer.write(f"{self._event_name}.done", done)

    def is_complete(self) -> bool:
        if self._field != "arguments":
            return True
        try:
            orjson.loads(self.body[self._field])
        except orjson.JSONDecodeError:
            return False
        return True


class ClientCallItemEncoder(ItemEncoder):
    """A call of a tool that the client knows by its type: its arguments have a form of their own,
    so it is told once it is whole."""

    __slots__ = ("_ids", "_pieces", "_tool")

    def __init__(self, writer: EventWriter, index: int, part: ToolCall, ids: IdGenerator, tool: ClientTool) -> None:
        self._ids = {"id": ids.item_id(tool.prefix), "call_id": ids.call_id(part.id)}
        self._tool = tool
        self._pieces = [part.arguments]
        body = self._ids | tool.call_item("") | {"status": "in_progress"}
        super().__init__(writer, index, body)

    def add(self, piece: Piece) -> bytes:
        if isinstance(piece, str):
            self._pieces.append(piece)
        return b""

    def end_part(self) -> bytes:
        self.body = self._ids | self._tool.call_item("".join(self._pieces))
        return b""


class SearchItemEncoder(ItemEncoder):
    """A search of the web that the upstream ran, and what it has found."""

    __slots__ = ("_call_id", "_pieces", "_sources")

    def __init__(self, writer: EventWriter, index: int, part: ServerToolCall, ids: IdGenerator) -> None:
        own = native_fields(part.extra)
        body = {
            "id": ids.item_id("ws", own.get("id") or part.id),
            "type": "web_search_call",
            "status": "in_progress",
            "action": {"type": "search", "query": ""},
        }
        super().__init__(writer, index, body)
        self._call_id = part.id
        self._pieces = [part.arguments]
        self._sources: list[str] = []

    def begin(self, part: Part) -> bytes:
        added = super().begin(part)
        stages = [self._writer.write(f"web_search_call.{stage}", self._position()) for stage in _SEARCH_STAGES]
        return added + b"".join(stages)

    def continue_with(self, part: Part) -> bytes | None:
        if not isinstance(part, ServerToolResult) or part.call_id != self._call_id:
            return None
        self._sources += _source_urls(part.content.data)
        return b""

    def add(self, piece: Piece) -> bytes:
        if isinstance(piece, str):
            self._pieces.append(piece)
        return b""

    def end_part(self) -> bytes:
        return b""

    def finish(self, status: str) -> bytes:
        self.body["action"] = self._action()
        if status == INCOMPLETE:
            return super().finish(status)
        return self._writer.write("web_search_call.completed", self._position()) + super().finish(status)

    def _action(self) -> Payload:
        """What was searched for. Upstreams of other formats tell the query alone."""
        try:
            told = lenient_object(orjson.loads("".join(self._pieces)))
        except orjson.JSONDecodeError:
            told = {}
        if "type" in told:
            return told
        query = lenient_str(told.get("query"))
        sources = [{"type": "url", "url": address} for address in dict.fromkeys(self._sources)]
        return {"type": "search", "query": query, "queries": [query], "sources": sources}


class UnknownItemEncoder(ItemEncoder):
    """An item that only this format has a word for: whole from the start."""

    __slots__ = ()

    def __init__(self, writer: EventWriter, index: int, part: UnknownPart, ids: IdGenerator) -> None:
        item = native_fields(part.data)
        prefix = lenient_str(item.get("id")).partition("_")[0] or "item"
        super().__init__(writer, index, item | {"id": ids.item_id(prefix, item.get("id"))})

    def add(self, piece: Piece) -> bytes:
        return b""

    def end_part(self) -> bytes:
        return b""

    def finish(self, status: str) -> bytes:
        return self._emit("output_item.done")


def _source_urls(found: Any) -> Iterator[str]:
    """The pages that a search has found, as far as its upstream lists them."""
    for entry in lenient_objects(lenient_object(found).get("content")):
        if address := lenient_str(entry.get("url")):
            yield address
