"""The first frame of an animated GIF: a sequence of blocks, whose data are chains of sub-blocks.

Nothing is decoded but base64, and of that a part at a time. The layout is that of the public format
GIF89a.
"""

from __future__ import annotations

import re
from typing import Final

from gateway.wire.image_files import PIECE, decode, encode, image_bytes

_EXTENSION, _FRAME, _TRAILER = 0x21, 0x2C, 0x3B
_GRAPHIC_CONTROL: Final = 0xF9
_FULL_SUB_BLOCKS: Final = re.compile(rb"(?:\xff.{255})*+", re.DOTALL)
"""Encoders fill all sub-blocks but the last."""
_MAX_BLOCKS: Final = 100
_BYTES_PER_BLOCK: Final = 64
"""A file may have so many blocks, and one more for so many bytes; a run of full sub-blocks is one.
"""


def first_frame(data: str) -> str | None:
    """An animated GIF as a static one, both in base64; None where it is static, or damaged so that
    its upstream has to judge it."""
    try:
        return _Gif(data).first_frame()
    except (IndexError, ValueError):
        return None


class _Gif:
    """A file in base64, of which `_window` is decoded, from byte `_start` on."""

    __slots__ = ("_budget", "_data", "_start", "_window")

    def __init__(self, data: str) -> None:
        self._data, self._start, self._window = data, 0, b""
        self._budget = _MAX_BLOCKS + image_bytes(data) // _BYTES_PER_BLOCK

    def first_frame(self) -> str | None:
        kept: list[bytes] = []
        has_frame = False
        at = 13 + _color_table(self._byte(10))
        kept.append(self._slice(0, at))
        while (kind := self._byte(at)) != _TRAILER:
            if kind == _FRAME and has_frame:
                return encode(b"".join([*kept, bytes([_TRAILER])]))
            end = self._skip(kind, at)
            if not has_frame and (kind == _FRAME or self._byte(at + 1) == _GRAPHIC_CONTROL):
                kept.append(self._slice(at, end))
            has_frame = has_frame or kind == _FRAME
            at = end
        return None

    def _skip(self, kind: int, at: int) -> int:
        """Where the block at `at` ends."""
        if kind == _EXTENSION:
            return self._skip_sub_blocks(at + 2)
        if kind == _FRAME:
            return self._skip_sub_blocks(at + 11 + _color_table(self._byte(at + 9)))
        raise ValueError("not a valid GIF")

    def _skip_sub_blocks(self, at: int) -> int:
        while size := self._byte(at):
            start = at - self._start
            full = _FULL_SUB_BLOCKS.match(self._window, start)
            at += max(size + 1, full.end() - start if full else 0)
            self._spend()
        self._spend()
        return at + 1

    def _spend(self) -> None:
        self._budget -= 1
        if self._budget < 0:
            raise ValueError("too many blocks")

    def _byte(self, at: int) -> int:
        """Raises `IndexError` behind the end."""
        if not 0 <= at - self._start < len(self._window):
            group = at // 3
            self._start = 3 * group
            self._window = decode(self._data[4 * group : 4 * group + PIECE])
        return self._window[at - self._start]

    def _slice(self, start: int, end: int) -> bytes:
        first = start // 3
        part = decode(self._data[4 * first : 4 * -(-end // 3)])
        return part[start - 3 * first : end - 3 * first]


def _color_table(flags: int) -> int:
    """Its size in bytes."""
    return 3 << (flags & 7) + 1 if flags & 0x80 else 0
