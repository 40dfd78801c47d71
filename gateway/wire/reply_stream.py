"""Complete replies from streams, and streams from complete replies."""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Final

from gateway.core.events import Delta, Event, Usage
from gateway.core.reply import Reply, collect_reply, count_output_chars, cut_deltas, reply_events
from gateway.core.value import replace
from gateway.errors import GatewayError
from gateway.wire.codec import Encoder

_MAX_DELTA: Final = 3000
"""Characters of a delta where a complete reply is sent as a stream."""


class ReplyCollector:
    """An `Encoder` that keeps the events: a stream becomes a complete reply."""

    __slots__ = ("_events",)

    dropped: Set[str] = frozenset()

    def __init__(self) -> None:
        self._events: list[Event] = []

    @property
    def events(self) -> Sequence[Event]:
        return self._events

    @property
    def reply(self) -> Reply:
        """Returns the reply of a complete stream."""
        return collect_reply(self._events)

    def encode(self, event: Event) -> bytes:
        self._events.append(event)
        return b""

    def encode_text_run(
        self, index: int, texts: Sequence[str], json_texts: Sequence[bytes]
    ) -> bytes:
        self._events.append(Delta(index, "".join(texts)))
        return b""

    def ping(self) -> bytes:
        return b""

    def encode_error(self, error: GatewayError, *, withheld: bool = False) -> bytes:
        return b""


def encode_reply(reply: Reply, encoder: Encoder) -> bytes:
    """A complete reply as a stream."""
    return b"".join(map(encoder.encode, cut_deltas(reply_events(reply), _MAX_DELTA)))


def with_estimated_usage(reply: Reply, input_tokens: int) -> Reply:
    """The reply with an estimate where the upstream counted nothing, as in a stream."""
    if reply.usage is not None:
        return reply
    return replace(reply, usage=Usage.estimated(input_tokens, count_output_chars(reply)))
