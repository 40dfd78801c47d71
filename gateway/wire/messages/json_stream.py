"""A call's arguments while they arrive, as the text of one JSON object and nothing else.

Clients parse the input of a call piece by piece and break on what is no JSON, but models are cut
short and make mistakes. What is let through here can always be completed. It must not know frames.
"""

from __future__ import annotations

import re
from enum import Enum, auto
from typing import Any, Final

import orjson

from gateway.wire.tool_names import CUSTOM_TOOL_ARG

_MAX_DEPTH: Final = 200
"""Levels of nesting; what is deeper can be parsed but not written again."""
_MAX_SCALAR: Final = 400
_WHITESPACE: Final = re.compile(r"[ \t\n\r]*")
_STRING: Final = re.compile(
    r'(?:[^"\\\x00-\x1f]+|\\(?:["\\/bfnrt]|u(?![dD][89a-fA-F])[0-9a-fA-F]{4}'
    r"|u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}))*"
)
_PARTIAL_ESCAPE: Final = re.compile(r"\\(?:u[0-9a-fA-F]{0,4}(?:\\(?:u[0-9a-fA-F]{0,3})?)?)?\Z")
_SCALAR: Final = re.compile(r"[-+.0-9a-zA-Z]+")
_LONG_SCALAR: Final = re.compile(rf"[-+.0-9a-zA-Z]{{{_MAX_SCALAR + 1}}}")
_CLOSERS: Final = {"{": "}", "[": "]"}
_OPENERS: Final = {"}": "{", "]": "["}


class _Expected(Enum):
    """What the grammar allows next; `FIRST_…` may also be the end of what has just begun."""

    FIRST_KEY = auto()
    KEY = auto()
    COLON = auto()
    FIRST_VALUE = auto()
    VALUE = auto()
    COMMA = auto()
    END = auto()


_KEYS: Final = (_Expected.FIRST_KEY, _Expected.KEY)
_VALUES: Final = (_Expected.FIRST_VALUE, _Expected.VALUE)
_MAY_CLOSE: Final = {
    "}": (_Expected.FIRST_KEY, _Expected.COMMA),
    "]": (_Expected.FIRST_VALUE, _Expected.COMMA),
}
_COMPLETIONS: Final = {
    _Expected.COLON: ":null",
    _Expected.VALUE: "null",
    _Expected.KEY: '"_raw":""',
}
"""What makes the innermost level whole where it was broken off."""


class JsonObjectStream:
    """`feed` gives as much of the text so far as can be the beginning of an object, `finish` what
    completes it: text that is no JSON ends up under `_raw`, another value under `value`."""

    __slots__ = ("_broken", "_expected", "_in_key", "_in_string", "_pending", "_stack", "_unparsed")

    def __init__(self) -> None:
        self._stack: list[str] = []
        self._expected = _Expected.VALUE
        self._in_string = False  # a string
        self._in_key = False
        self._pending = ""
        self._broken = False
        self._unparsed: list[str] = []  # what follows where nothing can become of it

    @property
    def is_complete(self) -> bool:
        """Whether nothing that matters can follow."""
        return self._expected is _Expected.END

    def feed(self, piece: str) -> str:
        if self._broken:
            self._unparsed.append(piece)
            return ""
        text = self._pending + piece
        if not self._stack and not self.is_complete:
            text = text.lstrip()
            self._broken = bool(text) and text[0] != "{"
        good = 0 if self._broken else self._scan(text)
        self._pending = "" if self.is_complete else text[good:]
        return text[:good]

    def finish(self) -> str:
        if self.is_complete:
            return ""
        held = self._pending + "".join(self._unparsed)
        if not self._stack:
            return _as_object(held)
        completion = ""
        if self._in_string:
            completion = '"'
            self._expected = _Expected.COLON if self._in_key else _Expected.COMMA
        raw = orjson.dumps(held).decode() if self._broken else None
        while self._stack:
            last = len(self._stack) == 1
            if last and raw is not None:
                completion += _with_raw(self._expected, raw)
            else:
                completion += _COMPLETIONS.get(self._expected, "")
            completion += _CLOSERS[self._stack.pop()]
            self._expected = _Expected.COMMA
        self._expected = _Expected.END
        return completion

    def _scan(self, text: str) -> int:
        """Where the part of the text ends that is in order; `_broken` tells whether the rest can
        still become so."""
        at, end = 0, len(text)
        while at < end:
            if self._in_string:
                then = self._scan_string(text, at)
            elif (then := _skip_whitespace(text, at)) == at:
                then = self._scan_token(text, at)
            if then == at:
                break
            at = then
        return at

    def _scan_string(self, text: str, at: int) -> int:
        match = _STRING.match(text, at)
        at = match.end() if match else at
        if text[at : at + 1] == '"':
            self._in_string = False
            self._expected = _Expected.COLON if self._in_key else _Expected.COMMA
            return at + 1
        self._broken = at < len(text) and not _PARTIAL_ESCAPE.match(text, at)
        return at

    def _scan_token(self, text: str, at: int) -> int:
        char = text[at]
        if char == '"' and self._expected in (*_KEYS, *_VALUES):
            self._in_key = self._expected in _KEYS
            self._in_string = True
        elif char in _CLOSERS and self._expected in _VALUES and len(self._stack) < _MAX_DEPTH:
            self._stack.append(char)
            self._expected = _Expected.FIRST_KEY if char == "{" else _Expected.FIRST_VALUE
        elif char in _OPENERS and self._may_close(char):
            self._stack.pop()
            self._expected = _Expected.COMMA if self._stack else _Expected.END
        elif char == "," and self._expected is _Expected.COMMA:
            self._expected = _Expected.KEY if self._stack[-1] == "{" else _Expected.VALUE
        elif char == ":" and self._expected is _Expected.COLON:
            self._expected = _Expected.VALUE
        else:
            return self._scan_scalar(text, at)
        return at + 1

    def _may_close(self, closer: str) -> bool:
        return self._stack[-1:] == [_OPENERS[closer]] and self._expected in _MAY_CLOSE[closer]

    def _scan_scalar(self, text: str, at: int) -> int:
        """A number or a word, once it is known where it ends."""
        match = _SCALAR.match(text, at) if self._expected in _VALUES else None
        if match is None or len(match[0]) > _MAX_SCALAR:
            self._broken = not self.is_complete
            return at
        if match.end() == len(text):
            return at
        try:
            orjson.loads(match[0])
        except orjson.JSONDecodeError:
            self._broken = True
            return at
        self._expected = _Expected.COMMA
        return match.end()


class JsonStringStream:
    """The free text of a custom tool as the one string of an object: the same outside."""

    __slots__ = ("_started",)

    is_complete: Final = False

    def __init__(self) -> None:
        self._started = False

    def feed(self, piece: str) -> str:
        opening = "" if self._started else f'{{"{CUSTOM_TOOL_ARG}":"'
        self._started = True
        return opening + orjson.dumps(piece).decode()[1:-1]

    def finish(self) -> str:
        return '"}' if self._started else f'{{"{CUSTOM_TOOL_ARG}":""}}'


ArgumentStream = JsonObjectStream | JsonStringStream


def parse_arguments(text: str) -> Any:
    """The object that clients read of arguments which are all there: what the text says where it
    is one, else what `JsonArguments` makes of it."""
    if _is_shallow(text):
        try:
            value = orjson.loads(text)
        except orjson.JSONDecodeError:
            value = None
        if type(value) is dict:
            return value
    arguments = JsonObjectStream()
    return orjson.loads(arguments.feed(text) + arguments.finish())


def _is_shallow(text: str) -> bool:
    """Whether nothing in the text can be nested too deeply or be too long."""
    if len(text) <= _MAX_DEPTH:
        return True
    return text.count("{") + text.count("[") < _MAX_DEPTH and not _LONG_SCALAR.search(text)


def _skip_whitespace(text: str, at: int) -> int:
    match = _WHITESPACE.match(text, at)
    return match.end() if match else at


def _with_raw(expected: _Expected, raw: str) -> str:
    """The last field of the outermost object, whatever it was about to say."""
    if expected in _KEYS:
        return f'"_raw":{raw}'
    return f'{_COMPLETIONS.get(expected, "")},"_raw":{raw}'


def _as_object(text: str) -> str:
    if not text:
        return "{}"
    try:
        return orjson.dumps({"value": orjson.loads(text)}).decode()
    except (orjson.JSONDecodeError, orjson.JSONEncodeError):  # no JSON, or nested too deeply
        return orjson.dumps({"_raw": text}).decode()
