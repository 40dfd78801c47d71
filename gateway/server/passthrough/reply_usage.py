"""The usage that a reply states, read while its bytes pass: of its JSON nothing else is kept."""

from __future__ import annotations

import re
from typing import Final

import orjson

from gateway.core.events import Usage
from gateway.wire.json.fields import token_count

_NO_USAGE: Final = Usage()
_KEY: Final = b"usage"
_MAX_SIZE: Final = 8192
"""Bytes of a usage object."""
_TOKEN: Final = re.compile(rb'["{}\[\]]')
_REST: Final = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)
"""What is left of a string, without its end."""


class UsageReader:
    """Finds `usage` at the top of the JSON objects that pass: one body, or the data of events, of
    which the last usage counts."""

    __slots__ = ("_depth", "_escaped", "_found", "_in_text", "_is_after_key", "_text", "_value")

    def __init__(self) -> None:
        self._depth = 0
        self._in_text = self._escaped = self._is_after_key = False
        self._text = b""
        self._value: bytearray | None = None
        self._found = b""

    def feed(self, data: bytes) -> None:
        position, start = 0, 0
        while position < len(data):
            if self._in_text:
                position = self._read_text(data, position)
                continue
            if (token := _TOKEN.search(data, position)) is None:
                break
            position = token.end()
            match token[0]:
                case b'"':
                    self._in_text, self._text = True, b""
                    self._is_after_key = False
                case b"{" | b"[":
                    self._depth += 1
                    if self._is_after_key and self._depth == 2:
                        self._value, start = bytearray(), position - 1
                    self._is_after_key = False
                case _:
                    self._depth -= 1
                    self._is_after_key = False
                    if self._value is not None and self._depth == 1:
                        self._found, self._value = bytes(self._value + data[start:position]), None
        if self._value is not None:
            self._value += data[start:]
            if len(self._value) > _MAX_SIZE:
                self._value = None

    def _read_text(self, data: bytes, position: int) -> int:
        """Returns where the string ends, or the data."""
        if self._escaped:
            self._escaped, position = False, position + 1
        rest = _REST.match(data, position)
        end = rest.end() if rest else position
        if len(self._text) <= len(_KEY):
            self._text += data[position : min(end, position + len(_KEY) + 1)]
        if end == len(data):
            return end
        if data[end : end + 1] == b"\\":  # the last byte
            self._escaped = True
            self._text += b"\\"
        else:
            self._in_text = False
            self._is_after_key = self._depth == 1 and self._text == _KEY
        return end + 1

    def usage(self) -> Usage | None:
        """The tokens that the reply states; None where it states none."""
        try:
            counts = orjson.loads(self._found)
        except orjson.JSONDecodeError:
            return None
        output = token_count(counts, "output_tokens") or token_count(counts, "completion_tokens")
        input_tokens = token_count(counts, "input_tokens") or token_count(counts, "prompt_tokens")
        input_tokens = input_tokens or max(0, token_count(counts, "total_tokens") - output)
        usage = Usage(input_tokens=input_tokens, output_tokens=output)
        return None if usage == _NO_USAGE else usage
