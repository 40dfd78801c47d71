"""Whole messages replies. It must not know how an answer was asked for.

A body is read and written block by block, with what the stream's decoder and encoder do to a block:
whole and streamed replies are equal. The tests hold them to it.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Any

from gateway.core.events import StopReason
from gateway.core.failure import Failure, FailureKind
from gateway.core.parts import Part, Refusal, ToolCall
from gateway.core.prompt import Prompt
from gateway.core.reply import Reply, ReplyFailed
from gateway.core.usage import Usage
from gateway.wire.assembly import settled
from gateway.wire.codec import Stamp
from gateway.wire.failures import parse_stream_error
from gateway.wire.fields import Payload
from gateway.wire.lenient import read_object, read_text
from gateway.wire.messages.message import ending, opening_message, told_stop
from gateway.wire.messages.mouth import Mouth
from gateway.wire.messages.reply_blocks import CALL, complete_part
from gateway.wire.messages.shown import NO_WORDS
from gateway.wire.messages.stream import STOPS
from gateway.wire.messages.usage import parse_usage
from gateway.wire.messages.whole import WholeBlocks


def parse_reply(body: Payload) -> Reply:
    """Raises `ReplyFailed` where the body is an error or no message at all."""
    content = _content(body)
    parts: list[Part] = [complete_part(read_object(block)) for block in content]
    called = any([type(part) is ToolCall for part in parts])
    stop = _stop(body, called=called)
    if stop is StopReason.REFUSAL and not parts:  # else its words were told
        details = read_object(body.get("stop_details"))
        if explanation := read_text(details.get("explanation")):
            parts.append(Refusal(explanation))
    return Reply(
        id=read_text(body.get("id")),
        model=read_text(body.get("model")),
        parts=tuple(parts),
        stop=stop,
        usage=_usage(body),
        stop_sequence=read_text(body.get("stop_sequence")) or None,
    )


def measure_reply(body: Payload) -> tuple[StopReason, Usage | None]:
    """Raises `ReplyFailed` like `parse_reply`."""
    content = _content(body)
    called = any([read_object(block).get("type") == CALL for block in content])
    return _stop(body, called=called), _usage(body)


def render_reply(reply: Reply, prompt: Prompt, stamp: Stamp) -> tuple[Payload, Set[str]]:
    """The body that the reply's stream adds up to, and the names of what is not in it."""
    mouth = Mouth(stamp)
    body = opening_message(prompt, stamp, reply.usage)
    content = body["content"] = WholeBlocks(mouth).rendered(reply.parts)
    refusal = next((part for part in reversed(reply.parts) if type(part) is Refusal), None)
    stop = told_stop(
        reply.stop,
        reply.stop_sequence,
        called=any([type(part) is ToolCall for part in reply.parts]),
        refused=refusal is not None,
    )
    if not content and stop is StopReason.END_TURN:
        content.append(dict(NO_WORDS))
    return body | ending(stop, reply.stop_sequence, refusal.text if refusal else ""), mouth.lost


def _content(body: Payload) -> list[Any]:
    content = body.get("content")
    if isinstance(content, list):
        return content
    if "error" in body:
        raise ReplyFailed(parse_stream_error(body))
    raise ReplyFailed(Failure(kind=FailureKind.GARBAGE, message="the reply is no message"))


def _stop(body: Payload, *, called: bool) -> StopReason:
    word = read_text(body.get("stop_reason"))
    stop = STOPS.get(word, StopReason.END_TURN)
    if word and stop is StopReason.END_TURN and read_text(body.get("stop_sequence")):
        stop = StopReason.STOP_SEQUENCE
    return settled(stop, called)


def _usage(body: Payload) -> Usage | None:
    counts = body.get("usage")
    return parse_usage(counts) if isinstance(counts, dict) else None
