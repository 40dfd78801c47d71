"""Whole responses replies. It must not know how an answer was asked for.

The terminal event of a stream carries the whole reply, and a whole body is what that event carries,
so the stream's decoder reads it and its encoder writes it: that is what makes whole replies and
streams mean the same.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Final

from gateway.core.failure import Failure, FailureKind
from gateway.core.prompt import Prompt
from gateway.core.reply import Reply, ReplyFailed, fold, unfold
from gateway.wire.codec import Stamp
from gateway.wire.failures import parse_stream_error
from gateway.wire.fields import Payload
from gateway.wire.responses.encoder import ResponsesEncoder
from gateway.wire.responses.stream import ResponsesDecoder

_TERMINAL: Final = {
    "incomplete": "response.incomplete",
    "failed": "response.failed",
    "cancelled": "response.failed",
}


def parse_reply(body: Payload) -> Reply:
    """Raises `ReplyFailed` where the body is a failure or no response at all."""
    if body.get("error"):
        raise ReplyFailed(parse_stream_error(body))
    if not isinstance(body.get("output"), list):
        raise ReplyFailed(Failure(kind=FailureKind.GARBAGE, message="the reply is no response"))
    kind = _TERMINAL.get(str(body.get("status")), "response.completed")
    return fold(ResponsesDecoder().decode(b"", {"type": kind, "response": body}))


def render_reply(reply: Reply, prompt: Prompt, stamp: Stamp) -> tuple[Payload, Set[str]]:
    """The same reply as a stream would end with it."""
    encoder = ResponsesEncoder(prompt, stamp)
    for event in unfold(reply):
        encoder.encode(event)
    return encoder.response, encoder.dropped
