"""A call's arguments while they arrive, as the text of one JSON object and nothing else.

Clients parse the input of a call piece by piece and break on what is no JSON, but models are cut
short and make mistakes. What is let through here can always be completed. It must not know frames.
"""

from __future__ import annotations

import re
from enum import Enum, auto
from typing import Any, Final

import orjson

from gateway.wire.toolbox import WRAPPED

_DEEPEST: Final = 200
"""Levels of nesting; what is deeper can be parsed but not written again."""
_LONGEST_SCALAR: Final = 400
_SPACE: Final = re.compile(r"[ \t\n\r]*")
_STRING: Final = re.compile(
    r'(?:[^"\\\x00-\x1f]+|\\(?:["\\/bfnrt]|u(?![dD][89a-fA-F])[0-9a-fA-F]{4}'
    r"|u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}))*"
)
_ESCAPE_BEGUN: Final = re.compile(r"\\(?:u[0-9a-fA-F]{0,4}(?:\\(?:u[0-9a-fA-F]{0,3})?)?)?\Z")
_SCALAR: Final = re.compile(r"[-+.0-9a-zA-Z]+")
_LONG: Final = re.compile(rf"[-+.0-9a-zA-Z]{{{_LONGEST_SCALAR + 1}}}")
_CLOSERS: Final = {"{": "}", "[": "]"}
_OPENERS: Final = {"}": "{", "]": "["}


class _Next(Enum):
    """What the grammar allows next; `FIRST_…` may also be the end of what has just begun."""

    FIRST_KEY = auto()
    KEY = auto()
    COLON = auto()
    FIRST_VALUE = auto()
    VALUE = auto()
    COMMA = auto()
    END = auto()


_KEYS: Final = (_Next.FIRST_KEY, _Next.KEY)
_VALUES: Final = (_Next.FIRST_VALUE, _Next.VALUE)
_MAY_CLOSE: Final = {
    "}": (_Next.FIRST_KEY, _Next.COMMA),
    "]": (_Next.FIRST_VALUE, _Next.COMMA),
}
_COMPLETIONS: Final = {_Next.COLON: ":null", _Next.VALUE: "null", _Next.KEY: '"_raw":""'}
"""What makes the innermost level whole where it was broken off."""


class JsonArguments:
    """`feed` gives as much of the text so far as can be the beginning of an object, `finish` what
    completes it: text that is no JSON ends up under `_raw`, another value under `value`."""

    __slots__ = ("_broken", "_held", "_key", "_next", "_rest", "_stack", "_within")

    def __init__(self) -> None:
        self._stack: list[str] = []
        self._next = _Next.VALUE
        self._within = False  # a string
        self._key = False
        self._held = ""
        self._broken = False
        self._rest: list[str] = []  # what follows where nothing can become of it

    @property
    def complete(self) -> bool:
        """Whether nothing that matters can follow."""
        return self._next is _Next.END

    def feed(self, piece: str) -> str:
        if self._broken:
            self._rest.append(piece)
            return ""
        text = self._held + piece
        if not self._stack and not self.complete:
            text = text.lstrip()
            self._broken = bool(text) and text[0] != "{"
        good = 0 if self._broken else self._scan(text)
        self._held = "" if self.complete else text[good:]
        return text[:good]

    def finish(self) -> str:
        if self.complete:
            return ""
        held = self._held + "".join(self._rest)
        if not self._stack:
            return _as_object(held)
        completion = ""
        if self._within:
            completion = '"'
            self._next = _Next.COLON if self._key else _Next.COMMA
        raw = orjson.dumps(held).decode() if self._broken else None
        while self._stack:
            last = len(self._stack) == 1
            if last and raw is not None:
                completion += _with_raw(self._next, raw)
            else:
                completion += _COMPLETIONS.get(self._next, "")
            completion += _CLOSERS[self._stack.pop()]
            self._next = _Next.COMMA
        self._next = _Next.END
        return completion

    def _scan(self, text: str) -> int:
        """Where the part of the text ends that is in order; `_broken` tells whether the rest can
        still become so."""
        at, end = 0, len(text)
        while at < end:
            if self._within:
                then = self._string(text, at)
            elif (then := _space(text, at)) == at:
                then = self._token(text, at)
            if then == at:
                break
            at = then
        return at

    def _string(self, text: str, at: int) -> int:
        match = _STRING.match(text, at)
        at = match.end() if match else at
        if text[at : at + 1] == '"':
            self._within = False
            self._next = _Next.COLON if self._key else _Next.COMMA
            return at + 1
        self._broken = at < len(text) and not _ESCAPE_BEGUN.match(text, at)
        return at

    def _token(self, text: str, at: int) -> int:
        char = text[at]
        if char == '"' and self._next in (*_KEYS, *_VALUES):
            self._key = self._next in _KEYS
            self._within = True
        elif char in _CLOSERS and self._next in _VALUES and len(self._stack) < _DEEPEST:
            self._stack.append(char)
            self._next = _Next.FIRST_KEY if char == "{" else _Next.FIRST_VALUE
        elif char in _OPENERS and self._may_close(char):
            self._stack.pop()
            self._next = _Next.COMMA if self._stack else _Next.END
        elif char == "," and self._next is _Next.COMMA:
            self._next = _Next.KEY if self._stack[-1] == "{" else _Next.VALUE
        elif char == ":" and self._next is _Next.COLON:
            self._next = _Next.VALUE
        else:
            return self._scalar(text, at)
        return at + 1

    def _may_close(self, closer: str) -> bool:
        return self._stack[-1:] == [_OPENERS[closer]] and self._next in _MAY_CLOSE[closer]

    def _scalar(self, text: str, at: int) -> int:
        """A number or a word, once it is known where it ends."""
        match = _SCALAR.match(text, at) if self._next in _VALUES else None
        if match is None or len(match[0]) > _LONGEST_SCALAR:
            self._broken = not self.complete
            return at
        if match.end() == len(text):
            return at
        try:
            orjson.loads(match[0])
        except orjson.JSONDecodeError:
            self._broken = True
            return at
        self._next = _Next.COMMA
        return match.end()


class WrappedArguments:
    """The free text of a custom tool as the one string of an object: the same outside."""

    __slots__ = ("_begun",)

    complete: Final = False

    def __init__(self) -> None:
        self._begun = False

    def feed(self, piece: str) -> str:
        opening = "" if self._begun else f'{{"{WRAPPED}":"'
        self._begun = True
        return opening + orjson.dumps(piece).decode()[1:-1]

    def finish(self) -> str:
        return '"}' if self._begun else f'{{"{WRAPPED}":""}}'


Arguments = JsonArguments | WrappedArguments


def read_object_text(text: str) -> Any:
    """The object that clients read of arguments which are all there: what the text says where it
    is one, else what `JsonArguments` makes of it."""
    if _is_usual(text):
        try:
            value = orjson.loads(text)
        except orjson.JSONDecodeError:
            value = None
        if type(value) is dict:
            return value
    arguments = JsonArguments()
    return orjson.loads(arguments.feed(text) + arguments.finish())


def _is_usual(text: str) -> bool:
    """Whether nothing in the text can be nested too deeply or be too long."""
    if len(text) <= _DEEPEST:
        return True
    return text.count("{") + text.count("[") < _DEEPEST and not _LONG.search(text)


def _space(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return match.end() if match else at


def _with_raw(expected: _Next, raw: str) -> str:
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
