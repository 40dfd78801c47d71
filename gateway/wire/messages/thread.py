"""Message threads: requests with only the new messages of a conversation that the gateway holds.

The request that creates a thread has its system text and tools, which later ones must not repeat;
every other field is sent with each request. The names of error codes are the client library's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import orjson

from gateway.errors import InvalidRequest
from gateway.wire.json.fields import Payload, as_object, optional_object, required_str
from gateway.wire.stream.sse import Framer, read_frame

THREADS_BETA: Final = "message-threads-"
"""The prefix of the beta that requests with threads name."""

_CREATE_ONLY: Final = ("system", "tools")
_HOLD_BLOCKS: Final = ("content", "source")
_INPUT: Final = "partial_json"
_DELTA_FIELDS: Final = {
    "text_delta": "text",
    "thinking_delta": "thinking",
    "signature_delta": "signature",
    "input_json_delta": _INPUT,
}


def previous_message_id(body: Payload) -> str | None:
    """The reply that the request's thread continues; None where it creates one. Raises
    `InvalidRequest`; the body has a thread."""
    thread = optional_object(body, "thread") or {}
    kind = required_str(thread, "type", "thread")
    if kind == "create":
        return None
    if kind != "continue":
        raise InvalidRequest("thread.type: Input should be create or continue", param="thread.type")
    for name in _CREATE_ONLY:
        if body.get(name):
            raise InvalidRequest(f"{name}: the thread has its own", param=name)
    return required_str(thread, "previous_message_id", "thread")


def whole_body(body: Payload, turns: Sequence[tuple[Payload, Payload]]) -> Payload:
    """The request with the whole conversation: `turns` are the thread's requests with their replies
    so far, oldest first. Cache breakpoints of earlier turns are left out: a request may have only a
    few, and each was set for the turn that sent it."""
    whole = {name: value for name, value in body.items() if name != "thread"}
    if not turns:
        return whole
    created = turns[0][0]
    whole |= {name: created[name] for name in _CREATE_ONLY if name in created}
    messages: list[Any] = []
    for request, reply in turns:
        messages += _without_breakpoints(request.get("messages") or [])
        if content := reply.get("content"):
            messages.append({"role": "assistant", "content": _without_breakpoints(content)})
    whole["messages"] = messages + (body.get("messages") or [])
    return whole


def _without_breakpoints(value: Any) -> Any:
    """A copy without the `cache_control` of its blocks; what is no block, such as the input of a
    tool, stays as it is."""
    if isinstance(value, list):
        return [_without_breakpoints(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        name: _without_breakpoints(item) if name in _HOLD_BLOCKS else item
        for name, item in value.items()
        if name != "cache_control"
    }


def collect_message(stream: bytes) -> Payload | None:
    """The complete message of a stream as the client received it; None where it has no end, or has
    events that fit no message. Takes a while."""
    framer = Framer()
    text = framer.complete_frames(stream)
    collector = _MessageCollector()
    start = 0
    while start < len(text):
        end = framer.end_of(text, start)
        data = read_frame(text[start:end]).data
        start = end
        try:
            if collector.add(as_object(orjson.loads(data or b"{}"), "data")):
                return collector.message
        except (LookupError, TypeError, AttributeError, ValueError, InvalidRequest):
            return None
    return None


class _MessageCollector:
    """Deltas are joined at the end of their block: to append each of them would take quadratic
    time."""

    def __init__(self) -> None:
        self.message: Payload = {}
        self._pieces: dict[int, dict[str, list[str]]] = {}

    def add(self, event: Payload) -> bool:
        """Tells whether that was the last event."""
        message = self.message
        match event.get("type"):
            case "message_start":
                self.message = event["message"] | {"content": []}
            case "content_block_start":
                message["content"].append(event["content_block"])
            case "content_block_delta":
                self._add_delta(event["index"], event["delta"])
            case "content_block_stop":
                self._end_block(event["index"])
            case "message_delta":
                extra = event.keys() - {"type", "delta", "usage"}
                message |= event["delta"] | {name: event[name] for name in extra}
                message["usage"] = (message.get("usage") or {}) | (event.get("usage") or {})
            case "message_stop":
                return True
            case _:  # a ping, or what is not known
                pass
        return False

    def _add_delta(self, index: int, delta: Payload) -> None:
        kind = delta["type"]
        if kind == "citations_delta":
            block = self.message["content"][index]
            block["citations"] = block.get("citations") or []
            block["citations"].append(delta["citation"])
        elif (name := _DELTA_FIELDS.get(kind)) is not None:
            pieces = self._pieces.setdefault(index, {}).setdefault(name, [])
            pieces.append(delta[name])

    def _end_block(self, index: int) -> None:
        block = self.message["content"][index]
        for name, pieces in self._pieces.pop(index, {}).items():
            text = "".join(pieces)
            if name == _INPUT:
                block["input"] = _parse_input(text)
            else:
                block[name] = (block.get(name) or "") + text


def _parse_input(text: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return {}  # cut off: the call was never made
