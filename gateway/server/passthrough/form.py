"""The model in a multipart form, which is left as it arrived but for the model's name."""

from __future__ import annotations

import re
from typing import Final

from gateway.core.buffers import Buffers
from gateway.core.value import value
from gateway.errors import InvalidRequest
from gateway.wire.json.fields import parse_model
from gateway.wire.json.limits import Raw

FORM: Final = "multipart/form-data"

_MAX_FIELDS: Final = 200
_MAX_HEADERS: Final = 8192
"""Bytes of the headers of a field."""
_STEP: Final = 256 * 1024
"""Bytes that are searched in one step."""
_BOUNDARY: Final = re.compile(
    r';\s*boundary=(?:"([^"\r\n]{1,70})"|([^\s;"]{1,70}))\s*(?:;|$)', re.I
)
_PARAMETER: Final = r';\s*([\w*-]+)=("(?:[^"\\\r\n]|\\.)*"|[^\s;"]+)'
_DISPOSITION: Final = re.compile(rf"\s*form-data((?:{_PARAMETER})+)\s*", re.I)


@value
class Form:
    """A form; the name of its `model` is from `start` to `end`."""

    raw: Raw
    model: str
    start: int
    end: int

    def with_model(self, model: str) -> Buffers:
        """The same bytes with another name of the model; nothing is copied."""
        view = memoryview(self.raw)
        return Buffers([view[: self.start], model.encode(), view[self.end :]])


def read_form(raw: Raw, content_type: str) -> Form:
    """Finds the model of a form. Raises `InvalidRequest`, also where an upstream could read another
    one."""
    if (match := _BOUNDARY.search(content_type)) is None:
        raise InvalidRequest("content-type: has no boundary", param="content-type")
    delimiter = b"\r\n--" + (match[1] or match[2]).encode("utf-8", "surrogateescape")
    spans: list[tuple[int, int]] = []
    position = len(delimiter) - 2
    if raw[:position] != delimiter[2:]:
        raise _invalid("it does not begin with its boundary")
    for _ in range(_MAX_FIELDS):
        if raw[position : position + 2] == b"--":
            break
        head_end = _find(raw, b"\r\n\r\n", position, position + _MAX_HEADERS)
        if head_end < 0 or raw[position : position + 2] != b"\r\n":
            raise _invalid("the headers of a field have no end")
        end = _find(raw, delimiter, head_end + 2, len(raw))
        if end < 0:
            raise _invalid("it does not end with its boundary")
        if _name(bytes(raw[position:head_end])) == "model":
            spans.append((head_end + 4, max(end, head_end + 4)))
        position = end + len(delimiter)
    else:
        raise _invalid(f"it has more than {_MAX_FIELDS} fields")
    if len(spans) > 1:
        raise InvalidRequest("model: occurs more than once", param="model")
    start, end = spans[0] if spans else (0, 0)
    try:
        name = bytes(raw[start:end]).decode()
    except UnicodeDecodeError:
        raise InvalidRequest("model: Input should be UTF-8", param="model") from None
    return Form(raw, parse_model({"model": name} if spans else {}), start, end)


def _name(head: bytes) -> str:
    """The name of a field, from its headers."""
    values = [
        value
        for line in head.decode("utf-8", "surrogateescape").split("\r\n")
        for name, _, value in (line.partition(":"),)
        if name.strip().lower() == "content-disposition"
    ]
    match = _DISPOSITION.fullmatch(values[0]) if len(values) == 1 else None
    parameters: list[tuple[str, str]] = re.findall(_PARAMETER, match[1]) if match else []
    names = [value.strip('"') for key, value in parameters if key.lower() in ("name", "name*")]
    if len(names) != 1:
        raise _invalid("a field needs one content-disposition with one name")
    return names[0]


def _find(raw: Raw, needle: bytes, start: int, end: int) -> int:
    """Finds bytes between two positions; -1 where they are not. Step by step: a search holds the
    interpreter's lock, and that of mapped memory is quadratic."""
    while start < end:
        at = raw[start : min(start + _STEP, end) + len(needle) - 1].find(needle)
        if at >= 0:
            return start + at
        start += _STEP
    return -1


def _invalid(reason: str) -> InvalidRequest:
    return InvalidRequest(f"body: is no valid form: {reason}", param="body")
