"""The native lane: requests, frames and errors between clients and upstreams of this format."""

from __future__ import annotations

import re
from typing import Any, Final

import orjson

from gateway.core.prompt import Prompt
from gateway.core.target import Target
from gateway.errors import GatewayError
from gateway.wire import signatures
from gateway.wire.codec import replace_model
from gateway.wire.json_fields import Payload
from gateway.wire.model_name import ModelNamePatcher
from gateway.wire.object_edit import find_members
from gateway.wire.responses.ids import is_generated
from gateway.wire.responses.input_items import restore_reasoning
from gateway.wire.responses.settings import echo_instructions
from gateway.wire.sse import Frame, replace_data, write_frame

_SEQUENCE_FIELD: Final = b'"sequence_number":'
"""The quotes are unescaped, so it cannot be part of a text."""
_DIGITS: Final = re.compile(rb"\s?\d+")
_INSTRUCTIONS: Final = b'"instructions"'
_IN_RESPONSE: Final = [b'"response"', _INSTRUCTIONS]


def patch_prompt(body: Payload, target: Target) -> Payload:
    """A shallow copy for the target. Histories contain reasoning and ids of other formats: the
    target's own reasoning is restored, that of others and generated ids are removed."""
    patched = body | {"model": target.model}
    items = body.get("input")
    if isinstance(items, list) and any(map(_is_generated_item, items)):
        patched_items = [_patch_item(item, target) for item in items]
        patched["input"] = [item for item in patched_items if item is not None]
    return patched


def _is_generated_item(item: Any) -> bool:
    """Whether an item has an id or a signature that was generated here."""
    return isinstance(item, dict) and (_is_wrapped(item) or is_generated(item.get("id")))


def _is_wrapped(item: Payload) -> bool:
    encrypted = item.get("encrypted_content")
    return isinstance(encrypted, str) and signatures.is_wrapped(encrypted)


def _patch_item(item: Any, target: Target) -> Any | None:
    """The item as the target can read it; None where it cannot."""
    if not _is_generated_item(item):
        return item
    without_id = {name: value for name, value in item.items() if name != "id"}
    if not _is_wrapped(item):
        return without_id if without_id.keys() - {"type"} else item
    restored = restore_reasoning(signatures.unwrap(item["encrypted_content"], ""), target)
    if restored is None:
        return None
    del restored["summary"]
    return without_id | restored


def patch_reply(body: bytes, data: Payload, prompt: Prompt) -> bytes:
    """The upstream's body with the client's model name and `instructions`."""
    body = replace_model(body, data, prompt)
    return _patch_instructions(body, data, echo_instructions(prompt), [_INSTRUCTIONS])


def _patch_instructions(
    payload: bytes, response: Payload, instructions: str | None, path: list[bytes]
) -> bytes:
    """`payload` with the client's own instructions at `path`, where the upstream has others."""
    if response.get("instructions") in (None, instructions):
        return payload
    for _, start, end in reversed([*find_members(payload, path)]):
        payload = payload[:start] + orjson.dumps(instructions) + payload[end:]
    return payload


class ResponsesRewriter:
    """Edits frames in place. Keeps the last response object and sequence number, for pings and
    errors that follow."""

    __slots__ = ("_client_model", "_instructions", "_model", "_response", "_sequence", "_skipped")

    keeps_text = True

    def __init__(self, prompt: Prompt) -> None:
        self._client_model = prompt.model
        self._instructions = echo_instructions(prompt)
        self._model = ModelNamePatcher(prompt.model, parent="response")
        self._response: Payload | None = None
        self._sequence = -1
        self._skipped = b""  # the last frames that were not parsed, with sequence numbers

    def rewrite(self, frame: Frame, data: Payload | None) -> bytes:
        if data is None or frame.data is None:
            return frame.raw
        number = data.get("sequence_number")
        self._sequence = number if isinstance(number, int) else self._last_sequence() + 1
        self._skipped = b""
        response = data.get("response")
        if not isinstance(response, dict):
            return frame.raw
        self._response = response | {"model": self._client_model}
        if "instructions" in response:
            self._response["instructions"] = self._instructions
        payload = self._model.patch(frame.data, response.get("model"))
        payload = _patch_instructions(payload, response, self._instructions, _IN_RESPONSE)
        return frame.raw if payload is frame.data else replace_data(frame, payload)

    def skip(self, frames: bytes) -> None:
        if _SEQUENCE_FIELD in frames:
            self._skipped = frames
        else:
            self._sequence = self._last_sequence() + frames.count(b"\n\n")
            self._skipped = b""

    def _last_sequence(self) -> int:
        last = self._skipped.rfind(_SEQUENCE_FIELD)
        number = _DIGITS.match(self._skipped, last + len(_SEQUENCE_FIELD)) if last >= 0 else None
        return int(number[0]) if number else self._sequence + self._skipped.count(b"\n\n")

    def ping(self) -> bytes:
        """A repeated `response.in_progress`, with the sequence number of the last frame: clients
        that wait for events ignore comments."""
        if self._response is None:
            return b": keepalive\n\n"
        event = {
            "type": "response.in_progress",
            "sequence_number": self._last_sequence(),
            "response": self._response,
        }
        return write_frame(b"response.in_progress", orjson.dumps(event))

    def encode_error(self, error: GatewayError) -> bytes:
        sequence = self._last_sequence() + 1
        if self._response is None:
            return error_frame(error, sequence)
        response = self._response
        if response.get("output"):  # its terminal event was withheld
            response = response | {"output": []}
        return failed_frame(error, response, sequence)


def failed_frame(error: GatewayError, response: Payload, sequence: int) -> bytes:
    """The error as the terminal event of a stream that has started with `response`. Clients decide
    by the code whether to retry, so there is always one."""
    fields = {"code": error.code or error.type, "message": error.message}
    failed = response | {"status": "failed", "error": fields}
    event = {"type": "response.failed", "sequence_number": sequence, "response": failed}
    return write_frame(b"response.failed", orjson.dumps(event))


def error_frame(error: GatewayError, sequence: int) -> bytes:
    """The error as the only event of a stream."""
    event = {
        "type": "error",
        "code": error.code or error.type,
        "message": error.message,
        "param": error.param,
        "sequence_number": sequence,
    }
    return write_frame(b"error", orjson.dumps(event))
