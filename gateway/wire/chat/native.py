"""The native lane of the chat format: edits requests and frames in place.

The gateway always requests usage. A client that did not request it gets neither the usage chunk nor
the `"usage":null` that the request adds to every other chunk.
"""

from __future__ import annotations

import re
from typing import Final

import orjson

from gateway.core.prompt import Prompt
from gateway.core.target import Target
from gateway.errors import GatewayError
from gateway.wire.chat.reasoning import patch_reasoning
from gateway.wire.codec import replace_model
from gateway.wire.error_body import chat_error_body
from gateway.wire.json_fields import Payload, lenient_object, lenient_objects, lenient_str
from gateway.wire.model_name import ModelNamePatcher
from gateway.wire.sse import Frame, read_frame, replace_data, write_frame
from gateway.wire.text_filters import CodeFenceStripper, strip_code_fence

_COMMENT: Final = b": keepalive\n\n"
_CHUNK_FIELDS: Final = ("id", "object", "created", "model")
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
    """See `gateway.wire.codec.Rewriter`. Keeps the last chunk, for pings."""

    __slots__ = ("_chunk", "_include_usage", "_model_name", "keeps_text")

    def __init__(self, prompt: Prompt) -> None:
        self._model_name = ModelNamePatcher(prompt.model)
        self._include_usage = prompt.include_usage
        self.keeps_text = True
        self._chunk: Payload = {}

    def rewrite(self, frame: Frame, data: Payload | None) -> bytes:
        if data is None or frame.data is None:
            return frame.raw
        self._chunk = data
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
        """A chunk without content, as clients that wait for chunks ignore comments; a comment where
        none may come: before the first chunk, and after the finish reason."""
        chunk, choices = self._chunk, lenient_objects(self._chunk.get("choices"))
        if not choices or any(choice.get("finish_reason") for choice in choices):
            return _COMMENT
        fields = {name: chunk[name] for name in _CHUNK_FIELDS if name in chunk}
        empty = {"index": 0, "delta": {}, "finish_reason": None}
        payload = orjson.dumps(fields | {"choices": [empty]})
        return write_frame(b"", self._model_name.patch(payload, chunk.get("model")))

    def encode_error(self, error: GatewayError) -> bytes:
        return error_frame(error)


class JsonChatRewriter(ChatRewriter):
    """For a client that requested JSON: removes the code fence around it, of each choice."""

    __slots__ = ("_strippers",)

    def __init__(self, prompt: Prompt) -> None:
        super().__init__(prompt)
        self._strippers: dict[int, CodeFenceStripper] = {}

    def rewrite(self, frame: Frame, data: Payload | None) -> bytes:
        if data is not None and (choices := data.get("choices")):
            stripped = [self._strip(choice) for choice in lenient_objects(choices)]
            self.keeps_text = all(each.keeps_text for each in self._strippers.values())
            if stripped != choices:
                data = data | {"choices": stripped}
                frame = read_frame(replace_data(frame, orjson.dumps(data)))
        return super().rewrite(frame, data)

    def _strip(self, choice: Payload) -> Payload:
        index, delta = choice.get("index"), lenient_object(choice.get("delta"))
        content = lenient_str(delta.get("content"))
        stripper = self._strippers.setdefault(
            index if isinstance(index, int) else 0, CodeFenceStripper()
        )
        text = stripper.add(content) if content else ""
        if choice.get("finish_reason"):
            text += stripper.flush()
        return choice if text == content else choice | {"delta": delta | {"content": text}}


def rewriter(prompt: Prompt) -> ChatRewriter:
    return ChatRewriter(prompt) if prompt.output is None else JsonChatRewriter(prompt)


def patch_reply(body: bytes, data: Payload, prompt: Prompt) -> bytes:
    """The upstream's body with the client's model name, and without a code fence around JSON."""
    if prompt.output is not None:
        choices = [_strip_message(choice) for choice in lenient_objects(data.get("choices"))]
        if choices and choices != data["choices"]:
            data = data | {"choices": choices}
            body = orjson.dumps(data)
    return replace_model(body, data, prompt)


def _strip_message(choice: Payload) -> Payload:
    message = lenient_object(choice.get("message"))
    content = lenient_str(message.get("content"))
    text = strip_code_fence(content)
    return choice if text == content else choice | {"message": message | {"content": text}}


def error_frame(error: GatewayError) -> bytes:
    """The error as the last frame of a stream; no `[DONE]` follows it."""
    return write_frame(b"", chat_error_body(error))


def _strip_null_usage(payload: bytes) -> bytes:
    """If the member occurs twice, one of them belongs to another object: both stay."""
    if payload.count(_NULL_USAGE) == 1 and payload.count(b'"usage"') == 1:
        return payload.replace(_NULL_USAGE, b"")
    stripped, count = _NULL_USAGE_PATTERN.subn(b"", payload)
    return stripped if count == 1 else payload
