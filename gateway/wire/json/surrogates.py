"""Halves of surrogate pairs in JSON texts: what is left of an emoji that was cut in two.

Neither UTF-8 nor the parser has them, but clients write them as escapes, and have them in a history
for ever.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import orjson

from gateway.wire.json.numbers import parse_json

LONE_SURROGATE: Final = "lone_surrogate"
"""The name of what was replaced."""

_HEX: Final = rb"[0-9a-fA-F]{2}"
_ESCAPES: Final = re.compile(
    # An odd number of backslashes from the first of them on: the literal one makes the search fast.
    rb"\\(?<!\\\\)((?:\\\\)*+)"
    rb"u(?:[dD][89abAB]%b\\u[dD][c-fC-F]%b|([dD][89a-fA-F]%b))" % (_HEX, _HEX, _HEX)
)
_ENCODED: Final = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]")
_REPLACEMENT: Final = "\ufffd".encode()
_SLICE: Final = 256 * 1024
"""Bytes that are searched in one step, which holds the interpreter's lock."""
_OUTSIDE: Final = re.compile(rb"[^\\uU0-9a-fA-F\x80-\xff]")
"""A byte within no escape of a surrogate, and no encoded character."""


def replace_lone_surrogates(raw: bytes) -> bytes:
    """The JSON text with U+FFFD for each, in time that grows with its length; the same object where
    there are none."""
    parts = [_ENCODED.sub(_REPLACEMENT, _ESCAPES.sub(_replace, part)) for part in _slices(raw)]
    replaced = b"".join(parts)
    return raw if replaced == raw else replaced


def _slices(raw: bytes) -> Iterator[bytes]:
    start = 0
    while start < len(raw):
        boundary = _OUTSIDE.search(raw, start + _SLICE)
        end = boundary.start() if boundary else len(raw)
        yield raw[start:end]
        start = end


def _replace(match: re.Match[bytes]) -> bytes:
    return match[0] if match[2] is None else match[1] + _REPLACEMENT


def loads_leniently(raw: bytes) -> Any:
    """The value of a JSON text, which may have lone surrogates. Raises `orjson.JSONDecodeError`."""
    try:
        return parse_json(raw)
    except orjson.JSONDecodeError:
        replaced = replace_lone_surrogates(raw)
        if replaced is raw:
            raise
        return parse_json(replaced)
