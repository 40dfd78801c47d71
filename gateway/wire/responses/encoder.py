"""Speaks events as a responses stream. It must not know which upstream they come from.

Every item is added, told and done under one id; the last event repeats all of them (Responses,
"Streaming events"). An item is only known to be over when the next event does not go on with it,
so those whose parts have closed wait for that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar

from gateway.core.events import Begin, Close, Delta, End, Event, Fail, Open, Ping
from gateway.core.formats import Format
from gateway.core.parts import (
    Audio,
    Document,
    Image,
    UnknownPart,
    Part,
    Refusal,
    ServerToolCall,
    ServerToolResult,
    Text,
    Thinking,
    ToolCall,
)
from gateway.core.prompt import Prompt, Tool
from gateway.errors import GatewayError
from gateway.wire.codec import ReplyMetadata
from gateway.wire.fields import Payload
from gateway.wire.responses import client_tools
from gateway.wire.responses.errors import error_frame, failed_frame
from gateway.wire.responses.ids import IdGenerator
from gateway.wire.responses.outgoing import COMPLETED, INCOMPLETE, ItemEncoder, native_fields
from gateway.wire.responses.outgoing_calls import (
    CallItemEncoder,
    ClientCallItemEncoder,
    UnknownItemEncoder,
    SearchItemEncoder,
)
from gateway.wire.responses.outgoing_speech import MessageItemEncoder, ReasoningItemEncoder
from gateway.wire.responses.pen import EventWriter
from gateway.wire.responses.response import finished_response, opening_response, incomplete_reason

_SEARCH = "web_search"


class ResponsesEncoder:
    """`response` is the response object as it was told last."""

    __slots__ = (
        "_begun",
        "_client_tools",
        "_ids",
        "_items",
        "_closed_items",
        "_open",
        "_origin",
        "_over",
        "_writer",
        "_refused",
        "dropped",
        "response",
    )

    def __init__(self, prompt: Prompt, metadata: ReplyMetadata, writer: EventWriter | None = None) -> None:
        self._writer = writer or EventWriter()
        self._ids = IdGenerator(metadata.reply_id)
        self._origin = metadata.origin
        self._client_tools = client_tools_of(prompt.tools)
        self._items: list[ItemEncoder] = []
        self._open: dict[int, ItemEncoder | None] = {}
        self._closed_items: list[ItemEncoder] = []
        self._begun = False
        self._over = False
        self._refused = False
        self.response: Payload = opening_response(prompt, metadata)
        self.dropped: set[str] = set()

    def encode(self, event: Event) -> bytes:
        if type(event) is Delta and not self._closed_items:
            item = self._open[event.index]
            return b"" if item is None else item.add(event.piece)
        return self._HANDLERS[type(event)](self, event)

    def encode_text_run(self, index: int, texts: Sequence[str], json_texts: Sequence[bytes]) -> bytes:
        out = self._finish_closed() if self._closed_items else b""
        item = self._open[index]
        return out if item is None else out + item.add_text_run(texts, json_texts)

    def ping(self) -> bytes:
        """Clients that wait for events do not count comments, and know no other sign of life than
        a repeated `response.in_progress`."""
        if not self._begun:
            return b": keepalive\n\n"
        return self._writer.write("in_progress", {"response": self.response})

    def encode_error(self, error: GatewayError) -> bytes:
        if self._over:
            return b""
        self._over = True
        if not self._begun:
            return error_frame(error, self._writer.sequence)
        out = self._finish_closed()
        for item in self._open.values():
            if item is not None:
                out += item.end_part() + item.finish(INCOMPLETE)
        self.response = self.response | {"output": [item.body for item in self._items]}
        return out + failed_frame(error, self.response, self._writer.sequence)

    def _on_begin(self, event: Begin) -> bytes:
        self._begun = True
        created = self._writer.write("created", {"response": self.response})
        return created + self._writer.write("in_progress", {"response": self.response})

    def _on_open(self, event: Open) -> bytes:
        part = event.part
        self._refused = self._refused or isinstance(part, Refusal)
        if self._closed_items and (spoken := self._closed_items[-1].continue_with(part)) is not None:
            self._open[event.index] = self._closed_items.pop()
            return self._finish_closed() + spoken
        out = self._finish_closed()
        item = self._new_item(part)
        self._open[event.index] = item
        if item is None:
            return out
        self._items.append(item)
        return out + item.begin(part)

    def _on_delta(self, event: Delta) -> bytes:
        out = self._finish_closed()
        item = self._open[event.index]
        return out if item is None else out + item.add(event.piece)

    def _on_close(self, event: Close) -> bytes:
        item = self._open.pop(event.index)
        if item is None:
            return b""
        self._closed_items.append(item)
        return item.end_part()

    def _on_ping(self, event: Ping) -> bytes:
        return self.ping()

    def _on_end(self, event: End) -> bytes:
        reason = incomplete_reason(event.stop, refused=self._refused)
        out = self._truncate_closed() if reason else self._finish_closed()
        self._over = True
        items = [item.body for item in self._items]
        self.response = finished_response(self.response, items, event, reason)
        return out + self._writer.write(self.response["status"], {"response": self.response})

    def _on_fail(self, event: Fail) -> bytes:
        return b""

    def _finish_closed(self) -> bytes:
        late, self._closed_items = self._closed_items, []
        return b"".join(item.finish(COMPLETED) for item in late)

    def _truncate_closed(self) -> bytes:
        """The same where the reply was cut off: the last item with it, and what else shows it."""
        late, self._closed_items = self._closed_items, []
        cut = [not item.is_complete() for item in late[:-1]] + [True]
        return b"".join(
            item.finish(INCOMPLETE if is_cut else COMPLETED)
            for item, is_cut in zip(late, cut, strict=False)
        )

    def _new_item(self, part: Part) -> ItemEncoder | None:
        """The item that a part begins; None for what cannot be said."""
        make = self._ITEM_ENCODERS.get(type(part))
        return None if make is None else make(self, part)

    def _message_item(self, part: Text | Refusal) -> ItemEncoder:
        return MessageItemEncoder(self._writer, len(self._items), part, self._ids, self.dropped)

    def _reasoning_item(self, part: Thinking) -> ItemEncoder:
        return ReasoningItemEncoder(self._writer, len(self._items), part, self._ids, self._origin)

    def _call_item(self, part: ToolCall) -> ItemEncoder:
        tool = self._client_tools.get(part.name) if part.namespace is None else None
        if tool is not None:
            return ClientCallItemEncoder(self._writer, len(self._items), part, self._ids, tool)
        return CallItemEncoder(self._writer, len(self._items), part, self._ids)

    def _search_item(self, part: ServerToolCall) -> ItemEncoder | None:
        if part.name != _SEARCH:
            self.dropped.add(part.name)
            return None
        return SearchItemEncoder(self._writer, len(self._items), part, self._ids)

    def _drop_server_result(self, part: ServerToolResult) -> None:
        """Its search has taken it, unless there was none."""
        if part.content.format is not Format.RESPONSES:
            self.dropped.add(part.name)

    def _unknown_item(self, part: UnknownPart) -> ItemEncoder | None:
        if part.data.format is Format.RESPONSES:
            return UnknownItemEncoder(self._writer, len(self._items), part, self._ids)
        self.dropped.add(part.kind)
        return None

    def _drop_media(self, part: Image | Document | Audio) -> None:
        self.dropped.add(type(part).__name__.lower())

    _ITEM_ENCODERS: ClassVar[dict[type[Part], Callable[[ResponsesEncoder, Any], ItemEncoder | None]]] = {
        Text: _message_item,
        Refusal: _message_item,
        Thinking: _reasoning_item,
        ToolCall: _call_item,
        ServerToolCall: _search_item,
        ServerToolResult: _drop_server_result,
        UnknownPart: _unknown_item,
        Image: _drop_media,
        Document: _drop_media,
        Audio: _drop_media,
    }
    _HANDLERS: ClassVar[dict[type[Event], Callable[[ResponsesEncoder, Any], bytes]]] = {
        Begin: _on_begin,
        Open: _on_open,
        Delta: _on_delta,
        Close: _on_close,
        Ping: _on_ping,
        End: _on_end,
        Fail: _on_fail,
    }


def client_tools_of(tools: Iterable[Tool]) -> dict[str, client_tools.ClientTool]:
    """Those that the client knows by their type, by their names."""
    return {
        tool.name: known
        for tool in tools
        if tool.namespace is None and (known := client_tools.find(native_fields(tool.definition)))
    }
