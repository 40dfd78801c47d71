"""The native lane of responses: edits single frames in place. It must not know what they mean for
the reply: the decoder watches that.
"""

from __future__ import annotations

import re
from typing import Final

import orjson

from gateway.core.prompt import Prompt
from gateway.errors import GatewayError
from gateway.wire.fields import Payload
from gateway.wire.model_name import ModelNamePatcher
from gateway.wire.responses.errors import error_frame, failed_frame
from gateway.wire.sse import Frame, replace_data, write_frame

_SEQUENCE_FIELD: Final = b'"sequence_number":'
"""The quotes are bare, so no text can look like it."""
_DIGITS: Final = re.compile(rb"\s?\d+")


class ResponsesRewriter:
    """Remembers the newest response object and sequence number, for what must follow them."""

    __slots__ = ("_model", "_skipped", "_response", "_sequence", "_client_model")

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
        return failed_frame(error, self._response | {"model": self._client_model}, self._last_sequence() + 1)
