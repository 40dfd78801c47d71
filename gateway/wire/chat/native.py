"""The native lane of the chat format: edits requests and frames in place.

The gateway always requests usage. A client that did not request it gets neither the usage chunk nor
the `"usage":null` that the request adds to every other chunk.
"""

from __future__ import annotations

import re
from typing import Final

import orjson

from gateway.core.prompt import ChoiceMode, Prompt
from gateway.core.target import Target
from gateway.errors import GatewayError
from gateway.wire.chat.reasoning import patch_reasoning
from gateway.wire.chat.tools import SEARCH_FIELD
from gateway.wire.chat.usage import USAGE_FIELD
from gateway.wire.codec import replace_model
from gateway.wire.error_body import chat_error_body
from gateway.wire.json.edit import ModelNamePatcher
from gateway.wire.json.fields import Payload, lenient_object, lenient_objects, lenient_str
from gateway.wire.stream.sse import Frame, replace_data, write_frame
from gateway.wire.stream.text_filters import CodeFenceStripper, strip_code_fence

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
    patched.pop(USAGE_FIELD, None)  # the gateway's own answer
    choice = prompt.tool_choice
    if choice is not None and choice.mode is ChoiceMode.NONE:
        patched.pop(SEARCH_FIELD, None)  # upstreams apply the choice to tools alone
    return patched


class ChatRewriter:
    """See `gateway.wire.codec.Rewriter`. Keeps the last chunk, for pings. For a client that
    requested JSON it removes the code fence around that, of each choice."""

    __slots__ = ("_chunk", "_fences", "_include_usage", "_model_name", "keeps_text")

    def __init__(self, prompt: Prompt) -> None:
        self._model_name = ModelNamePatcher(prompt.model)
        self._include_usage = prompt.include_usage
        self._fences: dict[int, CodeFenceStripper] | None = None if prompt.output is None else {}
        self.keeps_text = True
        self._chunk: Payload = {}

    def rewrite(self, frame: Frame, data: Payload | None) -> bytes:
        if data is None or frame.data is None:
            return self._held_texts() + frame.raw if self._fences else frame.raw
        payload = frame.data
        if self._fences is not None:
            data, payload = self._strip_fences(data, payload, self._fences)
        self._chunk = data
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
        """Does nothing: there is no state to update."""

    def ping(self) -> bytes:
        """A chunk without content, as clients that wait for chunks ignore comments; a comment where
        none may come: before the first chunk, and after the finish reason."""
        choices = lenient_objects(self._chunk.get("choices"))
        if not choices or any(choice.get("finish_reason") for choice in choices):
            return _COMMENT
        return self._write_delta(0, {})

    def _write_delta(self, index: int, delta: Payload) -> bytes:
        chunk = self._chunk
        fields = {name: chunk[name] for name in _CHUNK_FIELDS if name in chunk}
        choice = {"index": index, "delta": delta, "finish_reason": None}
        payload = orjson.dumps(fields | {"choices": [choice]})
        return write_frame(b"", self._model_name.patch(payload, chunk.get("model")))

    def _held_texts(self) -> bytes:
        """Returns what is left of choices that end without a finish reason."""
        texts = [(index, fence.flush()) for index, fence in (self._fences or {}).items()]
        return b"".join(self._write_delta(each, {"content": text}) for each, text in texts if text)

    def encode_error(self, error: GatewayError) -> bytes:
        return error_frame(error)

    def _strip_fences(
        self, data: Payload, payload: bytes, fences: dict[int, CodeFenceStripper]
    ) -> tuple[Payload, bytes]:
        choices = lenient_objects(data.get("choices"))
        stripped = [_strip_delta(choice, fences) for choice in choices]
        self.keeps_text = all(fence.keeps_text for fence in fences.values())
        if stripped == choices:
            return data, payload
        data = data | {"choices": stripped}
        return data, orjson.dumps(data)


def _strip_delta(choice: Payload, fences: dict[int, CodeFenceStripper]) -> Payload:
    index, delta = choice.get("index"), lenient_object(choice.get("delta"))
    content = lenient_str(delta.get("content"))
    fence = fences.setdefault(index if isinstance(index, int) else 0, CodeFenceStripper())
    text = fence.add(content) if content else ""
    if choice.get("finish_reason"):
        text += fence.flush()
    return choice if text == content else choice | {"delta": delta | {"content": text}}


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
    """Removes a null usage. If the member occurs twice, one of them belongs to another object: both
    stay."""
    if payload.count(_NULL_USAGE) == 1 and payload.count(b'"usage"') == 1:
        return payload.replace(_NULL_USAGE, b"")
    stripped, count = _NULL_USAGE_PATTERN.subn(b"", payload)
    return stripped if count == 1 else payload
