"""Replaces the upstream's model name by the client's in JSON bytes; every other byte stays."""

from __future__ import annotations

import re

import orjson

_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[{}\[\]]')
_MEMBER = re.compile(rb'"model"\s*:\s*("(?:[^"\\]|\\.)*")')
_VALUE = re.compile(rb'\s*:\s*("(?:[^"\\]|\\.)*")?')


class ModelNamePatcher:
    """For one request. `parent` is the key of the object that has `model` (`message`, `response`),
    or empty for the top level."""

    __slots__ = ("_cached_edit", "_client_model", "_parent")

    def __init__(self, client_model: str, parent: str = "") -> None:
        self._client_model = client_model
        self._parent = b'"%b"' % parent.encode() if parent else b""
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
        spans = [single.span() + single.span(1)[:1]] if single else self._find_values(payload)
        for start, end, value_start in reversed(spans):
            if len(spans) == 1:
                new = payload[start:value_start] + value
                self._cached_edit = (current, payload[start:end], new)
            payload = payload[:value_start] + value + payload[end:]
        return payload

    def _find_values(self, payload: bytes) -> list[tuple[int, int, int]]:
        """The parent's `model` members: start of the key, end and start of the value."""
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

    def _is_parent(self, path: list[bytes]) -> bool:
        return path == ([self._parent] if self._parent else [])
