"""Reads messages streams into events. It must not know who asked or what leaves for the client.

Upstreams met in the wild leave out indexes and blocks' ends, stop all blocks at the very end, give
a tool's whole input at its start, and speak errors in other formats' forms.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final

from gateway.core.events import Begin, Event, Signature, StopReason
from gateway.core.formats import Format
from gateway.core.parts import (
    Opaque,
    Part,
    Refusal,
    ServerToolCall,
    Text,
    Thinking,
    ToolCall,
)
from gateway.wire.assembly import Assembly
from gateway.wire.failures import parse_stream_error
from gateway.wire.fields import Payload
from gateway.wire.lenient import read_object, read_text
from gateway.wire.messages.citations import parse_citation
from gateway.wire.messages.reply_blocks import (
    CALL,
    SERVER_CALLS,
    read_call,
    read_input,
    read_server_call,
    whole_part,
)
from gateway.wire.messages.usage import merge_counts, parse_usage

STOPS: Final = {
    "end_turn": StopReason.END_TURN,
    "max_tokens": StopReason.MAX_TOKENS,
    "stop_sequence": StopReason.STOP_SEQUENCE,
    "tool_use": StopReason.TOOL_CALL,
    "pause_turn": StopReason.PAUSE,
    "refusal": StopReason.REFUSAL,
    "model_context_window_exceeded": StopReason.CONTEXT_WINDOW,
    "compaction": StopReason.COMPACTION,
}


class MessagesDecoder:
    """Blocks are known by their `index`; where it is missing, the newest one is meant."""

    __slots__ = (
        "_assembly",
        "_counts",
        "_explanation",
        "_index",
        "_last_delta",
        "_stop",
        "_stop_sequence",
    )

    def __init__(self) -> None:
        self._assembly = Assembly()
        self._counts: Payload | None = None
        self._index = -1
        self._stop: StopReason | None = None
        self._stop_sequence: str | None = None
        self._last_delta: Opaque | None = None
        self._explanation = ""

    def decode(self, name: bytes, data: Payload) -> Sequence[Event]:
        if self._assembly.over:
            return ()
        handle = self._HANDLERS.get(read_text(data.get("type")) or name.decode("ascii", "replace"))
        if handle is not None:
            handle(self, data)
        elif name == b"error" or data.get("error"):
            self._on_error(data)
        return self._assembly.take()

    def done(self) -> Sequence[Event]:
        return ()

    def close(self) -> Sequence[Event]:
        if self._stop is not None:
            self._on_stop({})
        else:
            self._assembly.cut(parse_usage(self._counts))
        return self._assembly.take()

    def _on_start(self, data: Payload) -> None:
        message = read_object(data.get("message"))
        self._counts = merge_counts(self._counts, message.get("usage"))
        self._assembly.begin(
            Begin(
                id=read_text(message.get("id")),
                model=read_text(message.get("model")),
                usage=parse_usage(self._counts),
                extra=Opaque(Format.MESSAGES, message),
            )
        )

    def _on_block_start(self, data: Payload) -> None:
        block = read_object(data.get("content_block"))
        given = data.get("index")
        self._index = given if isinstance(given, int) else self._index + 1
        kind = read_text(block.get("type"))
        if kind == "text":
            self._open_text(block)
        elif kind == "thinking":
            self._open_thinking(block)
        elif kind == CALL:
            self._assembly.open(self._index, read_call(block), read_input(block))
        elif kind in SERVER_CALLS:
            self._assembly.open(self._index, read_server_call(block), read_input(block))
        else:
            self._assembly.open(self._index, whole_part(kind, block))

    def _open_text(self, block: Payload) -> None:
        self._assembly.open(self._index, Text())
        self._assembly.add(self._index, read_text(block.get("text")))
        citations = block.get("citations")
        for citation in citations if isinstance(citations, list) else ():
            self._assembly.add(self._index, parse_citation(read_object(citation)))

    def _open_thinking(self, block: Payload) -> None:
        self._assembly.open(self._index, Thinking())
        self._assembly.add(self._index, read_text(block.get("thinking")))
        self._sign(self._index, block)

    def _on_block_delta(self, data: Payload) -> None:
        delta = read_object(data.get("delta"))
        index = data.get("index")
        if not isinstance(index, int):
            index = self._index
        kind = delta.get("type")
        if kind == "text_delta":
            self._grow(index, _TEXT, delta.get("text"))
        elif kind == "thinking_delta":
            self._grow(index, _THINKING, delta.get("thinking"))
        elif kind == "input_json_delta":
            if isinstance(self._assembly.part(index), ToolCall | ServerToolCall):
                self._assembly.add(index, read_text(delta.get("partial_json")))
        elif kind == "signature_delta":
            self._sign(index, delta)
        elif kind == "citations_delta" and isinstance(self._assembly.part(index), Text):
            self._assembly.add(index, parse_citation(read_object(delta.get("citation"))))

    def _grow(self, index: int, opening: Part, text: Any) -> None:
        """A piece without its open block opens one, so that late text is not lost."""
        if not isinstance(text, str) or not text:
            return
        if type(self._assembly.part(index)) is not type(opening):
            self._assembly.open(index, opening)
        self._assembly.add(index, text)

    def _sign(self, index: int, holder: Payload) -> None:
        signature = read_text(holder.get("signature"))
        if signature and isinstance(self._assembly.part(index), Thinking):
            self._assembly.add(index, Signature(Opaque(Format.MESSAGES, signature)))

    def _on_block_stop(self, data: Payload) -> None:
        index = data.get("index")
        self._assembly.close(index if isinstance(index, int) else self._index)

    def _on_delta(self, data: Payload) -> None:
        delta = read_object(data.get("delta"))
        self._counts = merge_counts(self._counts, data.get("usage"))
        self._last_delta = Opaque(Format.MESSAGES, data)
        self._stop_sequence = read_text(delta.get("stop_sequence")) or self._stop_sequence
        self._explanation = read_text(read_object(delta.get("stop_details")).get("explanation"))
        if said := read_text(delta.get("stop_reason")):
            self._stop = STOPS.get(said, StopReason.END_TURN)
        if self._stop is StopReason.END_TURN and self._stop_sequence:
            self._stop = StopReason.STOP_SEQUENCE

    def _on_stop(self, data: Payload) -> None:
        if self._stop is StopReason.REFUSAL and self._index < 0:  # else its words were told
            self._grow(0, _REFUSAL, self._explanation)
        self._assembly.end(
            self._stop or StopReason.END_TURN,
            parse_usage(self._counts),
            self._stop_sequence,
            self._last_delta,
        )

    def _on_ping(self, data: Payload) -> None:
        self._assembly.ping()

    def _on_error(self, data: Payload) -> None:
        self._assembly.fail(parse_stream_error(data), parse_usage(self._counts))

    _HANDLERS: ClassVar[dict[str, Callable[[MessagesDecoder, Payload], None]]] = {
        "message_start": _on_start,
        "content_block_start": _on_block_start,
        "content_block_delta": _on_block_delta,
        "content_block_stop": _on_block_stop,
        "message_delta": _on_delta,
        "message_stop": _on_stop,
        "ping": _on_ping,
        "error": _on_error,
    }


_TEXT = Text()
_REFUSAL = Refusal()
_THINKING = Thinking()
