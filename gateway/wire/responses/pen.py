"""Writes the events of one stream, numbered without gaps. It must not know what they tell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import orjson

from gateway.wire.fields import Payload

_HEAD: Final = b'event: %b\ndata: {"type":"%b","sequence_number":'


class Pen:
    """`sequence` is the number of the next event."""

    __slots__ = ("sequence",)

    def __init__(self) -> None:
        self.sequence = 0

    def write(self, kind: str, fields: Payload) -> bytes:
        """One event; `kind` is its type without the prefix that they share."""
        name = b"response." + kind.encode()
        number = self.sequence
        self.sequence = number + 1
        return b"%b%d,%b\n\n" % (_HEAD % (name, name), number, orjson.dumps(fields)[1:])

    def line(self, kind: str, place: Payload, more: Payload | None = None) -> Line:
        """For events of one kind about one part; see `Line`."""
        return Line(self, kind, place, more)


class Line:
    """Writes events that differ in their piece alone: nearly all that a stream has."""

    __slots__ = ("_after", "_before", "_end", "_pen")

    def __init__(self, pen: Pen, kind: str, place: Payload, more: Payload | None = None) -> None:
        """`place` says where the pieces belong; `more` stands behind each of them."""
        name = b"response." + kind.encode()
        self._pen = pen
        self._before = _HEAD % (name, name)
        self._after = b',%b,"delta":' % orjson.dumps(place)[1:-1]
        self._end = (b",%b\n\n" % orjson.dumps(more)[1:]) if more else b"}\n\n"

    def write(self, piece: Any) -> bytes:
        pen = self._pen
        number = pen.sequence
        pen.sequence = number + 1
        return b"%b%d%b%b%b" % (
            self._before,
            number,
            self._after,
            orjson.dumps(piece),
            self._end,
        )

    def write_texts(self, spelled: Sequence[bytes]) -> bytes:
        """Several pieces at once, each as JSON spells it inside its quotes."""
        pen = self._pen
        number = pen.sequence
        pen.sequence = number + len(spelled)
        after, between = self._after + b'"', b'"' + self._end + self._before
        numbered = (b"%d%b%b" % (at, after, text) for at, text in enumerate(spelled, number))
        return b'%b%b"%b' % (self._before, between.join(numbered), self._end)


class SilentPen(Pen):
    """Writes nothing, for those who only want the response that a stream ends with."""

    __slots__ = ()

    def write(self, kind: str, fields: Payload) -> bytes:
        return b""

    def line(self, kind: str, place: Payload, more: Payload | None = None) -> Line:
        return _SILENT


class _SilentLine(Line):
    __slots__ = ()

    def __init__(self) -> None:
        """It has nothing to remember."""

    def write(self, piece: Any) -> bytes:
        return b""

    def write_texts(self, spelled: Sequence[bytes]) -> bytes:
        return b""


_SILENT: Final = _SilentLine()
