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
from gateway.wire.codec import Stamp
from gateway.wire.messages.errors import error_frame
from gateway.wire.messages.message import ending, opening_message, told_stop, told_usage
from gateway.wire.messages.mouth import Block, Mouth
from gateway.wire.messages.opening import first_pieces, open_block, open_call
from gateway.wire.messages.shown import NO_WORDS
from gateway.wire.messages.spoken import TextBlock, ThinkingBlock
from gateway.wire.messages.spoken_calls import CallBlock, Searches
from gateway.wire.sse import write_frame

PING: Final = write_frame(b"ping", b'{"type":"ping"}')
_STOP: Final = write_frame(b"message_stop", b'{"type":"message_stop"}')


class MessagesEncoder:
    __slots__ = (
        "_blocks",
        "_called",
        "_calls",
        "_mouth",
        "_prompt",
        "_refusal",
        "_searches",
        "_stamp",
    )

    def __init__(self, prompt: Prompt, stamp: Stamp) -> None:
        self._prompt = prompt
        self._stamp = stamp
        self._mouth = Mouth(stamp)
        self._blocks: dict[int, Block] = {}
        self._calls: deque[CallBlock] = deque()
        self._called = False
        self._searches: Searches = {}
        self._refusal: TextBlock | None = None

    @property
    def dropped(self) -> Set[str]:
        return self._mouth.lost

    def encode(self, event: Event) -> bytes:
        if type(event) is Delta:
            return self._blocks[event.index].add(event.piece)
        return self._SPEAK[type(event)](self, event)

    def encode_texts(self, index: int, texts: Sequence[str], spelled: Sequence[bytes]) -> bytes:
        block = self._blocks[index]
        if isinstance(block, TextBlock | ThinkingBlock):
            return block.add_texts(texts, spelled)
        return b"".join(map(block.add, texts))

    def ping(self) -> bytes:
        return PING

    def fail(self, error: GatewayError) -> bytes:
        """A call that is cut off is not completed: it might be run."""
        return self._mouth.stop() + error_frame(error)

    def _on_begin(self, event: Begin) -> bytes:
        message = opening_message(self._prompt, self._stamp, event.usage)
        data = {"type": "message_start", "message": message}
        return write_frame(b"message_start", orjson.dumps(data))

    def _on_open(self, event: Open) -> bytes:
        part = event.part
        out = b""
        if isinstance(part, ToolCall):
            self._called = True
            call = open_call(part, self._mouth)
            self._calls.append(call)
            out = call.start() if len(self._calls) == 1 else self._move_on()
            block: Block = call
        else:
            block = open_block(part, self._mouth, self._searches)
            if isinstance(block, CallBlock):
                out = block.start()
            elif isinstance(part, Refusal) and isinstance(block, TextBlock):
                self._refusal = block
        self._blocks[event.index] = block
        return out + b"".join(map(block.add, first_pieces(part)))

    def _on_close(self, event: Close) -> bytes:
        block = self._blocks.pop(event.index)
        if isinstance(block, CallBlock):
            block.closed = True
            if block in self._calls:
                return self._move_on()
        return block.close()

    def _move_on(self) -> bytes:
        """Ends the calls at the head of the line that are complete, and begins the next one. The
        last in line is complete only when it is closed."""
        out = b""
        while self._calls:
            first = self._calls[0]
            if not (first.closed or (len(self._calls) > 1 and first.complete)):
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
        stop = told_stop(
            event.stop, event.stop_sequence, called=self._called, refused=refusal is not None
        )
        out = b""
        if self._mouth.index < 0 and stop is StopReason.END_TURN:
            out = self._mouth.start(dict(NO_WORDS)) + self._mouth.stop()
        said = refusal.text if refusal else ""
        data = {
            "type": "message_delta",
            "delta": ending(stop, event.stop_sequence, said, event.extra),
            "usage": told_usage(event.usage, self._stamp),
        }
        return out + write_frame(b"message_delta", orjson.dumps(data)) + _STOP

    _SPEAK: ClassVar[dict[type[Event], Callable[[MessagesEncoder, Any], bytes]]] = {
        Begin: _on_begin,
        Open: _on_open,
        Close: _on_close,
        Ping: _on_ping,
        End: _on_end,
    }
