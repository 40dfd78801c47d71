"""The format of the journal of the request log, as bytes.

A block with the head, then frames in a ring. Every frame begins a block, so that no write touches
bytes that an earlier one has made durable, and is written at once: of a write that was interrupted
the checksum is wrong. Frames are numbered without gaps. Payloads are JSON, which has no byte 0, so
that nothing in them looks like a frame.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple
from zlib import crc32

import orjson

from gateway.store.log.entry_values import FIELDS, entry_of, is_of_later_release, values_of
from gateway.store.records import LogEntry

BLOCK: Final = 4096
"""Bytes, of which a disk writes all or none."""

BLOCKS: Final = 1024
"""Blocks of a file, that of the head included."""

_HEAD_MAGIC: Final = b"\0gateway journal"
_FRAME_MAGIC: Final = b"\0GWF"
_FRAME: Final = Struct("<4sIIQ")  # magic, checksum, length of the payload, number


class InvalidJournal(ValueError):
    """The message says what is wrong with the file."""


class Contents(NamedTuple):
    """`frames` are those that no interrupted write has damaged, by number, as JSON."""

    boot_id: str
    fields: list[list[str]]
    frames: dict[int, bytes]

    def after(self, number: int) -> dict[int, list[LogEntry]]:
        """Returns the entries of frames with higher numbers. Raises InvalidJournal if one of them
        is missing between others, which no interrupted write explains."""
        numbers = sorted(each for each in self.frames if each > number)
        if numbers and numbers[-1] - number != len(numbers):
            raise InvalidJournal("is damaged: a part of it cannot be read")
        return {
            each: [entry_of(values, self.fields) for values in orjson.loads(self.frames[each])]
            for each in numbers
        }


def encode_head(boot_id: str) -> bytes:
    """Returns the first block of a file."""
    payload = orjson.dumps([boot_id, FIELDS])
    head = _HEAD_MAGIC + crc32(payload).to_bytes(4, "little") + payload
    return head.ljust(BLOCK, b"\0")


def encode_frame(boot_id: str, number: int, entries: Sequence[LogEntry]) -> bytes:
    """Returns whole blocks. Raises TypeError for values that JSON does not have."""
    payload = orjson.dumps([values_of(entry) for entry in entries])
    checksum = _checksum(boot_id, number, payload)
    frame = _FRAME.pack(_FRAME_MAGIC, checksum, len(payload), number) + payload
    return frame.ljust(_blocks(len(frame)) * BLOCK, b"\0")


def decode(image: bytes) -> Contents:
    """Reads a file. Raises InvalidJournal."""
    head = image[:BLOCK].rstrip(b"\0")
    checksum, payload = head[len(_HEAD_MAGIC) :][:4], head[len(_HEAD_MAGIC) + 4 :]
    if not head.startswith(_HEAD_MAGIC) or int.from_bytes(checksum, "little") != crc32(payload):
        raise InvalidJournal("is no journal of a gateway, or damaged")
    boot_id, fields = orjson.loads(payload)
    if is_of_later_release(fields):
        raise InvalidJournal("is of a later release")
    frames: dict[int, bytes] = {}
    offset = BLOCK
    while offset < len(image):
        size = BLOCK
        if image.startswith(_FRAME_MAGIC, offset):
            _, checksum, length, number = _FRAME.unpack_from(image, offset)
            payload = image[offset + _FRAME.size : offset + _FRAME.size + length]
            if len(payload) == length and checksum == _checksum(boot_id, number, payload):
                frames[number] = payload
                size = _blocks(_FRAME.size + length) * BLOCK
        offset += size
    return Contents(boot_id, fields, frames)


def _blocks(size: int) -> int:
    return -(-size // BLOCK)


def _checksum(boot_id: str, number: int, payload: bytes) -> int:
    return crc32(payload, crc32(b"%s %d" % (boot_id.encode(), number)))
