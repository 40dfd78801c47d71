"""The native lane's edits of chat frames. It must not know what the frames mean to the hub.

The gateway always asks for usage. A client that did not ask gets no usage chunk, and not the
`"usage":null` that the asking brings into every other chunk.

Errors as chat clients read them. It must not decide which error it is.
"""

from __future__ import annotations

import re
from typing import Final

from gateway.core.prompt import (
    Prompt,
)
from gateway.core.target import Target
from gateway.errors import GatewayError
from gateway.wire.chat.reasoning import patch_reasoning
from gateway.wire.error_body import chat_error_body
from gateway.wire.json_fields import (
    Payload,
)
from gateway.wire.model_name import ModelNamePatcher
from gateway.wire.sse import Frame, replace_data, write_frame


def patch_prompt(body: Payload, prompt: Prompt, target: Target) -> Payload:
    """A stream is asked for its usage: nothing else tells what a reply has cost."""
    patched = body | {"model": target.model}
    if body.get("stream"):
        patched["stream_options"] = (body.get("stream_options") or {}) | {"include_usage": True}
    patch_reasoning(patched, prompt, target)
    return patched


PING: Final = b": keepalive\n\n"
"""A sign of life is a comment: the format has no event for it, and its clients break on any."""

_NULL_USAGE: Final = b',"usage":null'
_NULL_USAGE_PATTERN: Final = re.compile(rb',\s*"usage"\s*:\s*null|"usage"\s*:\s*null\s*,')


class ChatRewriter:
    """See `gateway.wire.codec.Rewriter`."""

    __slots__ = ("_include_usage", "_model_name")

    def __init__(self, prompt: Prompt) -> None:
        self._model_name = ModelNamePatcher(prompt.model)
        self._include_usage = prompt.include_usage

    def rewrite(self, frame: Frame, data: Payload | None) -> bytes:
        if data is None or frame.data is None:
            return frame.raw
        written = frame.data
        if not self._include_usage and "usage" in data:
            usage = data["usage"]
            if usage and not data.get("choices") and not data.get("error"):
                return b""
            if usage is None:
                written = _strip_null_usage(written)
        if "model" in data:
            written = self._model_name.patch(written, data["model"])
        return frame.raw if written is frame.data else replace_data(frame, written)

    def skip(self, frames: bytes) -> None:
        """Nothing is remembered of them."""

    def ping(self) -> bytes:
        return PING

    def encode_error(self, error: GatewayError) -> bytes:
        return error_frame(error)


def _strip_null_usage(payload: bytes) -> bytes:
    """Where the member stands twice, one of them is another object's: then both stay."""
    if payload.count(_NULL_USAGE) == 1 and payload.count(b'"usage"') == 1:
        return payload.replace(_NULL_USAGE, b"")
    cut, count = _NULL_USAGE_PATTERN.subn(b"", payload)
    return cut if count == 1 else payload


def error_frame(error: GatewayError) -> bytes:
    """The error as the last frame of a stream; no `[DONE]` follows it."""
    return write_frame(b"", chat_error_body(error))
