"""Whole messages replies. It must not know how an answer was asked for.

A whole body means what its blocks mean as a stream, so the stream's decoder reads it too, and the
stream's encoder tells what is in it: that is what makes whole and streamed replies equal.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Any, Final

import orjson

from gateway.core.events import Event
from gateway.core.failure import Failure, FailureKind
from gateway.core.prompt import Prompt
from gateway.core.reply import Reply, ReplyFailed, fold, unfold
from gateway.wire.codec import Stamp
from gateway.wire.failures import parse_stream_error
from gateway.wire.fields import Payload
from gateway.wire.messages.encoder import MessagesEncoder
from gateway.wire.messages.stream import MessagesDecoder
from gateway.wire.sse import Framer

_LENGTHENED: Final = {
    "text_delta": "text",
    "thinking_delta": "thinking",
    "signature_delta": "signature",
}


def parse_reply(body: Payload) -> Reply:
    """Raises `ReplyFailed` where the body is an error or no message at all."""
    content = body.get("content")
    if isinstance(content, list):
        return fold(_unfold(body, content))
    if "error" in body:
        raise ReplyFailed(parse_stream_error(body))
    raise ReplyFailed(Failure(kind=FailureKind.GARBAGE, message="the reply is no message"))


def render_reply(reply: Reply, prompt: Prompt, stamp: Stamp) -> tuple[Payload, Set[str]]:
    """The body that the reply's stream adds up to, and the names of what is not in it."""
    encoder = MessagesEncoder(prompt, stamp)
    body: Payload = {}
    inputs: dict[int, str] = {}
    for frame in Framer().feed(b"".join(map(encoder.encode, unfold(reply)))):
        _add(body, inputs, orjson.loads(frame.data or b"{}"))
    for index, text in inputs.items():
        body["content"][index]["input"] = orjson.loads(text)
    return body, encoder.dropped


def _add(body: Payload, inputs: dict[int, str], data: Payload) -> None:
    """One event of the stream; the input of a call can only be read once it is complete."""
    match data["type"]:
        case "message_start":
            body |= data["message"]
        case "content_block_start":
            body["content"].append(data["content_block"])
        case "content_block_delta":
            _grow(body["content"][data["index"]], inputs, data["index"], data["delta"])
        case "message_delta":
            body |= data["delta"]
            body["usage"] = data["usage"]
        case _:
            pass


def _grow(block: Payload, inputs: dict[int, str], index: int, delta: Any) -> None:
    kind = delta["type"]
    if kind == "input_json_delta":
        inputs[index] = inputs.get(index, "") + delta["partial_json"]
    elif kind == "citations_delta":
        block.setdefault("citations", []).append(delta["citation"])
    else:
        block[_LENGTHENED[kind]] += delta[_LENGTHENED[kind]]


def _unfold(body: Payload, content: list[object]) -> list[Event]:
    decoder = MessagesDecoder()
    events = [*decoder.decode(b"", {"type": "message_start", "message": body})]
    for index, block in enumerate(content):
        start = {"type": "content_block_start", "index": index, "content_block": block}
        events += decoder.decode(b"", start)
        events += decoder.decode(b"", {"type": "content_block_stop", "index": index})
    events += decoder.decode(b"", {"type": "message_delta", "delta": body})
    events += decoder.decode(b"", {"type": "message_stop"})
    return events
