"""Writes a reply for its client from events instead of the bytes of one upstream."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

from gateway.core.events import End, Event, Fail
from gateway.wire.codec import Encoder
from gateway.wire.json.fields import Payload
from gateway.wire.stream.translator import CrossFormatTranslator
from gateway.wire.upstream_errors import truncated_failure


class EventQueue:
    """Events that wait to be encoded. `is_estimated`: their usage is, at least in part."""

    __slots__ = ("events", "is_estimated")

    def __init__(self) -> None:
        self.events: deque[Event] = deque()
        self.is_estimated = False


class _NoDecoder:
    """A decoder without frames: if events end without a terminal one, the reply is cut off."""

    def decode(self, name: bytes, data: Payload) -> Sequence[Event]:
        return ()

    def done(self) -> Sequence[Event]:
        return ()

    def close(self) -> Sequence[Event]:
        return (Fail(truncated_failure(started=True), None),)


_NO_DECODER: Final = _NoDecoder()


class EventTranslator(CrossFormatTranslator):
    """A translator of events that are in its queue: what it receives only says that there are new
    ones."""

    __slots__ = ("_queue",)

    def __init__(self, queue: EventQueue, encoder: Encoder, *, input_tokens: int = 0) -> None:
        super().__init__(_NO_DECODER, encoder, input_tokens=input_tokens)
        self._queue = queue

    def _process(self, chunk: bytes) -> list[bytes]:
        out: list[bytes] = []
        if self.has_more:
            self.has_more = self._handle_rest(out)
        events = self._queue.events
        while events and not (self.has_more or self._finished):
            self.frames += 1
            self._encode((events.popleft(),), out)
        return out

    def _observe(self, event: Event) -> None:
        super()._observe(event)
        if self._queue.is_estimated and isinstance(event, End | Fail):
            self.usage, self.usage_is_final = None, False
