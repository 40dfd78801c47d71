"""Writes the client's model id over the upstream's in JSON bytes, leaving every other byte alone.

It must not know where a format keeps the name: the caller says which object holds it.
"""

from __future__ import annotations

import re

import orjson

_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[{}\[\]]')
_MEMBER = re.compile(rb'"model"\s*:\s*("(?:[^"\\]|\\.)*")')
_VALUE = re.compile(rb'\s*:\s*("(?:[^"\\]|\\.)*")?')


class ModelNamePatcher:
    """The client's id for one exchange. `parent` is the key of the object that holds `model`
    (`message`, `response`), or empty for the top level."""

    __slots__ = ("_cached_edit", "_client_model", "_parent")

    def __init__(self, client_model: str, parent: str = "") -> None:
        self._client_model = client_model
        self._parent = b'"%b"' % parent.encode() if parent else b""
        self._cached_edit: tuple[str, bytes, bytes] | None = None

    def patch(self, payload: bytes, current: object) -> bytes:
        """`payload` is one JSON object in which the parent's `model` parses to `named`."""
        if current == self._client_model or not isinstance(current, str):
            return payload
        if self._cached_edit and self._cached_edit[0] == current:
            _, found, instead = self._cached_edit
            # A quote inside a JSON string is escaped, so this can only be a member; but the same
            # member may stand in another object too.
            if payload.count(found) == 1:
                return payload.replace(found, instead)
        written = orjson.dumps(
            self._client_model
        )  # not kept: the shortest that it makes holds 4 KiB
        # One member of that name in all can only be the one that was parsed.
        only = _MEMBER.search(payload) if payload.count(b'"model"') == 1 else None
        spans = [(only.start(), only.end(), only.start(1))] if only else self._find_values(payload)
        for start, end, value in reversed(spans):
            if len(spans) == 1:
                found = payload[start:end]
                self._cached_edit = (current, found, payload[start:value] + written)
            payload = payload[:value] + written + payload[end:]
        return payload

    def _find_values(self, payload: bytes) -> list[tuple[int, int, int]]:
        """Where the parent's `model` stands: start of the key, end and start of the value."""
        spans: list[tuple[int, int, int]] = []
        keys: list[bytes] = []
        position = 0
        while token := _TOKEN.search(payload, position):
            position = token.end()
            text = token.group()
            if text in (b"{", b"["):
                keys.append(b"" if text == b"{" else b"[")
            elif text in (b"}", b"]"):
                keys.pop()
            elif (value := _VALUE.match(payload, position)) and keys:
                keys[-1] = text
                if value.group(1) is not None:
                    position = value.end()
                    if text == b'"model"' and self._is_parent(keys[:-1]):
                        spans.append((token.start(), value.end(1), value.start(1)))
        return spans

    def _is_parent(self, above: list[bytes]) -> bool:
        return above == ([self._parent] if self._parent else [])
