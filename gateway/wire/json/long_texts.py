"""Long base64 texts of a request, such as images, stay where they arrived: in its body's bytes.

A JSON text of 27 MB takes the parser tens of milliseconds, and so does each copy of it; meanwhile
it holds the interpreter's lock. Therefore these texts are cut out of the body before it is parsed,
with a placeholder in place of each, and put back, as views of the body, into what goes to an
upstream. Everything in between handles short texts.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterator
from typing import Any, Final, SupportsIndex

from gateway.core.buffers import Buffers
from gateway.wire.json.fields import Payload
from gateway.wire.json.limits import Raw

MIN_LENGTH: Final = 256 * 1024
"""Characters; shorter texts cost little."""

_STEP: Final = 128 * 1024
"""Bytes that are examined in one step; every long text has a whole step without a quote."""
_HEAD: Final = 64
_TAIL: Final = 4
"""Characters of the base64 before and after the placeholder: the type of a file, and padding."""
_BASE64: Final = (string.ascii_letters + string.digits + "+/").encode()
_MEMBER: Final = re.compile(rb'"(?:data|url|image_url|file_data)"\s*+:\s*+"')
_MAX_MEMBER: Final = 64
_DATA_URL: Final = re.compile(rb"data:[\w.+/-]+(?:;[\w.+=-]+)*;base64,")
_MAX_DATA_URL: Final = 256
_MARK: Final = "\ue000"
"""Begins a placeholder. It is not ASCII, so that decoding one as base64 fails."""

_TURNS: Final = ("system", "messages", "input")
_MEMBERS: Final = {
    *("content", "output", "source", "image_url", "input_audio", "file"),
    *("data", "url", "file_data"),
}
"""Members of turns, parts and sources that lead to long texts."""


class LongText(str):
    """Valid base64, or a data URL with it, of which `str` functions see the first characters and
    a placeholder, and the last ones. Its length, its slices and `partition` are those of the whole
    text."""

    __slots__ = ("_whole",)

    _whole: memoryview

    @classmethod
    def of(cls, text: str, whole: memoryview) -> LongText:
        long_text = cls(text)
        long_text._whole = whole
        return long_text

    def __len__(self) -> int:
        return len(self._whole)

    def __getitem__(self, key: SupportsIndex | slice) -> str:
        if isinstance(key, slice):
            return str(self._whole[key], "ascii")
        return chr(self._whole[key])

    def isascii(self) -> bool:
        return True

    def partition(self, sep: str, /) -> tuple[str, str, str]:
        before, found, after = super().partition(sep)
        if not found:
            return self, "", ""
        return before, found, LongText.of(after, self._whole[len(before) + len(sep) :])


class LongTexts:
    """The long texts of one body. If there are any, `short` is the body with placeholders, in which
    `token` is: nobody can guess it, so that no text of a client passes for one."""

    __slots__ = ("_placeholder", "_texts", "_token", "short")

    def __init__(self, raw: Raw, token: str) -> None:
        self._token = f"{_MARK}{token}:"
        self._placeholder = re.compile(self._token.encode() + b"([0-9]+);")
        self._texts: list[tuple[memoryview, int]] = []
        view, position = memoryview(raw), 0
        kept: list[bytes | memoryview] = []
        for start, end in _find_long_strings(raw):
            if (data := _start_of_base64(view[start:end])) is not None:
                visible = data + _HEAD
                placeholder = f"{self._token}{len(self._texts)};".encode()
                kept += view[position : start + visible], placeholder
                self._texts.append((view[start:end], visible))
                position = end - _TAIL
        self.short = b"".join([*kept, view[position:]]) if kept else b""

    def __len__(self) -> int:
        return len(self._texts)

    def attach(self, body: Payload) -> bool:
        """Replaces the placeholders in the value of `short` by long texts. False where a long text
        is in another place than files have: then the body has to be parsed as it is."""
        attached = 0
        containers: list[Any] = [body.get(name) for name in _TURNS]
        while containers:
            container = containers.pop()
            if isinstance(container, list):
                containers += container
            elif isinstance(container, dict):
                for name in _MEMBERS & container.keys():
                    value = container[name]
                    if not isinstance(value, str):
                        containers.append(value)
                    elif (text := self._long_text(value)) and _may_be_long(container, name, text):
                        container[name] = text
                        attached += 1
        return attached == len(self._texts)

    def _long_text(self, text: str) -> LongText | None:
        _, found, rest = text.partition(self._token)
        if not found:
            return None
        return LongText.of(text, self._texts[int(rest.partition(";")[0])][0])

    def restore(self, short: bytes | Buffers) -> Buffers:
        """A JSON text with the long texts in place of their placeholders."""
        if isinstance(short, Buffers):
            return short
        parts: list[bytes | memoryview] = []
        for index, part in enumerate(self._placeholder.split(short)):
            if index % 2:
                whole, visible = self._texts[int(part)]
                parts.append(whole[visible:-_TAIL])
            elif part:
                parts.append(part)
        return Buffers(parts)


def _may_be_long(container: Payload, name: str, text: LongText) -> bool:
    if name == "data":
        return container.get("type") == "base64" or "format" in container
    return name == "file_data" or text.startswith("data:")


def _find_long_strings(raw: Raw) -> Iterator[tuple[int, int]]:
    """Start and end of the strings that may be long base64 texts, without their quotes. Every step
    takes less than a millisecond."""
    at = last_quoted = 0
    while at < len(raw):
        if raw.find(b'"', at, at + _STEP) >= 0:
            last_quoted, at = at, at + _STEP
            continue
        start = raw.rfind(b'"', last_quoted, at) + 1
        end, at = -1, at + _STEP
        while end < 0 and at < len(raw):
            end, at = raw.find(b'"', at, at + _STEP), at + _STEP
        last_quoted = at = max(end, 0) or len(raw)
        if end - start >= MIN_LENGTH and start:
            member = [*_MEMBER.finditer(raw[max(0, start - _MAX_MEMBER) : start])]
            if member and member[-1].end() == min(start, _MAX_MEMBER):
                yield start, end


def _start_of_base64(text: memoryview) -> int | None:
    """Finds where the base64 begins in a base64 text or data URL; None for other texts."""
    url = _DATA_URL.match(text[:_MAX_DATA_URL])
    start = url.end() if url else 0
    if (len(text) - start) % 4:
        return None
    for at in range(start, len(text), _STEP):
        others = bytes(text[at : at + _STEP]).translate(None, _BASE64)
        if others and (at + _STEP < len(text) or not _is_padding(text, others)):
            return None
    return start


def _is_padding(text: memoryview, others: bytes) -> bool:
    return len(others) <= 2 and text[-len(others) :] == others == b"=" * len(others)
