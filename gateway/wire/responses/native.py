"""The native lane: requests, frames and errors between clients and upstreams of this format."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final

import orjson

from gateway.core.prompt import Prompt
from gateway.core.target import Target
from gateway.errors import GatewayError
from gateway.wire.json.fields import Payload, lenient_object, lenient_str
from gateway.wire.prompt import signatures
from gateway.wire.responses.edits import ResponseEditor
from gateway.wire.responses.ids import is_generated
from gateway.wire.responses.input_items import restore_reasoning, search_items
from gateway.wire.search.results import is_packed
from gateway.wire.stream.sse import Frame, replace_data, write_frame
from gateway.wire.stream.text_filters import CodeFenceStripper, strip_code_fence

_SEQUENCE_FIELD: Final = b'"sequence_number":'
"""The quotes are unescaped, so it cannot be part of a text."""
_DIGITS: Final = re.compile(rb"\s?\d+")
_TEXT_DELTA: Final = "response.output_text.delta"
_TEXT_DONE: Final = "response.output_text.done"
_TEXT_ENDS: Final = {
    *(_TEXT_DONE, "response.content_part.done", "response.output_item.done"),
    *("response.completed", "response.incomplete"),
}
"""Events of which some upstreams omit one or the other."""
INCLUDE_REASONING: Final = "reasoning.encrypted_content"
_WITH_OPTIONAL_ID: Final = frozenset(
    {
        *("message", "function_call", "function_call_output"),
        *("custom_tool_call", "custom_tool_call_output"),
    }
)
"""Types of items whose ids an upstream that stores nothing does not need."""


def patch_prompt(body: Payload, target: Target) -> Payload:
    """A shallow copy for the target, which stores nothing. Histories contain reasoning and ids of
    other formats: the target's own reasoning is restored, that of others and generated ids are
    removed, and so are the ids of items that the target would otherwise look up."""
    patched = body | {"model": target.model}
    is_foreign: Callable[[Any], bool] = _is_generated_item
    if body.get("store") is not False:
        patched |= stateless_fields(body, target)
        is_foreign = _has_foreign_id
    items = body.get("input")
    if isinstance(items, list) and any(map(is_foreign, items)):
        patched["input"] = [
            each for item in items for each in _patch_item(item, target, is_foreign)
        ]
    return patched


def stateless_fields(body: Payload, target: Target) -> Payload:
    """Returns the fields that make a request one that the upstream does not store."""
    fields: Payload = {"store": False}
    include = body.get("include")
    included = include if isinstance(include, list) else []
    if INCLUDE_REASONING not in included and may_reason(body, target):
        fields["include"] = [*included, INCLUDE_REASONING]
    return fields


def may_reason(body: Payload, target: Target) -> bool:
    """Tells whether the reply may have reasoning: it has to come encrypted, or the next request
    could not return it. Models without reasoning refuse to encrypt any."""
    effort = lenient_object(body.get("reasoning")).get("effort")
    reasons = effort != "none" and any(each != "none" for each in target.efforts)
    return reasons and target.encrypted_reasoning


def _is_generated_item(item: Any) -> bool:
    """Tells whether an item has an id, a signature or results of a search that were generated
    here."""
    if not isinstance(item, dict):
        return False
    if (content := item.get("encrypted_content")) and (_is_wrapped(item) or is_packed(content)):
        return True
    return is_generated(item.get("id"))


def _has_foreign_id(item: Any) -> bool:
    """Tells whether an item has a foreign id, or one that is optional: an upstream knows only those
    that it stores."""
    return _is_generated_item(item) or has_optional_id(item)


def has_optional_id(item: Any) -> bool:
    if not isinstance(item, dict) or "id" not in item:
        return False
    return item.get("type") in _WITH_OPTIONAL_ID or "role" in item


def _is_wrapped(item: Payload) -> bool:
    encrypted = item.get("encrypted_content")
    return isinstance(encrypted, str) and signatures.is_wrapped(encrypted)


def _patch_item(item: Any, target: Target, is_foreign: Callable[[Any], bool]) -> Sequence[Any]:
    """The items that the target can read instead of one."""
    if not is_foreign(item):
        return (item,)
    if is_packed(item.get("encrypted_content")):
        return search_items(item)
    without_id = _without_id(item)
    if not _is_wrapped(item):
        return (without_id if without_id.keys() - {"type"} else item,)
    restored = restore_reasoning(signatures.unwrap(item["encrypted_content"], ""), target)
    if restored is None:
        return ()
    del restored["summary"]
    return (without_id | restored,)


def without_proofs(body: Payload, is_lost: Callable[[str], bool]) -> Payload:
    """See `Codec.without_proofs`. Items that name the reasoning before them by their ids lose
    these, too: upstreams demand that reasoning then."""
    items = body.get("input")
    kept = [
        item
        for item in (items if isinstance(items, list) else ())
        if not isinstance(item, dict)
        or item.get("type") != "reasoning"
        or not isinstance(encrypted := item.get("encrypted_content"), str)
        or not is_lost(encrypted)
    ]
    if not isinstance(items, list) or len(kept) == len(items):
        return body
    return body | {"input": [_without_id(each) if has_optional_id(each) else each for each in kept]}


def _without_id(item: Payload) -> Payload:
    return {name: value for name, value in item.items() if name != "id"}


def patch_reply(body: bytes, data: Payload, prompt: Prompt) -> bytes:
    """The upstream's body with the client's own values, and without a code fence around JSON."""
    if prompt.output is not None and (stripped := _without_fences(data)) != data:
        data, body = stripped, orjson.dumps(stripped)
    return ResponseEditor(prompt, in_event=False).edit(body, data)


def _without_fences(value: Any) -> Any:
    """A part, an item or a response; its texts without the code fence around JSON."""
    if not isinstance(value, dict):
        return value
    if value.get("type") == "output_text":
        return value | {"text": strip_code_fence(lenient_str(value.get("text")))}
    for name in ("content", "output"):
        if isinstance(parts := value.get(name), list):
            value = value | {name: [_without_fences(part) for part in parts]}
    return value


class ResponsesRewriter:
    """Edits frames in place. Keeps the last response object and sequence number, for pings and
    errors that follow. For a client that requested JSON it removes the code fence around that, of
    each text: `_held` is the last of its deltas that were held back."""

    __slots__ = ("_editor", "_fence", "_held", "_is_json", "_response", "_sequence", "_skipped")

    def __init__(self, prompt: Prompt) -> None:
        self._is_json = prompt.output is not None
        self._fence = CodeFenceStripper()
        self._held: Payload = {}
        self._editor = ResponseEditor(prompt, in_event=True)
        self._response: Payload | None = None
        self._sequence = -1
        self._skipped = b""  # the last frames that were not parsed, with sequence numbers

    @property
    def keeps_text(self) -> bool:
        return not self._is_json or self._fence.keeps_text

    def rewrite(self, frame: Frame, data: Payload | None) -> bytes:
        if data is None or frame.data is None:
            return frame.raw
        number = data.get("sequence_number")
        self._sequence = number if isinstance(number, int) else self._last_sequence() + 1
        self._skipped = b""
        payload, before = frame.data, b""
        if self._is_json:
            stripped, before = self._strip_fences(data)
            if stripped is None:
                return b""
            if stripped != data:
                data, payload = stripped, orjson.dumps(stripped)
        response = data.get("response")
        if isinstance(response, dict):
            self._response = self._editor.edited(response)
            payload = self._editor.edit(payload, response)
        return before + (frame.raw if payload is frame.data else replace_data(frame, payload))

    def _strip_fences(self, data: Payload) -> tuple[Payload | None, bytes]:
        """The event, None where it is held back, and the frame of what was held back before it."""
        kind, held = data.get("type"), b""
        if kind == _TEXT_DELTA:
            text = self._fence.add(lenient_str(data.get("delta")))
            self._held = data
            return (data | {"delta": text} if text else None), b""
        stripped = {name: _without_fences(value) for name, value in data.items()}
        if kind == _TEXT_DONE:
            stripped["text"] = strip_code_fence(lenient_str(data.get("text")))
        if kind in _TEXT_ENDS:
            if text := self._fence.flush():
                rest = orjson.dumps(self._held | {"delta": text})
                held = write_frame(_TEXT_DELTA.encode(), rest)
            self._fence.begin()
        return stripped, held

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
