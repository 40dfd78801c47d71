"""Whole messages replies. It must not know how an answer was asked for.

A whole body means what its blocks mean as a stream, so the stream's decoder reads it too: that is
what makes parsed and folded replies equal.
"""

from __future__ import annotations

from gateway.core.events import Event
from gateway.core.failure import Failure, FailureKind
from gateway.core.reply import Reply, ReplyFailed, fold
from gateway.wire.failures import parse_stream_error
from gateway.wire.fields import Payload
from gateway.wire.messages.stream import MessagesDecoder


def parse_reply(body: Payload) -> Reply:
    """Raises `ReplyFailed` where the body is an error or no message at all."""
    content = body.get("content")
    if isinstance(content, list):
        return fold(_unfold(body, content))
    if "error" in body:
        raise ReplyFailed(parse_stream_error(body))
    raise ReplyFailed(Failure(kind=FailureKind.GARBAGE, message="the reply is no message"))


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
