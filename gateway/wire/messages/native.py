"""The native lane of the messages format: edits requests and frames in place.

The history of a request may hold reasoning, searches and citations of upstreams of other formats:
reasoning returns to the upstream that wrote it, the results of searches that the gateway ran become
text, and everything else of them is removed.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import orjson

from gateway.core.parts import Part, Text, Thinking
from gateway.core.prompt import Prompt, Role, Turn
from gateway.core.target import Target
from gateway.errors import GatewayError
from gateway.wire.codec import replace_model
from gateway.wire.error_body import messages_error_body
from gateway.wire.json.edit import ModelNamePatcher, find_members
from gateway.wire.json.fields import Payload, lenient_object, lenient_objects, lenient_str
from gateway.wire.messages.content import is_generated_citation, restore_thinking
from gateway.wire.messages.reasoning import patch_reasoning, remove_clear_thinking
from gateway.wire.messages.render_prompt import missing_leading_thinking
from gateway.wire.messages.tools import is_foreign_search
from gateway.wire.search.calls import lower_version
from gateway.wire.search.history import describe_own_search, is_own_search
from gateway.wire.stream.sse import Frame, replace_data, write_frame
from gateway.wire.stream.text_filters import CodeFenceStripper, strip_code_fence

_TEXT_ENDS: Final = ("content_block_stop", "message_delta")
"""Events after which no text comes to its block; some upstreams omit the first."""
_BOM = b"\xef\xbb\xbf"
PING = write_frame(b"ping", b'{"type":"ping"}')


class MessagesRewriter:
    """Client libraries skip frames without an `event:` line, so those get one. For a client that
    requested JSON it removes the code fence around that, of each block."""

    __slots__ = ("_fence", "_index", "_is_json", "_model_name", "_reply_id")

    def __init__(self, prompt: Prompt) -> None:
        self._model_name = ModelNamePatcher(prompt.model, parent="message")
        self._reply_id = prompt.reply_id
        self._is_json = prompt.output is not None
        self._fence = CodeFenceStripper()
        self._index: Any = 0  # of the block that is open

    @property
    def keeps_text(self) -> bool:
        return not self._is_json or self._fence.keeps_text

    def rewrite(self, frame: Frame, data: Payload | None) -> bytes:
        raw = frame.raw
        if self._is_json and data and (stripped := self._without_fence(raw, data)) is not None:
            return stripped
        if data is None or (frame.name and frame.name != b"message_start"):
            return raw
        if isinstance(message := data.get("message"), dict) and frame.data:
            payload = self._model_name.patch(frame.data, message.get("model"))
            if self._reply_id is not None:
                payload = _replace_id(payload, self._reply_id, [b'"message"', b'"id"'])
            if payload is not frame.data:
                raw = replace_data(frame, payload)
        return raw if frame.name else _with_event_line(raw, data)

    def _without_fence(self, raw: bytes, data: Payload) -> bytes | None:
        """Removes the fence; None if the frame stays as it is."""
        kind, delta = data.get("type"), lenient_object(data.get("delta"))
        rest = b""
        if kind == "content_block_start":
            self._fence.begin()
            self._index = data.get("index")
        if kind in _TEXT_ENDS and (text := self._fence.flush()):
            rest = raw if raw.startswith(b"event:") else _with_event_line(raw, data)
        elif kind == "content_block_delta" and delta.get("type") == "text_delta":
            piece = lenient_str(delta.get("text"))
            if (text := self._fence.add(piece)) == piece:
                return None
        else:
            return None
        fields = {"index": self._index, "delta": {"type": "text_delta", "text": text}}
        payload = orjson.dumps({"type": "content_block_delta"} | fields)
        return (write_frame(b"content_block_delta", payload) if text else b"") + rest

    def skip(self, frames: bytes) -> None:
        """Does nothing: there is no state to update."""

    def ping(self) -> bytes:
        return PING

    def encode_error(self, error: GatewayError) -> bytes:
        return error_frame(error)


def patch_reply(body: bytes, data: Payload, prompt: Prompt) -> bytes:
    """The upstream's body with the client's model name, with the gateway's id where the reply has
    one, and without a code fence around JSON."""
    if prompt.output is not None:
        blocks = [_strip_block(block) for block in lenient_objects(data.get("content"))]
        if blocks and blocks != data["content"]:
            data = data | {"content": blocks}
            body = orjson.dumps(data)
    body = replace_model(body, data, prompt)
    return body if prompt.reply_id is None else _replace_id(body, prompt.reply_id, [b'"id"'])


def _strip_block(block: Payload) -> Payload:
    text = block.get("text")
    return block | {"text": strip_code_fence(text)} if isinstance(text, str) else block


def _replace_id(payload: bytes, id: str, path: list[bytes]) -> bytes:
    for _, start, end in reversed([*find_members(payload, path)]):
        payload = payload[:start] + orjson.dumps(id) + payload[end:]
    return payload


def _with_event_line(raw: bytes, data: Payload) -> bytes:
    kind = data.get("type")
    if not (isinstance(kind, str) and kind.isidentifier()):
        if "error" not in data:
            return raw
        kind = "error"
    return b"event: %b\n%b" % (kind.encode(), raw.removeprefix(_BOM))


def patch_prompt(body: Payload, prompt: Prompt, target: Target) -> Payload:
    """A shallow copy; messages with foreign parts are copied too."""
    patched = body | {"model": target.model}
    patch_reasoning(patched, prompt, target)
    tools = body.get("tools")
    if tools and target.web_search is not None:
        patched["tools"] = [lower_version(definition, target) for definition in tools]
    assistant_turns = [turn for turn in prompt.turns if turn.role is Role.ASSISTANT]
    if not any([_is_foreign(part) for turn in assistant_turns for part in turn.parts]):
        return patched
    patched["messages"] = list(_restore_messages(body["messages"], prompt.turns, target))
    thinking = patched.get("thinking")
    has_budget = thinking is not None and thinking["type"] == "enabled"
    if has_budget and missing_leading_thinking(patched["messages"]):
        patched["thinking"] = {"type": "disabled"}
        remove_clear_thinking(patched)
    return patched


_PROOFS: Final = {"thinking": "signature", "redacted_thinking": "data"}


def without_proofs(body: Payload, is_lost: Callable[[str], bool]) -> Payload:
    """See `Codec.without_proofs`. Thinking with a budget is switched off where the thinking is gone
    that an unfinished turn has to begin with."""
    messages = [_without_lost(message, is_lost) for message in body["messages"]]
    if all(map(operator.is_, messages, body["messages"])):
        return body
    body = body | {"messages": [each for each in messages if each is not None]}
    has_budget = lenient_object(body.get("thinking")).get("type") == "enabled"
    if has_budget and missing_leading_thinking(body["messages"]):
        body["thinking"] = {"type": "disabled"}
        remove_clear_thinking(body)
    return body


def _without_lost(message: Any, is_lost: Callable[[str], bool]) -> Any | None:
    content = message.get("content") if isinstance(message, dict) else None
    if not isinstance(content, list) or message.get("role") != "assistant":
        return message
    kept = [
        block
        for block in content
        if not isinstance(block, dict)
        or (field := _PROOFS.get(lenient_str(block.get("type")))) is None
        or not is_lost(lenient_str(block.get(field)))
    ]
    if len(kept) == len(content):
        return message
    return message | {"content": kept} if kept else None


def _is_foreign(part: Part) -> bool:
    if type(part) is Text:
        citations = [each.extra for each in part.citations if each.extra]
        return bool(citations) and any([is_generated_citation(each.data) for each in citations])
    if isinstance(part, Thinking):
        return part.origin is not None
    return is_foreign_search(part)


def _restore_messages(
    messages: Sequence[Payload], turns: Sequence[Turn], target: Target
) -> Iterator[Payload]:
    """The messages without foreign parts; a message of nothing else is omitted."""
    for message, turn in zip(messages, turns[-len(messages) :], strict=True):
        if not any(map(_is_foreign, turn.parts)):
            yield message
            continue
        blocks = [
            _restore_block(block, part, turn.parts, target)
            for block, part in zip(message["content"], turn.parts, strict=True)
        ]
        if content := [block for block in blocks if block is not None]:
            yield message | {"content": content}


def _restore_block(block: Any, part: Part, parts: Sequence[Part], target: Target) -> Any | None:
    if not _is_foreign(part):
        return block
    if isinstance(part, Thinking):
        return restore_thinking(part, target)
    if isinstance(part, Text):
        kept = [each for each in block["citations"] if not is_generated_citation(each)]
        without = {name: value for name, value in block.items() if name != "citations"}
        return without | ({"citations": kept} if kept else {})
    if is_own_search(part) and (text := describe_own_search(parts, part)):
        return {"type": "text", "text": text}
    return None


def error_frame(error: GatewayError) -> bytes:
    """The error as the last frame of a stream."""
    return write_frame(b"error", messages_error_body(error, None))
