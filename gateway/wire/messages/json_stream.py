"""Turns the streamed arguments of a call into the text of one JSON object.

Clients parse the input of a call in pieces and fail on invalid JSON, but models are truncated and
write invalid JSON. Every prefix that passes here can be completed.
"""

from __future__ import annotations

import re
from enum import Enum, auto
from typing import Any, Final

import orjson

from gateway.wire.json.numbers import parse_json
from gateway.wire.prompt.tool_names import CUSTOM_TOOL_ARG

_MAX_DEPTH: Final = 200
"""Levels of nesting: orjson parses deeper values but cannot serialise them."""
_MAX_SCALAR: Final = 400
_WHITESPACE: Final = re.compile(r"[ \t\n\r]+")
_STRING: Final = re.compile(
    r'(?:[^"\\\x00-\x1f]+|\\(?:["\\/bfnrt]|u(?![dD][89a-fA-F])[0-9a-fA-F]{4}'
    r"|u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}))*"
)
_PARTIAL_ESCAPE: Final = re.compile(r"\\(?:u[0-9a-fA-F]{0,4}(?:\\(?:u[0-9a-fA-F]{0,3})?)?)?\Z")
_SCALAR: Final = re.compile(r"[-+.0-9a-zA-Z]+")
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
_LITERALS: Final = ("true", "false", "null")
_ITEMS: Final = re.compile(
    r'(?:(?:-?(?:0|[1-9][0-9]{0,14})(?:\.[0-9]{1,15})?|true|false|null|"[^"\\\x00-\x1f]*+")'
    r"[ \t\n\r]*+,[ \t\n\r]*+)++"
)
"""Simple items of an array, each with the comma after it."""
_LONG_SCALAR: Final = re.compile(rf"[-+.0-9a-zA-Z]{{{_MAX_SCALAR + 1}}}")
_CLOSERS: Final = {"{": "}", "[": "]"}
_OPENERS: Final = {"}": "{", "]": "["}


class _Expected(Enum):
    """The next elements that the grammar allows; `FIRST_…` also allows the end of an empty object
    or array."""

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
"""Completes the innermost level."""


class JsonObjectStream:
    """`feed` returns the new text that is valid as the start of an object, `finish` the completion:
    invalid text becomes the field `_raw`, a value that is not an object the field `value`."""

    __slots__ = ("_broken", "_expected", "_in_key", "_in_string", "_pending", "_stack", "_unparsed")

    def __init__(self) -> None:
        self._stack: list[str] = []
        self._expected = _Expected.VALUE
        self._in_string = False
        self._in_key = False
        self._pending = ""
        self._broken = False
        self._unparsed: list[str] = []  # after the first invalid character

    @property
    def is_complete(self) -> bool:
        """Tells whether the object has ended: later text is ignored."""
        return self._expected is _Expected.END

    def feed(self, piece: str) -> str:
        if self._broken:
            self._unparsed.append(piece)
            return ""
        text = self._pending + piece
        if not self._stack and not self.is_complete:
            text = text.lstrip()
            self._broken = bool(text) and text[0] != "{"
        end = 0 if self._broken else self._scan(text)
        self._pending = "" if self.is_complete else text[end:]
        return text[:end]

    def finish(self) -> str:
        if self.is_complete:
            return ""
        pending = self._pending + "".join(self._unparsed)
        if not self._stack:
            return _as_object(pending)
        completion = ""
        if self._in_string:
            completion = '"'
            self._expected = _Expected.COLON if self._in_key else _Expected.COMMA
        elif self._expected in _VALUES and (scalar := _complete_scalar(pending)):
            completion, self._expected = scalar, _Expected.COMMA
        raw = orjson.dumps(pending).decode() if self._broken else None
        while self._stack:
            if len(self._stack) == 1 and raw is not None:
                completion += _with_raw(self._expected, raw)
            else:
                completion += _COMPLETIONS.get(self._expected, "")
            completion += _CLOSERS[self._stack.pop()]
            self._expected = _Expected.COMMA
        self._expected = _Expected.END
        return completion

    def _scan(self, text: str) -> int:
        """The length of the valid part; `_broken`: no further text can make the rest valid."""
        at = 0
        while at < len(text):
            start = at
            if self._in_string:
                at = self._scan_string(text, at)
            elif match := _WHITESPACE.match(text, at):
                at = match.end()
            elif (
                self._expected in _VALUES
                and self._stack[-1:] == ["["]
                and (match := _ITEMS.match(text, at))
            ):
                at = match.end()
                self._expected = _Expected.VALUE
            else:
                at = self._scan_token(text, at)
            if at == start:
                break
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
        """A number or a literal, if its end has arrived."""
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


def _complete_scalar(text: str) -> str:
    """A number or a literal that was cut, of as much as has arrived; nothing of other texts."""
    literal = next((word for word in _LITERALS if text and word.startswith(text)), "")
    number = text.rstrip("+-.eE")
    return literal or (number if _NUMBER.fullmatch(number) else "")


class JsonStringStream:
    """The interface of `JsonStream` for the free text of a custom tool: the one string of an
    object."""

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
    """The object of complete arguments, the same that clients read from the stream."""
    if _is_shallow(text):
        try:
            value = parse_json(text.encode())
        except orjson.JSONDecodeError:
            value = None
        if type(value) is dict:
            return value
    arguments = JsonObjectStream()
    return parse_json((arguments.feed(text) + arguments.finish()).encode())


def _is_shallow(text: str) -> bool:
    """Tells whether neither the nesting nor a scalar can exceed its limit."""
    if len(text) <= _MAX_DEPTH:
        return True
    return text.count("{") + text.count("[") < _MAX_DEPTH and not _LONG_SCALAR.search(text)


def _with_raw(expected: _Expected, raw: str) -> str:
    """Completes the outermost object with the field `_raw`."""
    if expected in _KEYS:
        return f'"_raw":{raw}'
    return f'{_COMPLETIONS.get(expected, "")},"_raw":{raw}'


def _as_object(text: str) -> str:
    if not text:
        return "{}"
    try:
        return orjson.dumps({"value": parse_json(text.encode())}).decode()
    except (orjson.JSONDecodeError, orjson.JSONEncodeError):  # invalid, or nested too deeply
        return orjson.dumps({"_raw": text}).decode()
