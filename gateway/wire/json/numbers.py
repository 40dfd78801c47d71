"""Parses JSON without a change to integers beyond 64 bits, which orjson reads as floats."""

from __future__ import annotations

import json  # noqa: TID251 - for texts that orjson has accepted
import re
from typing import Any, Final

import orjson

_MIN_DIGITS: Final = 19
"""Shorter integers fit into 64 bits."""
_STEP: Final = 9
"""Every so many bytes are examined: twice in each long integer, one after the other."""
_SLICE: Final = 64 * 1024
"""Bytes that are searched in one step."""
_MAX_EXACT: Final = 32 * 1024 * 1024
"""Bytes that a text may take while it is parsed a second time; in a larger one digits get lost."""
_ZEROS: Final = bytes.maketrans(b"123456789", b"000000000")
_DIGITS: Final = re.compile(rb"00+")
_LONG_INTEGER: Final = re.compile(rb"(?:^|[\s:,\[])-?[0-9]{%d}" % _MIN_DIGITS)


def parse_json(raw: bytes) -> Any:
    """Parses like `orjson.loads`, but longer integers are fragments, which `orjson.dumps` writes as
    they were. Raises `orjson.JSONDecodeError`, also if one is beyond the range of floats."""
    value = orjson.loads(raw)
    sample = raw[::_STEP].translate(_ZEROS)
    if b"00" not in sample:
        return value
    for digits in _DIGITS.finditer(sample):
        first, last = digits.start() * _STEP, digits.end() * _STEP
        for at in range(max(0, first - 2 * _STEP), last, _SLICE):
            if _LONG_INTEGER.search(raw, at, min(at + _SLICE, last) + 3 * _STEP):
                return _parse_exactly(raw, value)
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
