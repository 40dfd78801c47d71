"""Takes events where an encoder is expected, and keeps them: a stream becomes a whole reply.

It must not know any format: nothing is spoken.
"""

from __future__ import annotations

from collections.abc import Sequence, Set

from gateway.core.events import Delta, Event
from gateway.core.reply import Reply, collect_reply
from gateway.errors import GatewayError


class ReplyCollector:
    """See `gateway.wire.codec.Encoder`."""

    __slots__ = ("_events",)

    dropped: Set[str] = frozenset()

    def __init__(self) -> None:
        self._events: list[Event] = []

    @property
    def reply(self) -> Reply:
        """Of a stream that has ended well."""
        return collect_reply(self._events)

    def encode(self, event: Event) -> bytes:
        self._events.append(event)
        return b""

    def encode_text_run(self, index: int, texts: Sequence[str], json_texts: Sequence[bytes]) -> bytes:
        self._events.append(Delta(index, "".join(texts)))
        return b""

    def ping(self) -> bytes:
        return b""

    def encode_error(self, error: GatewayError) -> bytes:
        return b""
