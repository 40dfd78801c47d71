"""Speaks events as a responses stream. It must not know which upstream they come from.

Every item is added, told and done under one id; the last event repeats all of them (Responses,
"Streaming events"). An item is only known to be over when the next event does not go on with it,
so those whose parts have closed wait for that.

The response object: what was asked, echoed, and what became of it. It must not know items.

Public format: Responses, "The response object". What the client left out is told by its default.

The output items of most replies, made in one step. It must not know the response around them.

A reply of one text, of calls, or of both has nothing that the items of a stream would have to sort
out. Every other one is left to `gateway.wire.responses.encode`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Set
from typing import Any, ClassVar, Final

from gateway.core.events import (
    Begin,
    Close,
    Delta,
    End,
    Event,
    Fail,
    Open,
    Ping,
    StopReason,
)
from gateway.core.formats import Format
from gateway.core.parts import (
    Audio,
    CallKind,
    Document,
    Image,
    Part,
    Refusal,
    ServerToolCall,
    ServerToolResult,
    Text,
    Thinking,
    ToolCall,
    UnknownPart,
)
from gateway.core.prompt import Prompt, Role, Tool, Turn
from gateway.core.reply import Reply, reply_events
from gateway.errors import GatewayError
from gateway.wire.codec import ReplyMetadata
from gateway.wire.json_fields import Payload
from gateway.wire.responses import client_tools
from gateway.wire.responses.encode_items import (
    COMPLETED,
    INCOMPLETE,
    CallItemEncoder,
    ClientCallItemEncoder,
    EventWriter,
    ItemEncoder,
    MessageItemEncoder,
    NullWriter,
    ReasoningItemEncoder,
    SearchItemEncoder,
    UnknownItemEncoder,
    native_fields,
)
from gateway.wire.responses.ids import IdGenerator
from gateway.wire.responses.native import error_frame, failed_frame
from gateway.wire.responses.settings import echo_settings
from gateway.wire.responses.tools import echo_tool_choice, echo_tools
from gateway.wire.responses.usage import render_usage


def render_reply(reply: Reply, prompt: Prompt, metadata: ReplyMetadata) -> tuple[Payload, Set[str]]:
    """The same reply as a stream would end with it."""
    end = End(reply.stop, reply.usage, reply.stop_sequence)
    reason = incomplete_reason(reply.stop, refused=False)
    items = None
    if not client_tools_of(prompt.tools):
        items = render_simple_items(
            reply.parts, IdGenerator(metadata.reply_id), truncated=reason is not None
        )
    if items is not None:
        return finished_response(
            opening_response(prompt, metadata), items, end, reason
        ), frozenset()
    encoder = ResponsesEncoder(prompt, metadata, NullWriter())
    for event in reply_events(reply):
        encoder.encode(event)
    return encoder.response, encoder.dropped


_SEARCH = "web_search"


class ResponsesEncoder:
    """`response` is the response object as it was told last."""

    __slots__ = (
        "_begun",
        "_client_tools",
        "_closed_items",
        "_ids",
        "_items",
        "_open",
        "_origin",
        "_over",
        "_refused",
        "_writer",
        "dropped",
        "response",
    )

    def __init__(
        self, prompt: Prompt, metadata: ReplyMetadata, writer: EventWriter | None = None
    ) -> None:
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

    def encode_text_run(
        self, index: int, texts: Sequence[str], json_texts: Sequence[bytes]
    ) -> bytes:
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
        if (
            self._closed_items
            and (spoken := self._closed_items[-1].continue_with(part)) is not None
        ):
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

    _ITEM_ENCODERS: ClassVar[
        dict[type[Part], Callable[[ResponsesEncoder, Any], ItemEncoder | None]]
    ] = {
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


_INCOMPLETE_REASONS: Final = {
    StopReason.MAX_TOKENS: "max_output_tokens",
    StopReason.CONTEXT_WINDOW: "max_output_tokens",
    StopReason.REFUSAL: "content_filter",
}
_DEFAULTS: Final[Payload] = {
    "background": False,
    "instructions": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "previous_response_id": None,
    "prompt_cache_key": None,
    "reasoning": {"effort": None, "summary": None},
    "safety_identifier": None,
    "service_tier": None,
    "store": True,
    "temperature": 1.0,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
    "top_logprobs": 0,
    "top_p": 1.0,
    "truncation": "disabled",
    "user": None,
}


def opening_response(prompt: Prompt, metadata: ReplyMetadata) -> Payload:
    """The response while nothing of it is there; `prompt` is the client's."""
    response: Payload = {
        "id": f"resp_{metadata.reply_id}",
        "object": "response",
        "created_at": metadata.created,
        "status": "in_progress",
        "model": prompt.model,
        "output": [],
        "error": None,
        "incomplete_details": None,
        **_DEFAULTS,
        "usage": None,
    }
    for name, asked in _requested_fields(prompt).items():
        if name in _DEFAULTS:
            response[name] = _merge_default(_DEFAULTS[name], asked)
    return response


def incomplete_reason(stop: StopReason, *, refused: bool) -> str | None:
    """Why a response is not complete; None where it is. A model that has declined in words has
    said all it has to say."""
    return None if stop is StopReason.REFUSAL and refused else _INCOMPLETE_REASONS.get(stop)


def finished_response(
    opening: Payload, items: Sequence[Payload], end: End, reason: str | None
) -> Payload:
    """The response once it is over; `reason` as in `reason_of`."""
    ended = opening.copy()
    ended["status"] = "incomplete" if reason else "completed"
    ended["output"] = list(items)
    if reason:
        ended["incomplete_details"] = {"reason": reason}
    else:
        ended["completed_at"] = opening["created_at"]
    if end.usage is not None:
        ended |= render_usage(end.usage)
    if tier := native_fields(end.extra).get("service_tier"):
        ended["service_tier"] = tier
    return ended


def _requested_fields(prompt: Prompt) -> Payload:
    """What the client asked for, as far as responses repeat it."""
    asked = echo_settings(prompt)
    if (instructions := _instructions(prompt.turns)) is not None:
        asked["instructions"] = instructions
    if prompt.tools:
        asked["tools"] = echo_tools(prompt.tools)
    if prompt.tool_choice is not None:
        asked["tool_choice"] = echo_tool_choice(prompt.tool_choice)
    if prompt.parallel_tool_calls is not None:
        asked["parallel_tool_calls"] = prompt.parallel_tool_calls
    return asked


def _merge_default(unsaid: Any, asked: Any) -> Any:
    return unsaid | asked if isinstance(unsaid, dict) and isinstance(asked, dict) else asked


def _instructions(turns: Sequence[Turn]) -> str | None:
    first = turns[0] if turns else None
    if first is None or first.role is not Role.SYSTEM or first.extra or len(first.parts) != 1:
        return None
    part = first.parts[0]
    return part.text if type(part) is Text else None


def render_simple_items(
    parts: Sequence[Part], ids: IdGenerator, *, truncated: bool
) -> list[Payload] | None:
    """The items, the last of them incomplete where the reply was `cut` off; None of a reply that
    holds anything else. `ids` may be used up then."""
    items: list[Payload] = []
    for number, part in enumerate(parts):
        if type(part) is Text and not number:
            item = _simple_message(part, ids)
        elif type(part) is ToolCall:
            item = _simple_call(part, ids)
        else:
            item = None
        if item is None:
            return None
        items.append(item)
    if truncated and items:
        items[-1]["status"] = INCOMPLETE
    return items


def _simple_message(part: Text, ids: IdGenerator) -> Payload | None:
    if part.extra is not None or part.citations:
        return None
    text = {"type": "output_text", "text": part.text, "annotations": [], "logprobs": []}
    return {
        "id": ids.item_id("msg"),
        "type": "message",
        "role": "assistant",
        "status": COMPLETED,
        "content": [text],
    }


def _simple_call(part: ToolCall, ids: IdGenerator) -> Payload | None:
    if part.kind is not CallKind.FUNCTION or part.extra is not None or part.namespace is not None:
        return None
    return {
        "id": ids.item_id("fc"),
        "type": "function_call",
        "status": COMPLETED,
        "call_id": ids.call_id(part.id),
        "name": part.name,
        "arguments": part.arguments or "{}",
    }
