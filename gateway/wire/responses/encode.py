"""Events to responses streams, and replies to complete bodies.

Every item is added, emitted and done under one id, and the last event repeats all items (Responses,
"Streaming events"). An item is known to be complete only when the next event does not continue it,
so items whose part has closed wait for the next event.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Set
from typing import Any, ClassVar, Final

import orjson

from gateway.core.events import Begin, Close, Delta, End, Event, Open, Ping, StopReason
from gateway.core.formats import Format
from gateway.core.parts import CallKind, ProviderData, Refusal, Text, ToolCall
from gateway.core.prompt import Prompt, Tool
from gateway.core.reply import Reply, initial_pieces, reply_events
from gateway.errors import GatewayError
from gateway.wire.codec import ReplyMetadata
from gateway.wire.json.fields import Payload
from gateway.wire.responses import client_tools
from gateway.wire.responses.encode_items import (
    COMPLETED,
    INCOMPLETE,
    EventWriter,
    ItemEncoder,
    NullWriter,
    ReplyContext,
    new_item,
)
from gateway.wire.responses.ids import IdGenerator
from gateway.wire.responses.native import error_frame, failed_frame
from gateway.wire.responses.settings import echo_settings
from gateway.wire.responses.tools import echo_tool_choice, echo_tools
from gateway.wire.responses.usage import render_usage

_INCOMPLETE_REASONS: Final = {
    StopReason.MAX_TOKENS: "max_output_tokens",
    StopReason.CONTEXT_WINDOW: "max_output_tokens",
    StopReason.PAUSE: "max_output_tokens",
    StopReason.INTERRUPTED: "max_output_tokens",
    StopReason.REFUSAL: "content_filter",
}
_DEFAULTS: Final[Payload] = {
    "background": False,
    "completed_at": None,
    "frequency_penalty": 0.0,
    "instructions": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "presence_penalty": 0.0,
    "previous_response_id": None,
    "prompt_cache_key": None,
    "reasoning": {"effort": None, "summary": None},
    "safety_identifier": None,
    "service_tier": "default",
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
"""Fields of a response that the request decides, and their values if the client sent none."""
_REQUIRED_FIELDS: Final[dict[str, Payload]] = {
    "function": {"description": None, "parameters": None, "strict": None},
    "json_schema": {"description": None, "strict": False},
}
"""Fields of tools and output formats that a response has even if the client sent none, by type
(Open Responses, "FunctionTool", "JsonSchemaResponseFormat")."""


_MAX_ECHO: Final = 1024 * 1024
"""Bytes of a field that is echoed, three times in a stream."""


class ResponsesEncoder:
    """`response` is the response object as last sent."""

    __slots__ = (
        *("_begun", "_closed_items", "_context", "_items", "_open", "_over", "_refused"),
        *("_writer", "dropped", "response"),
    )

    def __init__(
        self, prompt: Prompt, metadata: ReplyMetadata, writer: EventWriter | None = None
    ) -> None:
        self._writer = writer or EventWriter()
        self.dropped: set[str] = set()
        self._context = ReplyContext(
            writer=self._writer,
            ids=IdGenerator(metadata.reply_id),
            origin=metadata.origin,
            client_tools=client_tools_of(prompt.tools),
            dropped=self.dropped,
            fields={},
        )
        self._items: list[ItemEncoder] = []
        self._open: dict[int, ItemEncoder | None] = {}
        self._closed_items: list[ItemEncoder] = []
        self._begun = False
        self._over = False
        self._refused = False
        self.response: Payload = opening_response(prompt, metadata)

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
        """A repeated `response.in_progress`: clients that wait for events ignore comments."""
        if not self._begun:
            return b": keepalive\n\n"
        return self._writer.write("in_progress", {"response": self.response})

    def encode_error(self, error: GatewayError, *, withheld: bool = False) -> bytes:
        if withheld and self._begun:
            return failed_frame(error, self.response | {"output": []}, self._writer.sequence)
        if self._over:
            return b""
        self._over = True
        if not self._begun:
            return error_frame(error, self._writer.sequence)
        out = self._finish_closed()
        for item in filter(None, self._open.values()):
            out += item.end_part() + item.finish(INCOMPLETE)
        self.response = self.response | {"output": [item.body for item in self._items]}
        return out + failed_frame(error, self.response, self._writer.sequence)

    def _on_begin(self, event: Begin) -> bytes:
        self._begun = True
        return self._writer.write("created", {"response": self.response}) + self.ping()

    def _on_open(self, event: Open) -> bytes:
        part = event.part
        self._refused = self._refused or isinstance(part, Refusal)
        item: ItemEncoder | None = None
        frames = self._closed_items[-1].continue_with(part) if self._closed_items else None
        if frames is not None:
            item = self._closed_items.pop()
            out = self._finish_closed() + frames
        else:
            out = self._finish_closed()
            item = new_item(self._context, len(self._items), part)
            if item is not None:
                self._items.append(item)
                out += item.begin(part)
        self._open[event.index] = item
        return out if item is None else out + b"".join(map(item.add, initial_pieces(part)))

    def _on_delta(self, event: Delta) -> bytes:
        return self._finish_closed() + self.encode(event)

    def _on_close(self, event: Close) -> bytes:
        item = self._open.pop(event.index)
        if item is None:
            return b""
        self._closed_items.append(item)
        return item.end_part()

    def _on_ping(self, event: Ping) -> bytes:
        return self.ping()

    def _on_end(self, event: End) -> bytes:
        reason = _incomplete_reason(event.stop, refused=self._refused)
        if event.stop is StopReason.PAUSE:
            self.dropped.add("pause_turn")
        out = self._finish_closed(truncated=reason is not None)
        self._over = True
        items = [item.body for item in self._items]
        response = self.response | self._context.fields
        self.response = _finished_response(response, items, event, reason)
        return out + self._writer.write(self.response["status"], {"response": self.response})

    def _finish_closed(self, *, truncated: bool = False) -> bytes:
        """Finishes closed items: of a truncated reply the last one is incomplete, and others that
        visibly are."""
        closed, self._closed_items = self._closed_items, []
        out = b""
        for item in closed:
            incomplete = truncated and (item is closed[-1] or not item.is_complete())
            out += item.finish(INCOMPLETE if incomplete else COMPLETED)
        return out

    _HANDLERS: ClassVar[dict[type[Event], Callable[[ResponsesEncoder, Any], bytes]]] = {
        Begin: _on_begin,
        Open: _on_open,
        Delta: _on_delta,
        Close: _on_close,
        Ping: _on_ping,
        End: _on_end,
    }


def client_tools_of(tools: Iterable[Tool]) -> dict[str, client_tools.ClientTool]:
    """The tools that the client knows by their type, by name."""
    return {
        tool.name: client_tool
        for tool in tools
        if tool.namespace is None
        and (definition := ProviderData.native_fields(tool.definition, Format.RESPONSES))
        and (client_tool := client_tools.find(definition))
    }


def render_reply(reply: Reply, prompt: Prompt, metadata: ReplyMetadata) -> tuple[Payload, Set[str]]:
    """The response that a stream would end with."""
    is_simple = reply.stop is not StopReason.PAUSE and not client_tools_of(prompt.tools)
    items = _render_simple_items(reply, metadata) if is_simple else None
    if items is not None:
        end = End(reply.stop, reply.usage, service_tier=reply.service_tier)
        reason = _incomplete_reason(reply.stop, refused=False)
        opening = opening_response(prompt, metadata)
        return _finished_response(opening, items, end, reason), frozenset()
    encoder = ResponsesEncoder(prompt, metadata, NullWriter())
    for event in reply_events(reply):
        encoder.encode(event)
    return encoder.response, encoder.dropped


def _render_simple_items(reply: Reply, metadata: ReplyMetadata) -> list[Payload] | None:
    """The items of a reply of one text, of function calls, or of both, in one step; None for any
    other reply, which the encoder renders."""
    ids = IdGenerator(metadata.reply_id)
    items: list[Payload] = []
    for part in reply.parts:
        if type(part) is Text and not items and part.extra is None and not part.citations:
            text = {"type": "output_text", "text": part.text, "annotations": [], "logprobs": []}
            items.append(
                {
                    "id": ids.item_id("msg"),
                    "type": "message",
                    "role": "assistant",
                    "status": COMPLETED,
                    "content": [text],
                }
            )
        elif type(part) is ToolCall and part.kind is CallKind.FUNCTION and _is_plain(part):
            items.append(
                {
                    "id": ids.item_id("fc"),
                    "type": "function_call",
                    "status": COMPLETED,
                    "call_id": ids.call_id(part.id),
                    "name": part.name,
                    "arguments": part.arguments or "{}",
                }
            )
        else:
            return None
    if items and _incomplete_reason(reply.stop, refused=False):
        items[-1]["status"] = INCOMPLETE
    return items


def _is_plain(call: ToolCall) -> bool:
    return call.extra is None and call.namespace is None


def opening_response(prompt: Prompt, metadata: ReplyMetadata) -> Payload:
    """The response object without output (Responses, "The response object"); `prompt` is the
    client's, whose settings are echoed."""
    response: Payload = {
        "id": prompt.reply_id or f"resp_{metadata.reply_id}",
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
    if prompt.conversation_id is not None:
        response["conversation"] = {"id": prompt.conversation_id}
    is_large = metadata.request_size > _MAX_ECHO
    for name, value in echo(prompt).items():
        if not (is_large and len(orjson.dumps(value)) > _MAX_ECHO):
            default = _DEFAULTS[name]
            merge = isinstance(default, dict) and isinstance(value, dict)
            response[name] = default | value if merge else value
    return response


def echo(prompt: Prompt) -> Payload:
    """The client's settings that a response repeats."""
    fields = echo_settings(prompt)
    if prompt.instructions is not None:
        fields["instructions"] = prompt.instructions
    if prompt.tools:
        fields["tools"] = [_with_required_fields(tool) for tool in echo_tools(prompt.tools)]
    if (form := fields.get("text", {}).get("format")) is not None:
        fields["text"] = fields["text"] | {"format": _with_required_fields(form)}
    if prompt.tool_choice is not None:
        fields["tool_choice"] = echo_tool_choice(prompt.tool_choice)
    if prompt.parallel_tool_calls is not None:
        fields["parallel_tool_calls"] = prompt.parallel_tool_calls
    return {name: value for name, value in fields.items() if name in _DEFAULTS}


def _with_required_fields(definition: Payload) -> Payload:
    required = _REQUIRED_FIELDS.get(definition["type"])
    return definition if required is None else required | definition


def _incomplete_reason(stop: StopReason, *, refused: bool) -> str | None:
    """Returns why a response is incomplete; None if it is complete. A refusal in the model's own
    words is a complete reply."""
    return None if stop is StopReason.REFUSAL and refused else _INCOMPLETE_REASONS.get(stop)


def _finished_response(
    opening: Payload, items: list[Payload], end: End, reason: str | None
) -> Payload:
    """`reason` as in `_incomplete_reason`."""
    response = opening.copy()
    response["output"] = items
    response["status"] = "incomplete" if reason else "completed"
    if reason:
        response["incomplete_details"] = {"reason": reason}
    else:
        response["completed_at"] = opening["created_at"]
    if end.usage is not None:
        response |= render_usage(end.usage)
    if end.service_tier is not None:
        response["service_tier"] = end.service_tier
    return response
