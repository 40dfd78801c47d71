"""What output items have in common as they are told to a client. It must not know their types.

An item is begun, grows piece by piece, ends with its part, and is done when nothing more can come:
only then is it known whether it is complete.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from gateway.core.events import Signature
from gateway.core.formats import Format
from gateway.core.parts import Citation, Opaque, Part
from gateway.wire.fields import Payload
from gateway.wire.lenient import read_object
from gateway.wire.responses.pen import Pen

Piece = str | Signature | Citation

COMPLETED = "completed"
INCOMPLETE = "incomplete"


class OutgoingItem(ABC):
    """`body` is the item as it stands: whole once it is done."""

    __slots__ = ("_index", "_pen", "body")

    def __init__(self, pen: Pen, index: int, body: Payload) -> None:
        self._pen = pen
        self._index = index
        self.body = body

    def begin(self, part: Part) -> bytes:
        """The item as it opens, and what its part says from the start."""
        return self._tell("output_item.added")

    def take(self, part: Part) -> bytes | None:
        """Goes on with a part that opens after the item's own has ended; None where that part
        belongs to another item."""
        return None

    @abstractmethod
    def add(self, piece: Piece) -> bytes:
        """One more piece of the open part."""

    def add_texts(self, texts: Sequence[str], spelled: Sequence[bytes]) -> bytes:
        """Several pieces of it, and how JSON spells each of them inside its quotes."""
        return b"".join(map(self.add, texts))

    @abstractmethod
    def end(self) -> bytes:
        """The open part has closed."""

    def is_whole(self) -> bool:
        """False where the part can be seen to have been cut off."""
        return True

    def done(self, status: str) -> bytes:
        self.body["status"] = status
        return self._tell("output_item.done")

    def _tell(self, kind: str) -> bytes:
        return self._pen.write(kind, {"output_index": self._index, "item": self.body})

    def _place(self, **inside: int) -> Payload:
        """Where in the output an event belongs."""
        return {"item_id": self.body["id"], "output_index": self._index, **inside}


def own_fields(extra: Opaque | None) -> Payload:
    """What an upstream of this format has said beyond the hub's words."""
    if extra is None or extra.format is not Format.RESPONSES:
        return {}
    return read_object(extra.data)
