"""The native lane of the chat format: edits requests and frames in place.

The gateway always requests usage. A client that did not request it gets neither the usage chunk nor
the `"usage":null` that the request adds to every other chunk.
"""

from __future__ import annotations

import re
from typing import Final

from gateway.core.prompt import Prompt
from gateway.core.target import Target
from gateway.errors import GatewayError
from gateway.wire.chat.reasoning import patch_reasoning
from gateway.wire.error_body import chat_error_body
from gateway.wire.json_fields import Payload
from gateway.wire.model_name import ModelNamePatcher
from gateway.wire.sse import Frame, replace_data, write_frame

PING: Final = b": keepalive\n\n"
"""A comment: the format has no ping event, and client libraries fail on unknown ones."""
_NULL_USAGE: Final = b',"usage":null'
_NULL_USAGE_PATTERN: Final = re.compile(rb',\s*"usage"\s*:\s*null|"usage"\s*:\s*null\s*,')


def patch_prompt(body: Payload, prompt: Prompt, target: Target) -> Payload:
    """A shallow copy. Streams request their usage, which the cost of a reply depends on."""
    patched = body | {"model": target.model}
    if body.get("stream"):
        patched["stream_options"] = (body.get("stream_options") or {}) | {"include_usage": True}
    patch_reasoning(patched, prompt, target)
    return patched


class ChatRewriter:
    """See `gateway.wire.codec.Rewriter`."""

    __slots__ = ("_include_usage", "_model_name")

    def __init__(self, prompt: Prompt) -> None:
        self._model_name = ModelNamePatcher(prompt.model)
        self._include_usage = prompt.include_usage

    def rewrite(self, frame: Frame, data: Payload | None) -> bytes:
        if data is None or frame.data is None:
            return frame.raw
        payload = frame.data
        if not self._include_usage and "usage" in data:
            usage = data["usage"]
            if usage and not data.get("choices") and not data.get("error"):
                return b""
            if usage is None:
                payload = _strip_null_usage(payload)
        if "model" in data:
            payload = self._model_name.patch(payload, data["model"])
        return frame.raw if payload is frame.data else replace_data(frame, payload)

    def skip(self, frames: bytes) -> None:
        """There is no state to update."""

    def ping(self) -> bytes:
        return PING

    def encode_error(self, error: GatewayError) -> bytes:
        return error_frame(error)


def error_frame(error: GatewayError) -> bytes:
    """The error as the last frame of a stream; no `[DONE]` follows it."""
    return write_frame(b"", chat_error_body(error))


def _strip_null_usage(payload: bytes) -> bytes:
    """If the member occurs twice, one of them belongs to another object: both stay."""
    if payload.count(_NULL_USAGE) == 1 and payload.count(b'"usage"') == 1:
        return payload.replace(_NULL_USAGE, b"")
    stripped, count = _NULL_USAGE_PATTERN.subn(b"", payload)
    return stripped if count == 1 else payload
