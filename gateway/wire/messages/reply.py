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
from gateway.wire.assembly import normalize_stop
from gateway.wire.codec import ReplyMetadata
from gateway.wire.failures import parse_stream_error
from gateway.wire.fields import Payload
from gateway.wire.lenient import lenient_object, lenient_str
from gateway.wire.messages.message import render_end, opening_message, reported_stop
from gateway.wire.messages.mouth import BlockWriter
from gateway.wire.messages.reply_blocks import TOOL_USE, parse_block
from gateway.wire.messages.shown import EMPTY_TEXT
from gateway.wire.messages.stream import STOP_REASONS
from gateway.wire.messages.usage import parse_usage
from gateway.wire.messages.whole import ReplyBlocks


def parse_reply(body: Payload) -> Reply:
    """Raises `ReplyFailed` where the body is an error or no message at all."""
    content = _reply_content(body)
    parts: list[Part] = [parse_block(lenient_object(block)) for block in content]
    called = any([type(part) is ToolCall for part in parts])
    stop = _reply_stop(body, has_calls=called)
    if stop is StopReason.REFUSAL and not parts:  # else its words were told
        details = lenient_object(body.get("stop_details"))
        if explanation := lenient_str(details.get("explanation")):
            parts.append(Refusal(explanation))
    return Reply(
        id=lenient_str(body.get("id")),
        model=lenient_str(body.get("model")),
        parts=tuple(parts),
        stop=stop,
        usage=_reply_usage(body),
        stop_sequence=lenient_str(body.get("stop_sequence")) or None,
    )


def read_usage(body: Payload) -> tuple[StopReason, Usage | None]:
    """Raises `ReplyFailed` like `parse_reply`."""
    content = _reply_content(body)
    called = any([lenient_object(block).get("type") == TOOL_USE for block in content])
    return _reply_stop(body, has_calls=called), _reply_usage(body)


def render_reply(reply: Reply, prompt: Prompt, stamp: ReplyMetadata) -> tuple[Payload, Set[str]]:
    """The body that the reply's stream adds up to, and the names of what is not in it."""
    mouth = BlockWriter(stamp)
    body = opening_message(prompt, stamp, reply.usage)
    content = body["content"] = ReplyBlocks(mouth).render(reply.parts)
    refusal = next((part for part in reversed(reply.parts) if type(part) is Refusal), None)
    stop = reported_stop(
        reply.stop,
        reply.stop_sequence,
        has_calls=any([type(part) is ToolCall for part in reply.parts]),
        has_refusal=refusal is not None,
    )
    if not content and stop is StopReason.END_TURN:
        content.append(dict(EMPTY_TEXT))
    return body | render_end(stop, reply.stop_sequence, refusal.text if refusal else ""), mouth.dropped


def _reply_content(body: Payload) -> list[Any]:
    content = body.get("content")
    if isinstance(content, list):
        return content
    if "error" in body:
        raise ReplyFailed(parse_stream_error(body))
    raise ReplyFailed(Failure(kind=FailureKind.MALFORMED, message="the reply is no message"))


def _reply_stop(body: Payload, *, has_calls: bool) -> StopReason:
    word = lenient_str(body.get("stop_reason"))
    stop = STOP_REASONS.get(word, StopReason.END_TURN)
    if word and stop is StopReason.END_TURN and lenient_str(body.get("stop_sequence")):
        stop = StopReason.STOP_SEQUENCE
    return normalize_stop(stop, has_calls)


def _reply_usage(body: Payload) -> Usage | None:
    counts = body.get("usage")
    return parse_usage(counts) if isinstance(counts, dict) else None
