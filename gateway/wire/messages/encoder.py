"""Speaks events as a messages stream. It must not know which upstream they came from.

The grammar allows one open block at a time, while calls may arrive side by side: they stand in line
and the first of them is told as it arrives. It is done when its end comes, or when another one is
waiting and nothing can be missing in it any more. Public grammar: Messages, "Streaming messages".
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence, Set
from typing import Any, ClassVar, Final

import orjson

from gateway.core.events import Begin, Close, Delta, End, Event, Open, Ping, StopReason
from gateway.core.parts import Refusal, ToolCall
from gateway.core.prompt import Prompt
from gateway.errors import GatewayError
from gateway.wire.codec import ReplyMetadata
from gateway.wire.messages.errors import error_frame
from gateway.wire.messages.message import render_end, opening_message, reported_stop, reported_usage
from gateway.wire.messages.mouth import StreamBlock, BlockWriter
from gateway.wire.messages.opening import initial_deltas, open_block, open_call
from gateway.wire.messages.shown import EMPTY_TEXT
from gateway.wire.messages.spoken import TextBlock, ThinkingBlock
from gateway.wire.messages.spoken_calls import CallBlock, SearchesById
from gateway.wire.sse import write_frame

PING: Final = write_frame(b"ping", b'{"type":"ping"}')
_STOP: Final = write_frame(b"message_stop", b'{"type":"message_stop"}')


class MessagesEncoder:
    __slots__ = (
        "_blocks",
        "_has_calls",
        "_calls",
        "_writer",
        "_prompt",
        "_refusal",
        "_searches",
        "_metadata",
    )

    def __init__(self, prompt: Prompt, stamp: ReplyMetadata) -> None:
        self._prompt = prompt
        self._metadata = stamp
        self._writer = BlockWriter(stamp)
        self._blocks: dict[int, StreamBlock] = {}
        self._calls: deque[CallBlock] = deque()
        self._has_calls = False
        self._searches: SearchesById = {}
        self._refusal: TextBlock | None = None

    @property
    def dropped(self) -> Set[str]:
        return self._writer.dropped

    def encode(self, event: Event) -> bytes:
        if type(event) is Delta:
            return self._blocks[event.index].add(event.piece)
        return self._HANDLERS[type(event)](self, event)

    def encode_text_run(self, index: int, texts: Sequence[str], json_texts: Sequence[bytes]) -> bytes:
        block = self._blocks[index]
        if isinstance(block, TextBlock | ThinkingBlock):
            return block.add_texts(texts, json_texts)
        return b"".join(map(block.add, texts))

    def ping(self) -> bytes:
        return PING

    def encode_error(self, error: GatewayError) -> bytes:
        """A call that is cut off is not completed: it might be run."""
        return self._writer.stop() + error_frame(error)

    def _on_begin(self, event: Begin) -> bytes:
        message = opening_message(self._prompt, self._metadata, event.usage)
        data = {"type": "message_start", "message": message}
        return write_frame(b"message_start", orjson.dumps(data))

    def _on_open(self, event: Open) -> bytes:
        part = event.part
        out = b""
        if isinstance(part, ToolCall):
            self._has_calls = True
            call = open_call(part, self._writer)
            self._calls.append(call)
            out = call.start() if len(self._calls) == 1 else self._start_next_call()
            block: StreamBlock = call
        else:
            block = open_block(part, self._writer, self._searches)
            if isinstance(block, CallBlock):
                out = block.start()
            elif isinstance(part, Refusal) and isinstance(block, TextBlock):
                self._refusal = block
        self._blocks[event.index] = block
        return out + b"".join(map(block.add, initial_deltas(part)))

    def _on_close(self, event: Close) -> bytes:
        block = self._blocks.pop(event.index)
        if isinstance(block, CallBlock):
            block.closed = True
            if block in self._calls:
                return self._start_next_call()
        return block.close()

    def _start_next_call(self) -> bytes:
        """Ends the calls at the head of the line that are complete, and begins the next one. The
        last in line is complete only when it is closed."""
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
        refusal = self._refusal
        stop = reported_stop(
            event.stop, event.stop_sequence, has_calls=self._has_calls, has_refusal=refusal is not None
        )
        out = b""
        if self._writer.index < 0 and stop is StopReason.END_TURN:
            out = self._writer.start(dict(EMPTY_TEXT)) + self._writer.stop()
        said = refusal.text if refusal else ""
        data = {
            "type": "message_delta",
            "delta": render_end(stop, event.stop_sequence, said, event.extra),
            "usage": reported_usage(event.usage, self._metadata),
        }
        return out + write_frame(b"message_delta", orjson.dumps(data)) + _STOP

    _HANDLERS: ClassVar[dict[type[Event], Callable[[MessagesEncoder, Any], bytes]]] = {
        Begin: _on_begin,
        Open: _on_open,
        Close: _on_close,
        Ping: _on_ping,
        End: _on_end,
    }
