"""Edits the response objects of an upstream in place: what the client sees of them is its own.

Every other byte stays. Nothing is searched where the upstream's value is the client's already.
"""

from __future__ import annotations

import re
from typing import Any, Final

import orjson

from gateway.core.prompt import Prompt
from gateway.wire.json_fields import Payload
from gateway.wire.model_name import ModelNamePatcher
from gateway.wire.object_edit import find_members

_OBJECT: Final = re.compile(rb'"response"\s*:\s*\{')
_START: Final = re.compile(rb"\s*\{")


class ResponseEditor:
    """For one reply. The response object is the whole JSON text, or the member `response` of an
    event."""

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
        for name, value in self._fields.items():
            if name in response:
                if (current := response[name]) != value:
                    payload = self._replace(payload, name, current, value)
            elif value is not None:
                payload = self._insert(payload, name, value)
        instructions = response.get("instructions", self._instructions)
        if instructions != self._instructions:
            payload = self._replace(payload, "instructions", instructions, self._instructions)
        return payload

    def edited(self, response: Payload) -> Payload:
        """The same for a parsed object; the copy is a shallow one."""
        fields = {
            name: value
            for name, value in self._fields.items()
            if value is not None or name in response
        }
        edited = response | {"model": self._model_name} | fields
        if "instructions" in response:
            edited["instructions"] = self._instructions
        return edited

    def _replace(self, payload: bytes, name: str, current: Any, value: Any) -> bytes:
        """In one step where the bytes can only be this member: a quote inside of a string is
        escaped."""
        key = b'"%b"' % name.encode()
        if isinstance(current, str):
            old = orjson.dumps(current)
            if payload.count(old) == 1:
                before, _, after = payload.partition(old)
                if before.rstrip().endswith(b":") and before.rstrip()[:-1].rstrip().endswith(key):
                    return before + orjson.dumps(value) + after
        elif current in (None, True, False) and payload.count(key) == 1:
            before, _, after = payload.partition(key)
            literal = orjson.dumps(current)
            rest = after.lstrip()[1:].lstrip()
            if after.lstrip().startswith(b":") and rest.startswith(literal):
                gap = after[: len(after) - len(rest)]
                return before + key + gap + orjson.dumps(value) + rest[len(literal) :]
        return self._replace_members(payload, name, value)

    def _replace_members(self, payload: bytes, name: str, value: Any) -> bytes:
        key, new = b'"%b"' % name.encode(), orjson.dumps(value)
        path = [b'"response"', key] if self._in_event else [key]
        for _, start, end in reversed([*find_members(payload, path)]):
            payload = payload[:start] + new + payload[end:]
        return payload

    def _insert(self, payload: bytes, name: str, value: Any) -> bytes:
        """As the first member, where the upstream does not know the field."""
        match = (_OBJECT.search if self._in_event else _START.match)(payload)
        if match is None or payload.count(b"{", 0, match.end()) != 1 + self._in_event:
            return payload
        member = b'"%b":%b' % (name.encode(), orjson.dumps(value))
        rest = payload[match.end() :]
        comma = b"" if rest.lstrip().startswith(b"}") else b","
        return payload[: match.end()] + member + comma + rest
