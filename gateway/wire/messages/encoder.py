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
from gateway.core.formats import Format
from gateway.core.parts import Opaque, Refusal, ToolCall
from gateway.core.prompt import Prompt
from gateway.core.usage import Usage
from gateway.errors import GatewayError
from gateway.wire.codec import Stamp
from gateway.wire.fields import Payload
from gateway.wire.lenient import read_object
from gateway.wire.messages.errors import error_frame
from gateway.wire.messages.mouth import Block, Mouth
from gateway.wire.messages.opening import first_pieces, open_block, open_call
from gateway.wire.messages.spoken import TextBlock, ThinkingBlock
from gateway.wire.messages.spoken_calls import CallBlock, Searches
from gateway.wire.messages.stream import STOPS
from gateway.wire.messages.usage import render_usage
from gateway.wire.sse import write_frame

PING: Final = write_frame(b"ping", b'{"type":"ping"}')
_STOP: Final = write_frame(b"message_stop", b'{"type":"message_stop"}')
_WORDS: Final = {stop: word for word, stop in STOPS.items()}
_LAST_DETAILS: Final = ("stop_details", "container")
"""What this format's own upstream may say at the end beside the reason."""


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
        message: Payload = {
            "id": f"msg_{self._stamp.reply_id}",
            "type": "message",
            "role": "assistant",
            "model": self._prompt.model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": self._usage(event.usage),
        }
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
        stop = self._stop(event)
        out = b""
        if self._mouth.index < 0 and stop is StopReason.END_TURN:
            # Coding agents take a message without any content for a failure and ask again.
            out = self._mouth.start({"type": "text", "text": ""}) + self._mouth.stop()
        delta: Payload = {
            "stop_reason": _WORDS[stop],
            "stop_sequence": event.stop_sequence if stop is StopReason.STOP_SEQUENCE else None,
        }
        if stop is StopReason.REFUSAL:
            said = self._refusal.text if self._refusal else ""
            delta["stop_details"] = {
                "type": "refusal",
                "category": None,
                "explanation": said or None,
            }
        data = {
            "type": "message_delta",
            "delta": delta | _details(event.extra),
            "usage": self._usage(event.usage),
        }
        return out + write_frame(b"message_delta", orjson.dumps(data)) + _STOP

    def _stop(self, event: End) -> StopReason:
        """Agents go on by this alone, so it must fit what they have been told."""
        stop = event.stop
        if stop is StopReason.STOP_SEQUENCE and event.stop_sequence is None:
            stop = StopReason.END_TURN
        if self._called and stop in (StopReason.END_TURN, StopReason.STOP_SEQUENCE):
            return StopReason.TOOL_CALL
        if not self._called and stop is StopReason.TOOL_CALL:
            stop = StopReason.END_TURN
        if self._refusal is not None and stop is StopReason.END_TURN:
            return StopReason.REFUSAL
        return stop

    def _usage(self, usage: Usage | None) -> Payload:
        return render_usage(usage or Usage(input_tokens=self._stamp.input_tokens))

    _SPEAK: ClassVar[dict[type[Event], Callable[[MessagesEncoder, Any], bytes]]] = {
        Begin: _on_begin,
        Open: _on_open,
        Close: _on_close,
        Ping: _on_ping,
        End: _on_end,
    }


def _details(extra: Opaque | None) -> Payload:
    if extra is None or extra.format is not Format.MESSAGES:
        return {}
    delta = read_object(extra.data.get("delta"))
    return {name: delta[name] for name in _LAST_DETAILS if delta.get(name) is not None}
