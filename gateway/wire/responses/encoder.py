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
    OpaquePart,
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
from gateway.wire.codec import Stamp
from gateway.wire.fields import Payload
from gateway.wire.responses import client_tools
from gateway.wire.responses.errors import error_frame, failed_frame
from gateway.wire.responses.ids import Ids
from gateway.wire.responses.outgoing import COMPLETED, INCOMPLETE, OutgoingItem, own_fields
from gateway.wire.responses.outgoing_calls import (
    OutgoingCall,
    OutgoingClientCall,
    OutgoingOther,
    OutgoingSearch,
)
from gateway.wire.responses.outgoing_speech import OutgoingMessage, OutgoingReasoning
from gateway.wire.responses.pen import Pen
from gateway.wire.responses.response import ended_response, opening_response, reason_of

_SEARCH = "web_search"


class ResponsesEncoder:
    """`response` is the response object as it was told last."""

    __slots__ = (
        "_begun",
        "_client_tools",
        "_ids",
        "_items",
        "_late",
        "_open",
        "_origin",
        "_over",
        "_pen",
        "_refused",
        "dropped",
        "response",
    )

    def __init__(self, prompt: Prompt, stamp: Stamp, pen: Pen | None = None) -> None:
        self._pen = pen or Pen()
        self._ids = Ids(stamp.reply_id)
        self._origin = stamp.origin
        self._client_tools = client_tools_of(prompt.tools)
        self._items: list[OutgoingItem] = []
        self._open: dict[int, OutgoingItem | None] = {}
        self._late: list[OutgoingItem] = []
        self._begun = False
        self._over = False
        self._refused = False
        self.response: Payload = opening_response(prompt, stamp)
        self.dropped: set[str] = set()

    def encode(self, event: Event) -> bytes:
        if type(event) is Delta and not self._late:
            item = self._open[event.index]
            return b"" if item is None else item.add(event.piece)
        return self._SPEAK[type(event)](self, event)

    def encode_texts(self, index: int, texts: Sequence[str], spelled: Sequence[bytes]) -> bytes:
        out = self._finish_late() if self._late else b""
        item = self._open[index]
        return out if item is None else out + item.add_texts(texts, spelled)

    def ping(self) -> bytes:
        """Clients that wait for events do not count comments, and know no other sign of life than
        a repeated `response.in_progress`."""
        if not self._begun:
            return b": keepalive\n\n"
        return self._pen.write("in_progress", {"response": self.response})

    def fail(self, error: GatewayError) -> bytes:
        if self._over:
            return b""
        self._over = True
        if not self._begun:
            return error_frame(error, self._pen.sequence)
        out = self._finish_late()
        for item in self._open.values():
            if item is not None:
                out += item.end() + item.done(INCOMPLETE)
        self.response = self.response | {"output": [item.body for item in self._items]}
        return out + failed_frame(error, self.response, self._pen.sequence)

    def _on_begin(self, event: Begin) -> bytes:
        self._begun = True
        created = self._pen.write("created", {"response": self.response})
        return created + self._pen.write("in_progress", {"response": self.response})

    def _on_open(self, event: Open) -> bytes:
        part = event.part
        self._refused = self._refused or isinstance(part, Refusal)
        if self._late and (spoken := self._late[-1].take(part)) is not None:
            self._open[event.index] = self._late.pop()
            return self._finish_late() + spoken
        out = self._finish_late()
        item = self._item(part)
        self._open[event.index] = item
        if item is None:
            return out
        self._items.append(item)
        return out + item.begin(part)

    def _on_delta(self, event: Delta) -> bytes:
        out = self._finish_late()
        item = self._open[event.index]
        return out if item is None else out + item.add(event.piece)

    def _on_close(self, event: Close) -> bytes:
        item = self._open.pop(event.index)
        if item is None:
            return b""
        self._late.append(item)
        return item.end()

    def _on_ping(self, event: Ping) -> bytes:
        return self.ping()

    def _on_end(self, event: End) -> bytes:
        reason = reason_of(event.stop, refused=self._refused)
        out = self._cut_late() if reason else self._finish_late()
        self._over = True
        items = [item.body for item in self._items]
        self.response = ended_response(self.response, items, event, reason)
        return out + self._pen.write(self.response["status"], {"response": self.response})

    def _on_fail(self, event: Fail) -> bytes:
        return b""

    def _finish_late(self) -> bytes:
        late, self._late = self._late, []
        return b"".join(item.done(COMPLETED) for item in late)

    def _cut_late(self) -> bytes:
        """The same where the reply was cut off: the last item with it, and what else shows it."""
        late, self._late = self._late, []
        cut = [not item.is_whole() for item in late[:-1]] + [True]
        return b"".join(
            item.done(INCOMPLETE if is_cut else COMPLETED)
            for item, is_cut in zip(late, cut, strict=False)
        )

    def _item(self, part: Part) -> OutgoingItem | None:
        """The item that a part begins; None for what cannot be said."""
        make = self._MAKE.get(type(part))
        return None if make is None else make(self, part)

    def _message(self, part: Text | Refusal) -> OutgoingItem:
        return OutgoingMessage(self._pen, len(self._items), part, self._ids, self.dropped)

    def _reasoning(self, part: Thinking) -> OutgoingItem:
        return OutgoingReasoning(self._pen, len(self._items), part, self._ids, self._origin)

    def _call(self, part: ToolCall) -> OutgoingItem:
        tool = self._client_tools.get(part.name) if part.namespace is None else None
        if tool is not None:
            return OutgoingClientCall(self._pen, len(self._items), part, self._ids, tool)
        return OutgoingCall(self._pen, len(self._items), part, self._ids)

    def _server_call(self, part: ServerToolCall) -> OutgoingItem | None:
        if part.name != _SEARCH:
            self.dropped.add(part.name)
            return None
        return OutgoingSearch(self._pen, len(self._items), part, self._ids)

    def _server_result(self, part: ServerToolResult) -> None:
        """Its search has taken it, unless there was none."""
        if part.content.format is not Format.RESPONSES:
            self.dropped.add(part.name)

    def _other(self, part: OpaquePart) -> OutgoingItem | None:
        if part.data.format is Format.RESPONSES:
            return OutgoingOther(self._pen, len(self._items), part, self._ids)
        self.dropped.add(part.kind)
        return None

    def _media(self, part: Image | Document | Audio) -> None:
        self.dropped.add(type(part).__name__.lower())

    _MAKE: ClassVar[dict[type[Part], Callable[[ResponsesEncoder, Any], OutgoingItem | None]]] = {
        Text: _message,
        Refusal: _message,
        Thinking: _reasoning,
        ToolCall: _call,
        ServerToolCall: _server_call,
        ServerToolResult: _server_result,
        OpaquePart: _other,
        Image: _media,
        Document: _media,
        Audio: _media,
    }
    _SPEAK: ClassVar[dict[type[Event], Callable[[ResponsesEncoder, Any], bytes]]] = {
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
        if tool.namespace is None and (known := client_tools.find(own_fields(tool.definition)))
    }
