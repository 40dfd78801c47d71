"""What output items have in common as they are told to a client. It must not know their types.

An item is begun, grows piece by piece, ends with its part, and is done when nothing more can come:
only then is it known whether it is complete.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from gateway.core.events import Signature
from gateway.core.formats import Format
from gateway.core.parts import Citation, ProviderData, Part
from gateway.wire.fields import Payload
from gateway.wire.lenient import lenient_object
from gateway.wire.responses.pen import EventWriter

Piece = str | Signature | Citation

COMPLETED = "completed"
INCOMPLETE = "incomplete"


class ItemEncoder(ABC):
    """`body` is the item as it stands: whole once it is done."""

    __slots__ = ("_index", "_writer", "body")

    def __init__(self, writer: EventWriter, index: int, body: Payload) -> None:
        self._writer = writer
        self._index = index
        self.body = body

    def begin(self, part: Part) -> bytes:
        """The item as it opens, and what its part says from the start."""
        return self._emit("output_item.added")

    def continue_with(self, part: Part) -> bytes | None:
        """Goes on with a part that opens after the item's own has ended; None where that part
        belongs to another item."""
        return None

    @abstractmethod
    def add(self, piece: Piece) -> bytes:
        """One more piece of the open part."""

    def add_text_run(self, texts: Sequence[str], json_texts: Sequence[bytes]) -> bytes:
        """Several pieces of it, and how JSON spells each of them inside its quotes."""
        return b"".join(map(self.add, texts))

    @abstractmethod
    def end_part(self) -> bytes:
        """The open part has closed."""

    def is_complete(self) -> bool:
        """False where the part can be seen to have been cut off."""
        return True

    def finish(self, status: str) -> bytes:
        self.body["status"] = status
        return self._emit("output_item.done")

    def _emit(self, kind: str) -> bytes:
        return self._writer.write(kind, {"output_index": self._index, "item": self.body})

    def _position(self, **inside: int) -> Payload:
        """Where in the output an event belongs."""
        return {"item_id": self.body["id"], "output_index": self._index, **inside}


def native_fields(extra: ProviderData | None) -> Payload:
    """What an upstream of this format has said beyond the hub's words."""
    if extra is None or extra.format is not Format.RESPONSES:
        return {}
    return lenient_object(extra.data)
