"""Limits of JSON texts, so that no single step of reading or writing one takes long.

The parser holds the interpreter's lock: whatever else the process does waits for it. A text within
these limits takes it a tenth of a second at most; agents' largest requests (2,000 turns, 500 tools,
30 MiB of images) have a fifth of each.
"""

from __future__ import annotations

from collections.abc import Iterator
from mmap import mmap
from typing import Any, Final

from gateway.wire.json.surrogates import loads_leniently

Raw = bytes | bytearray | mmap
"""A JSON text."""

MAX_VALUES: Final = 200_000
"""Objects, lists, and what is in them."""
MAX_NAMES: Final = 4 * 1024 * 1024
"""Bytes of the names of members."""
MAX_NON_ASCII: Final = 16 * 1024 * 1024
"""Bytes of the strings with a character beyond ASCII: each may take four bytes per character."""
MAX_ESCAPES: Final = 4_000_000
"""Backslashes."""
MAX_UNQUOTED: Final = 8 * 1024 * 1024
"""Bytes of numbers, white space and punctuation."""

_SLICE: Final = 256 * 1024
"""Bytes that are examined in one step."""


class JsonTooComplex(ValueError):
    """The message says which limit is exceeded."""


def check_complexity(raw: Raw) -> int:
    """The number of values in a JSON text, or a little more. Raises `JsonTooComplex`."""
    parts = _slices(raw) if isinstance(raw, mmap) else (raw,)
    at_most = sum(map(count_values, parts))
    if at_most <= MAX_VALUES and len(raw) <= MAX_NAMES:  # the lowest limit of bytes
        return at_most
    scan = _Scan()
    for part in _slices(raw):
        scan.add(part)
        scan.check()
    return scan.values


def count_values(raw: bytes | bytearray) -> int:
    """Counts at least the values of a JSON text: punctuation within strings counts too."""
    return len(raw) - len(raw.translate(None, b",{["))


def count_unquoted_values(raw: bytes | bytearray) -> int:
    """Counts like `count_values`, without the punctuation within strings."""
    if b"\\" in raw:
        raw = raw.replace(b"\\\\", b"").replace(b'\\"', b"")
    return count_values(b"".join(raw.split(b'"')[::2]))


def load_json(text: str | bytes) -> Any:
    """The value of a JSON text within another one. Raises `ValueError`."""
    raw = text.encode() if isinstance(text, str) else text
    if len(raw) > MAX_VALUES:  # the lowest limit: shorter texts are within all
        check_complexity(raw)
    return loads_leniently(raw)


def _slices(raw: Raw) -> Iterator[bytes]:
    """The text in slices that end between escapes."""
    view, start = memoryview(raw), 0
    while start < len(raw):
        part = bytes(view[start : start + _SLICE])
        if (len(part) - len(part.rstrip(b"\\"))) % 2:
            part = bytes(view[start : start + _SLICE + 1])
        start += len(part)
        yield part


class _Scan:
    """Counts, slice by slice. Within a slice quotes separate strings from the rest."""

    __slots__ = (
        *("_escapes", "_in_string", "_is_wide", "_names", "_size", "_strings", "_unquoted"),
        *("_wide", "values"),
    )

    def __init__(self) -> None:
        self.values = self._strings = 0
        self._names = self._wide = self._escapes = self._unquoted = 0
        self._in_string = False
        self._size = 0  # of the string that has begun, or of the one that ended last
        self._is_wide = False

    def add(self, part: bytes) -> None:
        if b"\\" in part:
            self._escapes += part.count(b"\\")
            part = part.replace(b"\\\\", b"").replace(b'\\"', b"")
        may_be_wide = not part.isascii() or b"\\u" in part
        for index, piece in enumerate(part.split(b'"')):
            if index:
                self._turn()
            if self._in_string:
                self._size += len(piece)
                if may_be_wide and not (piece.isascii() and b"\\u" not in piece):
                    self._is_wide = True
            elif piece:
                self._add_unquoted(piece)

    def _turn(self) -> None:
        """Handles a quote: a string begins or ends."""
        self._in_string = not self._in_string
        if self._in_string:
            self._strings += 1
            self._size, self._is_wide = 0, False
        elif self._is_wide:
            self._wide += self._size

    def _add_unquoted(self, piece: bytes) -> None:
        self._unquoted += len(piece)
        self.values += count_values(piece)
        if self._size and piece.lstrip().startswith(b":"):
            self._names += self._size
            self._size = 0

    def check(self) -> None:
        for count, limit, what in (
            (max(self.values, self._strings // 2 - 1), MAX_VALUES, "values"),
            (self._names, MAX_NAMES, "bytes in the names of members"),
            (self._wide, MAX_NON_ASCII, "bytes in strings that are not ASCII"),
            (self._escapes, MAX_ESCAPES, "escaped characters"),
            (self._unquoted, MAX_UNQUOTED, "bytes outside of strings"),
        ):
            if count > limit:
                raise JsonTooComplex(f"it has more than {limit:,} {what}")
