"""Changes members of a JSON object, such as the model, in its bytes; every other byte stays."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Final

import orjson

from gateway.wire.json.fields import Payload

_PLAIN_KEY: Final = re.compile(r"[a-z_]+")
_ESCAPED_KEY: Final = re.compile(rb"\\u00[4-7]")
"""Such an escape may be a letter of a key."""
_MAX_CANDIDATES: Final = 8
"""Members of the same name that are tried, one of which may be the object's own."""

_MAX_PARSED: Final = 16 * 1024 * 1024
"""Bytes of a body that is parsed again to find one of several members."""

_STRING: Final = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_SCALAR: Final = re.compile(_STRING + rb"|[^\s,}\]]+")
_TOKEN: Final = re.compile(_STRING + rb"|[{}\[\],]")
_OPENING: Final = (b"{", b"[")
_ENDING: Final = (b",", b"}", b"]")
_COLON: Final = re.compile(rb"\s*:\s*")
_SCALARS: Final = (str, int, float, bool, type(None))

_Span = tuple[int, int]
"""Start and end of a value."""


def edit_object(
    raw: bytes, before: Payload, after: Payload, checked: Iterable[str] = ()
) -> bytes | None:
    """`raw`, which parses to `before`, with the members that `after` changed or added; None where
    it is uncertain which bytes these are, or where one of the `checked` members may occur more
    than once: then `after` has to be serialised. An unchanged member is the same object in both."""
    if not before or not before.keys() <= after.keys():
        return None
    has_escaped_key = _has_escaped_key(raw)
    starts: dict[str, int] = {}
    for key in checked:
        if key in before:
            if (start := _find(raw, key, has_escaped_key)) is None:
                return None
            starts[key] = start
    try:
        return _edit(raw, before, after, starts, has_escaped_key)
    except TypeError:  # orjson reads deeper nesting than it writes
        return None


def _edit(
    raw: bytes, before: Payload, after: Payload, starts: dict[str, int], has_escaped_key: bool
) -> bytes | None:
    """`starts` are the places of some values."""
    added = b""
    edits: list[tuple[_Span, bytes]] = []
    for key, value in after.items():
        if key not in before:
            added += orjson.dumps(key) + b":" + orjson.dumps(value) + b","
        elif not _is_same(value, before[key]):
            start = starts.get(key) or _find(raw, key, has_escaped_key)
            if start is None:
                return None
            edits.append(((start, _end_of_value(raw, start)), orjson.dumps(value)))
    if added:
        start = raw.index(b"{") + 1
        edits.append(((start, start), added))
    return _splice(raw, edits) if edits else raw


def _is_same(value: Any, other: Any) -> bool:
    if value is other:
        return True
    if type(value) is not type(other):
        return False
    if type(value) in _SCALARS:
        return bool(value == other)
    is_small = type(value) is dict and len(value) == len(other) <= 1
    return is_small and orjson.dumps(value) == orjson.dumps(other)


def _find(raw: bytes, key: str, has_escaped_key: bool) -> int | None:
    """Finds where the value of a top-level member begins; None if there may be several."""
    if not _PLAIN_KEY.fullmatch(key):
        return None
    quoted = b'"%b"' % key.encode()
    first, last = raw.find(quoted), raw.rfind(quoted)
    if first == last and not has_escaped_key:
        # The object has such a key, and these bytes occur nowhere else.
        colon = _COLON.match(raw, first + len(quoted)) if first >= 0 else None
        return colon.end() if colon else None
    if len(raw) > _MAX_PARSED:
        return None
    found = re.finditer(re.escape(quoted) + _COLON.pattern, raw)
    members = [match.span() for match in islice(found, _MAX_CANDIDATES)]
    for start, end in [*members[:1], *members[:0:-1]]:
        renamed = raw[:start] + b'"%b"' % (b"*" * len(key)) + raw[start + len(quoted) :]
        if key not in orjson.loads(renamed):
            return end
    return None


def find_member(raw: bytes, key: str) -> int | None:
    """Finds where the value of a member of a JSON object begins; None if there may be several."""
    return _find(raw, key, _has_escaped_key(raw))


def _has_escaped_key(raw: bytes) -> bool:
    # From the back: that search costs half as much in a large body.
    return raw.rfind(b"\\u00") >= 0 and _ESCAPED_KEY.search(raw) is not None


def _end_of_value(raw: bytes, start: int) -> int:
    if raw[start : start + 1] not in _OPENING:
        scalar = _SCALAR.match(raw, start)
        return scalar.end() if scalar else start
    depth = 0
    for token in _TOKEN.finditer(raw, start):
        text = token.group()
        if text in _OPENING:
            depth += 1
        elif text in _ENDING[1:]:
            depth -= 1
            if depth == 0:
                return token.end()
    return len(raw)


def find_members(raw: bytes, path: list[bytes]) -> Iterator[tuple[int, int, int]]:
    """Yields every member at `path`, quoted keys from the top of the JSON object `raw`: start of
    its key, start and end of its value."""
    keys: list[bytes] = []  # of every open container the current key
    key_start = start = -1
    for token in _TOKEN.finditer(raw):
        text = token.group()
        if text in _OPENING:
            keys.append(text)
        elif text in _ENDING:
            if start >= 0 and len(keys) == len(path):
                yield key_start, start, start + len(raw[start : token.start()].rstrip())
                start = -1
            if text != b",":
                keys.pop()
        elif len(keys) <= len(path) and (colon := _COLON.match(raw, token.end())):
            keys[-1] = text
            if keys == path:
                key_start, start = token.start(), colon.end()


def _splice(raw: bytes, edits: list[tuple[_Span, bytes]]) -> bytes:
    parts: list[bytes] = []
    position = 0
    for (start, end), new in sorted(edits):
        parts += raw[position:start], new
        position = end
    parts.append(raw[position:])
    return b"".join(parts)


_MEMBER = re.compile(rb'"model"\s*:\s*("(?:[^"\\]|\\.)*")')


class ModelNamePatcher:
    """The replacement of the model's name for one request. `parent` is the key of the object that
    has `model` (`message`, `response`), or empty for the top level."""

    __slots__ = ("_cached_edit", "_client_model", "_path")

    def __init__(self, client_model: str, parent: str = "") -> None:
        self._client_model = client_model
        self._path = [b'"%b"' % parent.encode(), b'"model"'] if parent else [b'"model"']
        self._cached_edit: tuple[str, bytes, bytes] | None = None

    def patch(self, payload: bytes, current: object) -> bytes:
        """`payload` is one JSON object in which the parent's `model` parses to `current`."""
        if current == self._client_model or not isinstance(current, str):
            return payload
        if self._cached_edit and self._cached_edit[0] == current:
            _, old, new = self._cached_edit
            # A quote inside a JSON string is escaped, so this can only be a member; but another
            # object may have the same member.
            if payload.count(old) == 1:
                return payload.replace(old, new)
        value = orjson.dumps(self._client_model)  # not kept: orjson's shortest bytes hold 4 KiB
        # A single member of that name can only be the one that was parsed.
        single = _MEMBER.search(payload) if payload.count(b'"model"') == 1 else None
        if single:
            members = [(single.start(), *single.span(1))]
        else:
            found = find_members(payload, self._path)
            members = [member for member in found if payload.startswith(b'"', member[1])]
        for start, value_start, end in reversed(members):
            if len(members) == 1:
                new = payload[start:value_start] + value
                self._cached_edit = (current, payload[start:end], new)
            payload = payload[:value_start] + value + payload[end:]
        return payload
