"""Replaces the upstream's model name by the client's in JSON bytes; every other byte stays."""

from __future__ import annotations

import re

import orjson

from gateway.wire.object_edit import find_members

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
