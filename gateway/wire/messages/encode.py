"""Renders replies for messages clients: events to a stream, or one body.

Public format: Messages, "Streaming messages", "The message object". Only one block may be open at a
time, but calls may arrive in parallel: they queue, and the first one is sent as it arrives. It ends
when it is closed, or when another one waits and its arguments are a complete object.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence, Set
from typing import Any, ClassVar, Final

import orjson

from gateway.core.events import Begin, Close, Delta, End, Event, Open, Ping, StopReason, Usage
from gateway.core.parts import Refusal, ToolCall
from gateway.core.prompt import Prompt
from gateway.core.reply import Reply, initial_pieces
from gateway.errors import GatewayError
from gateway.wire.codec import ReplyMetadata
from gateway.wire.json.fields import Payload
from gateway.wire.messages.decode import STOP_REASONS
from gateway.wire.messages.encode_blocks import (
    BlockRenderer,
    BlockWriter,
    CallBlock,
    DeltaBlock,
    StreamBlock,
    TextBlock,
    open_block,
)
from gateway.wire.messages.native import PING, error_frame
from gateway.wire.messages.usage import render_usage
from gateway.wire.stream.event_builder import normalize_stop
from gateway.wire.stream.sse import write_frame

_EMPTY_TEXT: Final[Payload] = {"type": "text", "text": ""}
"""The content of an empty message: coding agents retry a message without content."""
_MESSAGE_STOP: Final = write_frame(b"message_stop", b'{"type":"message_stop"}')
_STOP_NAMES: Final = {stop: name for name, stop in STOP_REASONS.items()} | {
    StopReason.INTERRUPTED: "max_tokens"
}
_DELTA_FIELDS: Final = ("stop_details", "container")
"""Fields of a message that a stream has beside the stop reason."""


def render_reply(reply: Reply, prompt: Prompt, metadata: ReplyMetadata) -> tuple[Payload, Set[str]]:
    """The body, and the names of what the format cannot express."""
    renderer = BlockRenderer(metadata)
    body = _message(prompt, metadata, reply.usage)
    content = body["content"] = renderer.render(reply.parts)
    called = any([type(part) is ToolCall for part in reply.parts])
    refusals = [part.text for part in reply.parts if type(part) is Refusal]
    refusal = refusals[-1] if refusals else None
    stop = _client_stop(reply.stop, reply.stop_sequence, called, refusal)
    if not content and stop is StopReason.END_TURN:
        content.append(dict(_EMPTY_TEXT))
    end = _end_fields(stop, reply.stop_sequence, refusal)
    return body | end | renderer.fields, renderer.dropped


class MessagesEncoder:
    """See `gateway.wire.codec.Encoder`."""

    __slots__ = ("_blocks", "_calls", "_has_calls", "_metadata", "_prompt", "_refusal", "_writer")

    def __init__(self, prompt: Prompt, metadata: ReplyMetadata) -> None:
        self._prompt = prompt
        self._metadata = metadata
        self._writer = BlockWriter(metadata)
        self._blocks: dict[int, StreamBlock] = {}
        self._calls: deque[CallBlock] = deque()
        self._has_calls = False
        self._refusal: TextBlock | None = None

    @property
    def dropped(self) -> Set[str]:
        return self._writer.dropped

    def encode(self, event: Event) -> bytes:
        if type(event) is Delta:
            return self._blocks[event.index].add(event.piece)
        return self._HANDLERS[type(event)](self, event)

    def encode_text_run(
        self, index: int, texts: Sequence[str], json_texts: Sequence[bytes]
    ) -> bytes:
        block = self._blocks[index]
        if isinstance(block, DeltaBlock):
            return block.add_texts(texts, json_texts)
        return b"".join(map(block.add, texts))

    def ping(self) -> bytes:
        return PING

    def encode_error(self, error: GatewayError, *, withheld: bool = False) -> bytes:
        """An interrupted call is not completed: the client might run it."""
        return (b"" if withheld else self._writer.stop()) + error_frame(error)

    def _on_begin(self, event: Begin) -> bytes:
        message = _message(self._prompt, self._metadata, event.usage)
        data = {"type": "message_start", "message": message}
        return write_frame(b"message_start", orjson.dumps(data))

    def _on_open(self, event: Open) -> bytes:
        part = event.part
        block = self._blocks[event.index] = open_block(part, self._writer)
        out = b""
        if isinstance(part, ToolCall) and isinstance(block, CallBlock):
            self._has_calls = True
            self._calls.append(block)
            out = block.start() if len(self._calls) == 1 else self._start_next_call()
        elif isinstance(block, CallBlock):
            out = block.start()
        elif isinstance(block, TextBlock) and isinstance(part, Refusal):
            self._refusal = block
        return out + b"".join(map(block.add, initial_pieces(part)))

    def _on_close(self, event: Close) -> bytes:
        block = self._blocks.pop(event.index)
        if isinstance(block, CallBlock):
            block.closed = True
            if block in self._calls:
                return self._start_next_call()
        return block.close()

    def _start_next_call(self) -> bytes:
        """Ends the complete calls at the head of the queue and starts the next one. The last call
        in the queue is complete only when it is closed."""
        out = b""
        while self._calls:
            first = self._calls[0]
            if not (first.closed or (len(self._calls) > 1 and first.is_complete)):
                break
            out += first.close()
            self._calls.popleft()
            if self._calls:
                out += self._calls[0].start()
        return out

    def _on_ping(self, event: Ping) -> bytes:
        return PING

    def _on_end(self, event: End) -> bytes:
        refusal = self._refusal.text if self._refusal else None
        stop = _client_stop(event.stop, event.stop_sequence, self._has_calls, refusal)
        out = b""
        if self._writer.index < 0 and stop is StopReason.END_TURN:
            out = self._writer.start(_EMPTY_TEXT) + self._writer.stop()
        delta, fields = _end_fields(stop, event.stop_sequence, refusal), dict(self._writer.fields)
        delta |= {name: fields.pop(name) for name in _DELTA_FIELDS if name in fields}
        data = {
            "type": "message_delta",
            **fields,
            "delta": delta,
            "usage": _usage(event.usage, self._metadata),
        }
        return out + write_frame(b"message_delta", orjson.dumps(data)) + _MESSAGE_STOP

    _HANDLERS: ClassVar[dict[type[Event], Callable[[MessagesEncoder, Any], bytes]]] = {
        Begin: _on_begin,
        Open: _on_open,
        Close: _on_close,
        Ping: _on_ping,
        End: _on_end,
    }


def _message(prompt: Prompt, metadata: ReplyMetadata, usage: Usage | None) -> Payload:
    """The message object without content."""
    return {
        "id": prompt.reply_id or f"msg_{metadata.reply_id}",
        "type": "message",
        "role": "assistant",
        "model": prompt.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": _usage(usage, metadata),
    }


def _usage(usage: Usage | None, metadata: ReplyMetadata) -> Payload:
    """The counts, or the estimate until there are any."""
    return render_usage(usage or Usage(input_tokens=metadata.input_tokens))


def _client_stop(
    stop: StopReason, stop_sequence: str | None, called: bool, refusal: str | None
) -> StopReason:
    """The stop reason that matches the content: agents decide by it alone how to continue."""
    if stop is StopReason.STOP_SEQUENCE and stop_sequence is None:
        stop = StopReason.END_TURN
    stop = normalize_stop(stop, called)
    if refusal is not None and stop is StopReason.END_TURN:
        return StopReason.REFUSAL
    return stop


def _end_fields(stop: StopReason, stop_sequence: str | None, refusal: str | None) -> Payload:
    """The fields of the end, except the usage; `refusal` is the text of the refusal, if any."""
    fields: Payload = {
        "stop_reason": _STOP_NAMES[stop],
        "stop_sequence": stop_sequence if stop is StopReason.STOP_SEQUENCE else None,
    }
    if stop is StopReason.REFUSAL:
        details = {"type": "refusal", "category": None, "explanation": refusal or None}
        fields["stop_details"] = details
    return fields
