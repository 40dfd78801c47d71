"""What the blocks of one messages stream share while it is spoken. It must not know what they say.

Public grammar: Messages, "Streaming messages"; one block at a time, indexes without gaps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

import orjson

from gateway.core.events import Signature
from gateway.core.formats import Format
from gateway.core.parts import Citation, ProviderData
from gateway.wire.carrier import wrap
from gateway.wire.codec import ReplyMetadata
from gateway.wire.fields import Payload
from gateway.wire.identity import sanitize_name

Piece = str | Signature | Citation

DELTA_SUFFIX: Final = b"}}\n\n"
"""What follows the piece in a delta's frame."""
_DELTA_PREFIX: Final = (
    b'event: content_block_delta\ndata: {"type":"content_block_delta","index":%d,'
    b'"delta":{"type":"%b","%b":'
)
_BLOCK_STOP: Final = b'event: content_block_stop\ndata: {"type":"content_block_stop","index":%d}\n\n'


def delta_frames(prefix: bytes, json_texts: Sequence[bytes]) -> bytes:
    """The frames of pieces of one part; `head` is what comes before each of them, and `spelled`
    says how JSON spells them inside their quotes."""
    between = b'"%b%b"' % (DELTA_SUFFIX, prefix)
    return b'%b"%b"%b' % (prefix, between.join(json_texts), DELTA_SUFFIX)


class StreamBlock(Protocol):
    """One block: it starts with the first thing that it has to say, and what never says anything
    is never shown. Pieces that do not fit it are left out."""

    def add(self, piece: Piece) -> bytes: ...

    def close(self) -> bytes: ...


class BlockWriter:
    """What the blocks of one message share: the next index, whether one is being told, what was
    lost on the way, and the ids that are taken."""

    __slots__ = ("_ids", "_client_ids", "_metadata", "index", "dropped", "block_open")

    def __init__(self, stamp: ReplyMetadata) -> None:
        self._metadata = stamp
        self.index = -1
        self.block_open = False
        self.dropped: set[str] = set()
        self._ids: set[str] = set()
        self._client_ids: dict[str, str] = {}

    def start(self, block: Payload) -> bytes:
        self.index += 1
        self.block_open = True
        data = {"type": "content_block_start", "index": self.index, "content_block": block}
        return b"event: content_block_start\ndata: %b\n\n" % orjson.dumps(data)

    def delta_prefix(self, kind: bytes, field: bytes) -> bytes:
        """All of a delta's frame that comes before the piece."""
        return _DELTA_PREFIX % (self.index, kind, field)

    def stop(self) -> bytes:
        if not self.block_open:
            return b""
        self.block_open = False
        return _BLOCK_STOP % self.index

    def call_id(self, id: str, shown: str | None = None) -> str:
        """The id that a call is shown under, `shown` if need be: a legal one that no other call of
        this message has."""
        new = sanitize_name(shown or id) if id else ""
        if not new or new in self._ids:
            new = f"toolu_{self._metadata.reply_id}_{len(self._ids)}"
        self._ids.add(new)
        self._client_ids[id] = new
        return new

    def result_id(self, id: str) -> str:
        """The id that the call of a result was shown under."""
        return self._client_ids.get(id) or sanitize_name(id)

    def signature(self, value: ProviderData | None, *, redacted: bool = False) -> str:
        """This format's own signatures as they are, others as something that comes back."""
        if value and value.format is Format.MESSAGES and isinstance(value.data, str) and value.data:
            return value.data
        return wrap(value, self._metadata.origin, redacted=redacted)
