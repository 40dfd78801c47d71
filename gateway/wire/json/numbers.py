"""Parses JSON without a change to integers beyond 64 bits, which orjson reads as floats."""

from __future__ import annotations

import json  # noqa: TID251 - for texts that orjson has accepted
import re
from typing import Any, Final

import orjson

_MIN_DIGITS: Final = 19
"""Shorter integers fit into 64 bits."""
_COARSE_STEP: Final = 9
_STEP: Final = 4
"""Every so many bytes are examined: first two in each long integer, then four, one after the other.
Dates and line numbers often have the two, but not the four."""
_MARGIN: Final = 27
"""Bytes around digits that were found in which an integer can begin or have enough digits."""
_SLICE: Final = 64 * 1024
"""Bytes that are searched in one step."""
_MAX_EXACT: Final = 32 * 1024 * 1024
"""Bytes that a text may take while it is parsed a second time; in a larger one digits get lost."""
_ZEROS: Final = bytes.maketrans(b"123456789", b"000000000")
_FOUR: Final = b"0000"
_DIGITS: Final = re.compile(rb"0+")
_LONG_INTEGER: Final = re.compile(rb"(?:^|[\s:,\[])-?[0-9]{%d}" % _MIN_DIGITS)


def parse_json(raw: bytes) -> Any:
    """Parses like `orjson.loads`, but longer integers are fragments, which `orjson.dumps` writes as
    they were. Raises `orjson.JSONDecodeError`, also if one is beyond the range of floats."""
    value = orjson.loads(raw)
    if b"00" not in raw[::_COARSE_STEP].translate(_ZEROS):
        return value
    sample = raw[::_STEP].translate(_ZEROS)
    start = sample.find(_FOUR)
    while start >= 0 and (digits := _DIGITS.match(sample, start)):
        first, last = start * _STEP, digits.end() * _STEP
        for at in range(max(0, first - _MARGIN), last, _SLICE):
            if _LONG_INTEGER.search(raw, at, min(at + _SLICE, last) + _MARGIN):
                return _parse_exactly(raw, value)
        start = sample.find(_FOUR, digits.end())
    return value


def _parse_exactly(raw: bytes, value: Any) -> Any:
    if len(raw) * (1 if raw.isascii() else 4) > _MAX_EXACT:
        return value
    try:
        return json.loads(raw, parse_int=_parse_integer)
    except RecursionError:  # it allows less nesting
        return value


def _parse_integer(digits: str) -> int | orjson.Fragment:
    if len(digits) <= _MIN_DIGITS + 1 and -(2**63) <= (value := int(digits)) < 2**64:
        return value
    return orjson.Fragment(digits)
