"""gzip and deflate, decompressed piece by piece: a few bytes may stand for gigabytes."""

from __future__ import annotations

import zlib
from typing import Any, Final

_AUTO: Final = 47
"""zlib's `wbits` for data with a gzip or a zlib header, which it detects."""
_RAW: Final = -15
"""zlib's `wbits` for data without a header: what some servers send as deflate."""
_GZIP_START: Final = 0x1F

_MAX_MEMBERS: Final = 64
"""Members of gzip that are decompressed at once."""


class Inflater:
    """`has_more`: there is more to decompress without more input. `is_complete`: the last member
    has ended where the data has."""

    __slots__ = ("_inflater", "_may_be_raw", "_pending", "has_more")

    def __init__(self, coding: bytes) -> None:
        """`coding` is gzip, x-gzip or deflate."""
        self._may_be_raw = coding == b"deflate"
        self._inflater: Any = None
        self._pending = b""
        self.has_more = False

    @property
    def is_complete(self) -> bool:
        return self._inflater is not None and self._inflater.eof and not self._pending

    def feed(self, data: bytes, limit: int) -> bytes:
        """Returns at most `limit` decompressed bytes; the rest of the data is kept. Raises
        `ValueError` for invalid data."""
        data = self._pending + data if self._pending else data
        pieces: list[bytes] = []
        room = limit
        for _ in range(_MAX_MEMBERS):
            if not (data or self.has_more):
                break
            if self._inflater is None or self._inflater.eof:
                self._inflater = self._begin(data[0])
            try:
                piece = self._inflater.decompress(data, room)
            except zlib.error as error:
                if pieces:
                    break  # the next call raises it
                raise ValueError(str(error)) from None
            pieces.append(piece)
            room -= len(piece)
            ended = self._inflater.eof
            data = self._inflater.unused_data if ended else self._inflater.unconsumed_tail
            self.has_more = not ended and not room
            if not room or not ended:
                break
        self._pending = data
        self.has_more = self.has_more or bool(data)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _begin(self, first: int) -> Any:
        """A member that begins with this byte."""
        has_header = first == _GZIP_START or first & 0x0F == zlib.DEFLATED
        return zlib.decompressobj(_RAW if self._may_be_raw and not has_header else _AUTO)
