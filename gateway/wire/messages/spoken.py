"""Texts, reasoning and whole blocks as a messages stream tells them. It must not know calls, or
which block comes next.
"""

from __future__ import annotations

from collections.abc import Sequence

import orjson

from gateway.core.events import Signature
from gateway.core.parts import Citation, ProviderData
from gateway.wire.fields import Payload
from gateway.wire.messages.mouth import DELTA_SUFFIX, BlockWriter, Piece, delta_frames
from gateway.wire.messages.shown import render_citation


class NullBlock:
    """A part that this format has no word for."""

    __slots__ = ()

    def add(self, piece: Piece) -> bytes:
        return b""

    def close(self) -> bytes:
        return b""


class CompleteBlock(NullBlock):
    """A block of this format that is complete at its start."""

    __slots__ = ("_block", "_writer")

    def __init__(self, mouth: BlockWriter, block: Payload) -> None:
        self._writer = mouth
        self._block = block

    def close(self) -> bytes:
        return self._writer.start(self._block) + self._writer.stop()


class TextBlock:
    __slots__ = ("_prefix", "_writer", "_texts")

    def __init__(self, mouth: BlockWriter) -> None:
        self._writer = mouth
        self._prefix = b""
        self._texts: list[str] = []

    @property
    def text(self) -> str:
        """All that it has said so far."""
        return "".join(self._texts)

    def add(self, piece: Piece) -> bytes:
        if type(piece) is str and self._prefix:
            self._texts.append(piece)
            return self._prefix + orjson.dumps(piece) + DELTA_SUFFIX
        return self._add_first_or_citation(piece)

    def add_texts(self, texts: Sequence[str], json_texts: Sequence[bytes]) -> bytes:
        """Several pieces at once, and how JSON spells each of them inside its quotes."""
        start = b"" if self._prefix else self._add_first_or_citation("")
        self._texts += texts
        return start + delta_frames(self._prefix, json_texts)

    def close(self) -> bytes:
        return self._writer.stop()

    def _add_first_or_citation(self, piece: Piece) -> bytes:
        """The first piece, or a citation."""
        start = b""
        if not self._prefix:
            start = self._writer.start({"type": "text", "text": ""})
            self._prefix = self._writer.delta_prefix(b"text_delta", b"text")
        if isinstance(piece, str):
            return start + self.add(piece)
        if isinstance(piece, Citation):
            return start + self._add_citation(piece)
        return start

    def _add_citation(self, citation: Citation) -> bytes:
        shown = render_citation(citation, self.text)
        if shown is None:
            self._writer.dropped.add("citations")
            return b""
        return self._writer.delta_prefix(b"citations_delta", b"citation") + orjson.dumps(shown) + DELTA_SUFFIX


class ThinkingBlock:
    """The signature is told last and once: clients keep the last one they hear."""

    __slots__ = ("_prefix", "_writer", "_signature")

    def __init__(self, mouth: BlockWriter) -> None:
        self._writer = mouth
        self._prefix = b""
        self._signature: ProviderData | None = None

    def add(self, piece: Piece) -> bytes:
        if type(piece) is str:
            return self._start() + self._prefix + orjson.dumps(piece) + DELTA_SUFFIX
        if isinstance(piece, Signature):
            self._signature = piece.value
        return b""

    def add_texts(self, texts: Sequence[str], json_texts: Sequence[bytes]) -> bytes:
        """Several pieces at once, and how JSON spells each of them inside its quotes."""
        start = self._start()
        return start + delta_frames(self._prefix, json_texts)

    def close(self) -> bytes:
        if not self._prefix and self._signature is None:
            return b""
        start = self._start()
        signature = orjson.dumps(self._writer.signature(self._signature))
        head = self._writer.delta_prefix(b"signature_delta", b"signature")
        return start + head + signature + DELTA_SUFFIX + self._writer.stop()

    def _start(self) -> bytes:
        if self._prefix:
            return b""
        start = self._writer.start({"type": "thinking", "thinking": "", "signature": ""})
        self._prefix = self._writer.delta_prefix(b"thinking_delta", b"thinking")
        return start


class RedactedBlock:
    """Reasoning that nobody can read: the block is nothing but its proof."""

    __slots__ = ("_writer", "_signature")

    def __init__(self, mouth: BlockWriter) -> None:
        self._writer = mouth
        self._signature: ProviderData | None = None

    def add(self, piece: Piece) -> bytes:
        if isinstance(piece, Signature):
            self._signature = piece.value
        return b""

    def close(self) -> bytes:
        if self._signature is None:
            return b""
        data = self._writer.signature(self._signature, redacted=True)
        return self._writer.start({"type": "redacted_thinking", "data": data}) + self._writer.stop()
