"""Writes the events of one stream, numbered without gaps. It must not know what they tell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import orjson

from gateway.wire.fields import Payload

_FRAME_HEAD: Final = b'event: %b\ndata: {"type":"%b","sequence_number":'


class EventWriter:
    """`sequence` is the number of the next event."""

    __slots__ = ("sequence",)

    def __init__(self) -> None:
        self.sequence = 0

    def write(self, kind: str, fields: Payload) -> bytes:
        """One event; `kind` is its type without the prefix that they share."""
        name = b"response." + kind.encode()
        number = self.sequence
        self.sequence = number + 1
        return b"%b%d,%b\n\n" % (_FRAME_HEAD % (name, name), number, orjson.dumps(fields)[1:])

    def delta_writer(self, kind: str, position: Payload, trailer: Payload | None = None) -> DeltaWriter:
        """For events of one kind about one part; see `Line`."""
        return DeltaWriter(self, kind, position, trailer)


class DeltaWriter:
    """Writes events that differ in their piece alone: nearly all that a stream has."""

    __slots__ = ("_after", "_before", "_end", "_writer")

    def __init__(self, writer: EventWriter, kind: str, position: Payload, trailer: Payload | None = None) -> None:
        """`place` says where the pieces belong; `more` stands behind each of them."""
        name = b"response." + kind.encode()
        self._writer = writer
        self._before = _FRAME_HEAD % (name, name)
        self._after = b',%b,"delta":' % orjson.dumps(position)[1:-1]
        self._end = (b",%b\n\n" % orjson.dumps(trailer)[1:]) if trailer else b"}\n\n"

    def write(self, piece: Any) -> bytes:
        pen = self._writer
        number = pen.sequence
        pen.sequence = number + 1
        return b"%b%d%b%b%b" % (
            self._before,
            number,
            self._after,
            orjson.dumps(piece),
            self._end,
        )

    def write_run(self, json_texts: Sequence[bytes]) -> bytes:
        """Several pieces at once, each as JSON spells it inside its quotes."""
        pen = self._writer
        number = pen.sequence
        pen.sequence = number + len(json_texts)
        after, between = self._after + b'"', b'"' + self._end + self._before
        numbered = (b"%d%b%b" % (at, after, text) for at, text in enumerate(json_texts, number))
        return b'%b%b"%b' % (self._before, between.join(numbered), self._end)


class NullWriter(EventWriter):
    """Writes nothing, for those who only want the response that a stream ends with."""

    __slots__ = ()

    def write(self, kind: str, fields: Payload) -> bytes:
        return b""

    def delta_writer(self, kind: str, position: Payload, trailer: Payload | None = None) -> DeltaWriter:
        return _NULL_DELTA_WRITER


class _NullDeltaWriter(DeltaWriter):
    __slots__ = ()

    def __init__(self) -> None:
        """It has nothing to remember."""

    def write(self, piece: Any) -> bytes:
        return b""

    def write_run(self, json_texts: Sequence[bytes]) -> bytes:
        return b""


_NULL_DELTA_WRITER: Final = _NullDeltaWriter()
