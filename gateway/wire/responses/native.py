"""The native lane of responses: edits single frames in place. It must not know what they mean for
the reply: the decoder watches that.

The native lane's requests: the client's own body, but for what only another upstream could read.

Clients echo histories in which replies of other formats stand, with reasoning and ids that this
upstream never gave out. It must not know anything else of a body.

Errors as responses clients read them. It must not decide which error it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import orjson

from gateway.core.prompt import Prompt
from gateway.core.target import Target
from gateway.errors import GatewayError
from gateway.wire import signatures
from gateway.wire.json_fields import Payload
from gateway.wire.model_name import ModelNamePatcher
from gateway.wire.responses.ids import is_generated
from gateway.wire.responses.input_items import restore_reasoning
from gateway.wire.sse import Frame, replace_data, write_frame

_SEQUENCE_FIELD: Final = b'"sequence_number":'
"""The quotes are bare, so no text can look like it."""
_DIGITS: Final = re.compile(rb"\s?\d+")


class ResponsesRewriter:
    """Remembers the newest response object and sequence number, for what must follow them."""

    __slots__ = ("_client_model", "_model", "_response", "_sequence", "_skipped")

    def __init__(self, prompt: Prompt) -> None:
        self._client_model = prompt.model
        self._model = ModelNamePatcher(prompt.model, parent="response")
        self._response: Payload | None = None
        self._sequence = -1
        self._skipped = b""  # the newest frames that were not looked at, and are numbered

    def rewrite(self, frame: Frame, data: Payload | None) -> bytes:
        if data is None or frame.data is None:
            return frame.raw
        number = data.get("sequence_number")
        self._sequence = number if isinstance(number, int) else self._last_sequence() + 1
        self._skipped = b""
        response = data.get("response")
        if not isinstance(response, dict):
            return frame.raw
        self._response = response
        payload = self._model.patch(frame.data, response.get("model"))
        return frame.raw if payload is frame.data else replace_data(frame, payload)

    def skip(self, frames: bytes) -> None:
        if _SEQUENCE_FIELD in frames:
            self._skipped = frames
        else:
            self._sequence = self._last_sequence() + frames.count(b"\n\n")
            self._skipped = b""

    def _last_sequence(self) -> int:
        """The number of the newest frame."""
        last = self._skipped.rfind(_SEQUENCE_FIELD)
        number = _DIGITS.match(self._skipped, last + len(_SEQUENCE_FIELD)) if last >= 0 else None
        return int(number[0]) if number else self._sequence + self._skipped.count(b"\n\n")

    def ping(self) -> bytes:
        """Clients that wait for events do not count comments, and know no other sign of life than
        a repeated `response.in_progress`; it takes no sequence number of its own."""
        if self._response is None:
            return b": keepalive\n\n"
        event = {
            "type": "response.in_progress",
            "sequence_number": self._last_sequence(),
            "response": self._response | {"model": self._client_model},
        }
        return write_frame(b"response.in_progress", orjson.dumps(event))

    def encode_error(self, error: GatewayError) -> bytes:
        if self._response is None:
            return error_frame(error, self._last_sequence() + 1)
        return failed_frame(
            error, self._response | {"model": self._client_model}, self._last_sequence() + 1
        )


def patch_prompt(body: Payload, target: Target) -> Payload:
    """A shallow copy for the target. Reasoning of its own that came back through another format is
    as it was written; that of others is left out."""
    patched = body | {"model": target.model}
    items = body.get("input")
    if isinstance(items, list) and any(_is_generated_item(item) for item in items):
        patched["input"] = [known for item in items for known in _restore_item(item, target)]
    return patched


def _is_generated_item(item: Any) -> bool:
    """Whether an item speaks of what was made here."""
    if not isinstance(item, dict):
        return False
    encrypted = item.get("encrypted_content")
    packed = isinstance(encrypted, str) and signatures.is_wrapped(encrypted)
    return packed or is_generated(item.get("id"))


def _restore_item(item: Any, target: Target) -> Iterator[Any]:
    if not _is_generated_item(item):
        yield item
        return
    encrypted = item.get("encrypted_content")
    if isinstance(encrypted, str) and signatures.is_wrapped(encrypted):
        restored = restore_reasoning(signatures.unwrap(encrypted, ""), target)
        if restored is not None:
            del restored["summary"]
            yield _without_id(item) | restored
    elif item.keys() - {"type", "id"}:
        yield _without_id(item)
    else:
        yield item


def _without_id(item: Payload) -> Payload:
    return {name: value for name, value in item.items() if name != "id"}


def failed_frame(error: GatewayError, response: Payload, sequence: int) -> bytes:
    """The error as the terminal event of a stream whose reply has begun as `response`."""
    failed = response | {
        "status": "failed",
        "error": {"code": _error_code(error), "message": error.message},
    }
    event = {"type": "response.failed", "sequence_number": sequence, "response": failed}
    return write_frame(b"response.failed", orjson.dumps(event))


def error_frame(error: GatewayError, sequence: int) -> bytes:
    """The error as the only event of a stream."""
    event = {
        "type": "error",
        "code": _error_code(error),
        "message": error.message,
        "param": error.param,
        "sequence_number": sequence,
    }
    return write_frame(b"error", orjson.dumps(event))


def _error_code(error: GatewayError) -> str:
    """Clients decide by the code whether to come back, so there is always one."""
    return error.code or error.type
