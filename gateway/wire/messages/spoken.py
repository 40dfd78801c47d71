"""Texts, reasoning and whole blocks as a messages stream tells them. It must not know calls, or
which block comes next.
"""

from __future__ import annotations

from collections.abc import Sequence

import orjson

from gateway.core.events import Signature
from gateway.core.parts import Citation, Opaque
from gateway.wire.fields import Payload
from gateway.wire.messages.mouth import TAIL, Mouth, Piece, frames
from gateway.wire.messages.shown import shown_citation


class SilentBlock:
    """A part that this format has no word for."""

    __slots__ = ()

    def add(self, piece: Piece) -> bytes:
        return b""

    def close(self) -> bytes:
        return b""


class WholeBlock(SilentBlock):
    """A block of this format that is complete at its start."""

    __slots__ = ("_block", "_mouth")

    def __init__(self, mouth: Mouth, block: Payload) -> None:
        self._mouth = mouth
        self._block = block

    def close(self) -> bytes:
        return self._mouth.start(self._block) + self._mouth.stop()


class TextBlock:
    __slots__ = ("_head", "_mouth", "_said")

    def __init__(self, mouth: Mouth) -> None:
        self._mouth = mouth
        self._head = b""
        self._said: list[str] = []

    @property
    def text(self) -> str:
        """All that it has said so far."""
        return "".join(self._said)

    def add(self, piece: Piece) -> bytes:
        if type(piece) is str and self._head:
            self._said.append(piece)
            return self._head + orjson.dumps(piece) + TAIL
        return self._other(piece)

    def add_texts(self, texts: Sequence[str], spelled: Sequence[bytes]) -> bytes:
        """Several pieces at once, and how JSON spells each of them inside its quotes."""
        start = b"" if self._head else self._other("")
        self._said += texts
        return start + frames(self._head, spelled)

    def close(self) -> bytes:
        return self._mouth.stop()

    def _other(self, piece: Piece) -> bytes:
        """The first piece, or a citation."""
        start = b""
        if not self._head:
            start = self._mouth.start({"type": "text", "text": ""})
            self._head = self._mouth.head(b"text_delta", b"text")
        if isinstance(piece, str):
            return start + self.add(piece)
        if isinstance(piece, Citation):
            return start + self._cite(piece)
        return start

    def _cite(self, citation: Citation) -> bytes:
        shown = shown_citation(citation, self.text)
        if shown is None:
            self._mouth.lost.add("citations")
            return b""
        return self._mouth.head(b"citations_delta", b"citation") + orjson.dumps(shown) + TAIL


class ThinkingBlock:
    """The signature is told last and once: clients keep the last one they hear."""

    __slots__ = ("_head", "_mouth", "_signature")

    def __init__(self, mouth: Mouth) -> None:
        self._mouth = mouth
        self._head = b""
        self._signature: Opaque | None = None

    def add(self, piece: Piece) -> bytes:
        if type(piece) is str:
            return self._start() + self._head + orjson.dumps(piece) + TAIL
        if isinstance(piece, Signature):
            self._signature = piece.value
        return b""

    def add_texts(self, texts: Sequence[str], spelled: Sequence[bytes]) -> bytes:
        """Several pieces at once, and how JSON spells each of them inside its quotes."""
        start = self._start()
        return start + frames(self._head, spelled)

    def close(self) -> bytes:
        if not self._head and self._signature is None:
            return b""
        start = self._start()
        signature = orjson.dumps(self._mouth.signature(self._signature))
        head = self._mouth.head(b"signature_delta", b"signature")
        return start + head + signature + TAIL + self._mouth.stop()

    def _start(self) -> bytes:
        if self._head:
            return b""
        start = self._mouth.start({"type": "thinking", "thinking": "", "signature": ""})
        self._head = self._mouth.head(b"thinking_delta", b"thinking")
        return start


class RedactedBlock:
    """Reasoning that nobody can read: the block is nothing but its proof."""

    __slots__ = ("_mouth", "_signature")

    def __init__(self, mouth: Mouth) -> None:
        self._mouth = mouth
        self._signature: Opaque | None = None

    def add(self, piece: Piece) -> bytes:
        if isinstance(piece, Signature):
            self._signature = piece.value
        return b""

    def close(self) -> bytes:
        if self._signature is None:
            return b""
        data = self._mouth.signature(self._signature, redacted=True)
        return self._mouth.start({"type": "redacted_thinking", "data": data}) + self._mouth.stop()
