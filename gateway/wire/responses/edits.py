"""Edits the response objects of an upstream in place: what the client sees of them is its own.

Every other byte stays. Nothing is searched where the upstream's value is the client's already.
"""

from __future__ import annotations

import re
from typing import Any, Final

import orjson

from gateway.core.prompt import Prompt
from gateway.wire.json.edit import ModelNamePatcher, find_members
from gateway.wire.json.fields import Payload

_OBJECT: Final = re.compile(rb'"response"\s*:\s*\{')
_COLONS: Final = (b":", b": ")
_MAX_WALKED: Final = 256 * 1024
"""Bytes that are walked through, token by token."""
_START: Final = re.compile(rb"\s*\{")


class ResponseEditor:
    """The edits of one reply. The response object is the whole JSON text, or the member `response`
    of an event."""

    __slots__ = ("_fields", "_in_event", "_instructions", "_model", "_model_name")

    def __init__(self, prompt: Prompt, *, in_event: bool) -> None:
        self._in_event = in_event
        self._model_name = prompt.model
        self._model = ModelNamePatcher(prompt.model, parent="response" if in_event else "")
        self._instructions = prompt.instructions
        self._fields: Payload = {"previous_response_id": prompt.previous_response_id}
        if prompt.store is False:
            self._fields["store"] = False
        if prompt.conversation_id is not None:
            self._fields["conversation"] = {"id": prompt.conversation_id}
        if prompt.reply_id is not None:
            self._fields |= {"store": True, "id": prompt.reply_id}

    def edit(self, payload: bytes, response: Payload) -> bytes:
        """`payload` with the client's own values; `response` is the object in it, parsed."""
        payload = self._model.patch(payload, response.get("model"))
        fields = self._fields
        if response.get("instructions", self._instructions) != self._instructions:
            fields = fields | {"instructions": self._instructions}
        for name, value in fields.items():
            if name in response:
                if response[name] != value:
                    edited = self._replace(payload, response, name, value)
                    if edited is None:
                        return self._serialized(payload)
                    payload = edited
            elif value is not None:
                payload = self._insert(payload, name, value)
        return payload

    def edited(self, response: Payload) -> Payload:
        """Edits a parsed object; the copy is a shallow one."""
        fields = {
            name: value
            for name, value in self._fields.items()
            if value is not None or name in response
        }
        edited = response | {"model": self._model_name} | fields
        if "instructions" in response:
            edited["instructions"] = self._instructions
        return edited

    def _replace(self, payload: bytes, response: Payload, name: str, value: Any) -> bytes | None:
        """Replaces a member in one step if its bytes occur once, in either of the usual spellings:
        a quote inside of a string is escaped, so they are a member, and the response has it. None
        where it would take too long to find the member."""
        key, current = b'"%b"' % name.encode(), response[name]
        new = orjson.dumps(value)
        if current is None or isinstance(current, bool | str):
            old = orjson.dumps(current)
            spellings = [key + colon + old for colon in _COLONS]
            counts = list(map(payload.count, spellings))
            if sum(counts) == 1:
                position = counts.index(1)
                return payload.replace(spellings[position], key + _COLONS[position] + new, 1)
        if len(payload) > _MAX_WALKED:
            return None
        path = [b'"response"', key] if self._in_event else [key]
        for _, start, end in reversed([*find_members(payload, path)]):
            payload = payload[:start] + new + payload[end:]
        return payload

    def _serialized(self, payload: bytes) -> bytes:
        """Serialises the whole response with the client's own values."""
        data: Payload = orjson.loads(payload)
        if self._in_event:
            data["response"] = self.edited(data["response"])
            return orjson.dumps(data)
        return orjson.dumps(self.edited(data))

    def _insert(self, payload: bytes, name: str, value: Any) -> bytes:
        """Inserts a field as the first member, if the upstream does not know the field."""
        match = (_OBJECT.search if self._in_event else _START.match)(payload)
        if match is None or payload.count(b"{", 0, match.end()) != 1 + self._in_event:
            return payload
        member = b'"%b":%b' % (name.encode(), orjson.dumps(value))
        rest = payload[match.end() :]
        comma = b"" if rest.lstrip().startswith(b"}") else b","
        return payload[: match.end()] + member + comma + rest
