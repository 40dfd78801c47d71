"""Server-sent events: bytes to frames and back.

Grammar: the WHATWG "Server-sent events" stream format. Lines end in LF, CRLF or CR, in any mixture;
a blank line ends a frame. Every frame keeps its own bytes, so that it can be relayed unchanged, and
the frames of a stream do not depend on how its bytes are split.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

MAX_FRAME: Final = 16 * 1024 * 1024
"""Bytes of one frame, beyond which the stream fails."""

_EOL = rb"(?:\r\n|\n|\r(?!\n))"  # the look-ahead keeps a CRLF from counting as two ends
_LINE_ENDS = re.compile(rb"[\r\n]*")
_BLANK_LINE = re.compile(_EOL + _EOL)
_BOM = b"\xef\xbb\xbf"
_MAX_SEAM = 3
"""Bytes of a blank line that the next chunk may complete."""


MAX_LINES: Final = 100_000
"""Lines of one frame: a line takes far longer to read than its bytes."""


MAX_BLANK: Final = 4
"""Bytes of a frame that may be empty, at most: two line ends."""


class FrameTooLarge(Exception):
    """A frame grew past a limit; the text says which."""


class Frame(NamedTuple):
    """One SSE block: `raw` is the block with its blank line, `name` the `event:` value or empty,
    `data` the joined `data:` lines, or None where the block has none (comments, ids)."""

    raw: bytes
    name: bytes
    data: bytes | None


def write_frame(name: bytes, data: bytes) -> bytes:
    """The block for `data`, which must be one line; there is no `event:` line without a name."""
    if name:
        return b"event: %b\ndata: %b\n\n" % (name, data)
    return b"data: %b\n\n" % data


def replace_data(frame: Frame, data: bytes) -> bytes:
    """The frame's bytes with other JSON as its data. Everything else stays, unless the data had
    several lines: then the block is rebuilt."""
    before, old, after = frame.raw.rpartition(frame.data or b"\n\n")
    if old:
        return before + data + after
    return write_frame(frame.name, data.replace(b"\n", b" "))


class Framer:
    """Splits a stream of bytes into frames; `pending` are the bytes of an incomplete frame."""

    __slots__ = ("_lf_only", "_limit", "pending")

    def __init__(self, limit: int = MAX_FRAME) -> None:
        self._limit = limit
        self._lf_only = True  # no CR so far: every blank line is LF LF
        self.pending = bytearray()

    def complete_frames(self, chunk: bytes) -> bytes:
        """The bytes of the frames that `chunk` completes. Raises `FrameTooLarge`."""
        if b"\r" in chunk:
            self._lf_only = False
        pending, start = self.pending, 0
        if pending:
            start = max(0, len(pending) - _MAX_SEAM)
            pending += chunk
        # Of three line ends the first two end the frame.
        text = pending or chunk
        end = text.rfind(b"\n\n", start) + 2
        if end < 2 or not self._lf_only or text.endswith(b"\n\n\n", start, end):
            end = _end_of_last(text, start)
        if not pending:
            if end < len(chunk):
                pending += chunk[end:]
            chunk = chunk[:end]
        else:
            with memoryview(pending) as view:
                chunk = bytes(view[:end])
            del pending[:end]
        if len(pending) > self._limit:
            raise FrameTooLarge("an event of the stream is too large")
        return chunk

    def end_of(self, frames: bytes, start: int) -> int:
        """Finds where the frame at `start` ends, in the bytes from `complete_frames`."""
        if self._lf_only:
            return frames.find(b"\n\n", start) + 2
        match = _BLANK_LINE.search(frames, start)
        return match.end() if match else len(frames)

    def close(self) -> list[Frame]:
        """Ends the stream: returns the block without a blank line after it, unless it is empty."""
        raw = bytes(self.pending)
        self.pending.clear()
        return [read_frame(raw)] if raw.strip(b"\r\n") else []


def end_of_blank_lines(frames: bytes, start: int) -> int:
    """Finds where the line ends at `start` stop: any number of empty frames is handled as one."""
    match = _LINE_ENDS.match(frames, start)
    return match.end() if match else start


def _end_of_last(text: bytes | bytearray, start: int) -> int:
    """Finds where the last frame that is complete after `start` ends; 0 if there is none. A CR at
    the very end may be half of a CRLF: it waits for the next byte."""
    stop = len(text) - text.endswith(b"\r")
    return max((match.end() for match in _BLANK_LINE.finditer(text, start, stop)), default=0)


def read_frame(raw: bytes) -> Frame:
    """One block with its fields. Raises `FrameTooLarge`."""
    return Frame(raw, *read_fields(raw))


def read_fields(raw: bytes) -> tuple[bytes, bytes | None]:
    """Name and data of one block, as in `Frame`; a byte order mark at its start is skipped.
    Raises `FrameTooLarge`."""
    # The two usual shapes, recognised without a loop over the lines.
    end = len(raw) - 2
    if raw.startswith(b"data: "):
        if raw.find(b"\n") == end and b"\r" not in raw:
            return b"", raw[6:end]
    elif raw.startswith(b"event: "):
        eol = raw.find(b"\n")
        plain = raw.startswith(b"data: ", eol + 1) and raw.find(b"\n", eol + 1) == end
        if plain and b"\r" not in raw:
            return raw[7:eol], raw[eol + 7 : end]
    return _read_lines(raw)


def _read_lines(raw: bytes) -> tuple[bytes, bytes | None]:
    name = b""
    data: list[bytes] = []
    raw = raw.removeprefix(_BOM).strip(b"\r\n")
    if b"\r" in raw:
        raw = raw.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    if raw.count(b"\n") > MAX_LINES:
        raise FrameTooLarge("an event of the stream has too many lines")
    for line in raw.split(b"\n"):
        field, _, value = line.partition(b":")
        if value.startswith(b" "):
            value = value[1:]
        if field == b"data":
            data.append(value)
        elif field == b"event":
            name = value
    return name, b"\n".join(data) if data else None
