"""What the blocks of one messages stream share while it is spoken. It must not know what they say.

Public grammar: Messages, "Streaming messages"; one block at a time, indexes without gaps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

import orjson

from gateway.core.events import Signature
from gateway.core.formats import Format
from gateway.core.parts import Citation, Opaque
from gateway.wire.carrier import pack
from gateway.wire.codec import Stamp
from gateway.wire.fields import Payload
from gateway.wire.identity import legal

Piece = str | Signature | Citation

TAIL: Final = b"}}\n\n"
"""What follows the piece in a delta's frame."""
_DELTA: Final = (
    b'event: content_block_delta\ndata: {"type":"content_block_delta","index":%d,'
    b'"delta":{"type":"%b","%b":'
)
_STOP: Final = b'event: content_block_stop\ndata: {"type":"content_block_stop","index":%d}\n\n'


def frames(head: bytes, spelled: Sequence[bytes]) -> bytes:
    """The frames of pieces of one part; `head` is what comes before each of them, and `spelled`
    says how JSON spells them inside their quotes."""
    between = b'"%b%b"' % (TAIL, head)
    return b'%b"%b"%b' % (head, between.join(spelled), TAIL)


class Block(Protocol):
    """One block: it starts with the first thing that it has to say, and what never says anything
    is never shown. Pieces that do not fit it are left out."""

    def add(self, piece: Piece) -> bytes: ...

    def close(self) -> bytes: ...


class Mouth:
    """What the blocks of one message share: the next index, whether one is being told, what was
    lost on the way, and the ids that are taken."""

    __slots__ = ("_ids", "_shown", "_stamp", "index", "lost", "telling")

    def __init__(self, stamp: Stamp) -> None:
        self._stamp = stamp
        self.index = -1
        self.telling = False
        self.lost: set[str] = set()
        self._ids: set[str] = set()
        self._shown: dict[str, str] = {}

    def start(self, block: Payload) -> bytes:
        self.index += 1
        self.telling = True
        data = {"type": "content_block_start", "index": self.index, "content_block": block}
        return b"event: content_block_start\ndata: %b\n\n" % orjson.dumps(data)

    def head(self, kind: bytes, field: bytes) -> bytes:
        """All of a delta's frame that comes before the piece."""
        return _DELTA % (self.index, kind, field)

    def stop(self) -> bytes:
        if not self.telling:
            return b""
        self.telling = False
        return _STOP % self.index

    def call_id(self, id: str, shown: str | None = None) -> str:
        """The id that a call is shown under, `shown` if need be: a legal one that no other call of
        this message has."""
        new = legal(shown or id) if id else ""
        if not new or new in self._ids:
            new = f"toolu_{self._stamp.reply_id}_{len(self._ids)}"
        self._ids.add(new)
        self._shown[id] = new
        return new

    def result_id(self, id: str) -> str:
        """The id that the call of a result was shown under."""
        return self._shown.get(id) or legal(id)

    def signature(self, value: Opaque | None, *, redacted: bool = False) -> str:
        """This format's own signatures as they are, others as something that comes back."""
        if value and value.format is Format.MESSAGES and isinstance(value.data, str) and value.data:
            return value.data
        return pack(value, self._stamp.origin, redacted=redacted)
