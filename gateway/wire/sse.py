"""Server-sent events: bytes to frames and back. It must not know what a frame's data means.

Grammar: the WHATWG "Server-sent events" stream format. Lines end in LF, CRLF or CR, in any mixture;
a blank line ends a frame. Every frame keeps its own bytes, so that what was not edited can be
relayed as it came, and the frames of a stream are the same however its bytes were cut.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

MAX_FRAME: Final = 16 * 1024 * 1024
"""Bytes that one frame may have before the stream is given up."""

_EOL = rb"(?:\r\n|\n|\r(?!\n))"  # the look-ahead keeps a CRLF from counting as two ends
_BLANK_LINE = re.compile(_EOL + _EOL)
_LINE_END = re.compile(_EOL)
_BOM = b"\xef\xbb\xbf"


class FrameTooLarge(Exception):
    """A frame grew past the limit without ending."""


class Frame(NamedTuple):
    """One SSE block: `raw` is the block with its blank line, `name` the `event:` value or empty,
    `data` the joined `data:` lines, or None where the block has none (comments, ids)."""

    raw: bytes
    name: bytes
    data: bytes | None


def write_frame(name: bytes, data: bytes) -> bytes:
    """The block for `data`, which must be one line; an empty name writes no `event:` line."""
    if name:
        return b"event: %b\ndata: %b\n\n" % (name, data)
    return b"data: %b\n\n" % data


def replace_data(frame: Frame, data: bytes) -> bytes:
    """The frame's bytes with other JSON for its data; everything else stays as it came, unless the
    data was spread over several lines: then the block is written anew."""
    before, found, after = frame.raw.rpartition(frame.data or b"\n\n")
    if found:
        return before + data + after
    return write_frame(frame.name, data.replace(b"\n", b" "))


class Framer:
    """Cuts a stream of bytes into frames."""

    __slots__ = ("_bare", "_limit", "_pending", "_searched", "_started")

    def __init__(self, limit: int = MAX_FRAME) -> None:
        self._limit = limit
        self._pending = bytearray()
        self._searched = 0
        self._bare = True  # no CR seen: the two-byte search for LF LF is exact
        self._started = False

    def feed(self, chunk: bytes) -> list[Frame]:
        """The frames that `chunk` completes. Raises `FrameTooLarge`."""
        if self._bare and b"\r" in chunk:
            self._bare = False
        if self._bare and self._started and not self._pending:
            *blocks, rest = chunk.split(b"\n\n")
            self._pending += rest
            self._searched = len(rest)
            frames = [_frame(block) for block in blocks]
        else:
            self._pending += chunk
            frames = self._cut_bare() if self._bare else self._cut_mixed()
        if len(self._pending) > self._limit:
            raise FrameTooLarge
        return frames

    def close(self) -> list[Frame]:
        """At the end of the stream: the block that no blank line ended, if it holds anything."""
        rest = bytes(self._pending)
        self._pending.clear()
        if not rest.strip(b"\r\n"):
            return []
        return [self._frame(rest)]

    def _cut_bare(self) -> list[Frame]:
        frames: list[Frame] = []
        start = 0
        end = self._pending.find(b"\n\n", max(0, self._searched - 1))
        while end >= 0:
            frames.append(self._frame(bytes(self._pending[start : end + 2])))
            start = end + 2
            end = self._pending.find(b"\n\n", start)
        del self._pending[:start]
        self._searched = len(self._pending)
        return frames

    def _cut_mixed(self) -> list[Frame]:
        frames: list[Frame] = []
        start = 0
        # A CR at the very end may be half of a CRLF: it is not looked at before its neighbour came.
        stop = len(self._pending) - self._pending.endswith(b"\r")
        match = _BLANK_LINE.search(self._pending, max(0, self._searched - 3), stop)
        while match:
            frames.append(self._frame(bytes(self._pending[start : match.end()])))
            start = match.end()
            match = _BLANK_LINE.search(self._pending, start, stop)
        del self._pending[:start]
        self._searched = len(self._pending)
        return frames

    def _frame(self, raw: bytes) -> Frame:
        if self._started:
            return _frame(raw[:-2]) if self._bare and raw.endswith(b"\n\n") else _parse(raw, raw)
        self._started = True
        return _parse(raw, raw.removeprefix(_BOM))


def _frame(block: bytes) -> Frame:
    """The frame of a block that has no CR and no byte order mark; its blank line is left off."""
    if block.startswith(b"data: ") and b"\n" not in block:
        return Frame(block + b"\n\n", b"", block[6:])
    if block.startswith(b"event: "):
        eol = block.find(b"\n")
        if block.startswith(b"data: ", eol + 1) and block.find(b"\n", eol + 1) < 0:
            return Frame(block + b"\n\n", block[7:eol], block[eol + 7 :])
    return _parse(block + b"\n\n", block)


def _parse(raw: bytes, block: bytes) -> Frame:
    name = b""
    data: list[bytes] = []
    for line in _LINE_END.split(block):
        field, _, value = line.partition(b":")
        if value.startswith(b" "):
            value = value[1:]
        if field == b"data":
            data.append(value)
        elif field == b"event":
            name = value
    return Frame(raw, name, b"\n".join(data) if data else None)
