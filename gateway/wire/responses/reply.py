"""Whole responses replies. It must not know how an answer was asked for.

The terminal event of a stream carries the whole reply, and a whole body is what that event carries.
The stream's encoder and decoder know all of it; the usual items are written, and all but odd ones
read, in one step. The tests hold both ways to the same.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Final

from gateway.core.events import End, StopReason
from gateway.core.failure import Failure, FailureKind
from gateway.core.parts import Refusal, ToolCall
from gateway.core.prompt import Prompt
from gateway.core.reply import Reply, ReplyFailed, collect_reply, reply_events
from gateway.core.usage import Usage
from gateway.wire.assembly import normalize_stop
from gateway.wire.codec import ReplyMetadata
from gateway.wire.failures import parse_stream_error
from gateway.wire.fields import Payload
from gateway.wire.lenient import lenient_objects, lenient_str
from gateway.wire.responses.arrivals import CALLS, MESSAGE
from gateway.wire.responses.complete import parse_output_item
from gateway.wire.responses.encoder import ResponsesEncoder, client_tools_of
from gateway.wire.responses.ids import IdGenerator
from gateway.wire.responses.pen import NullWriter
from gateway.wire.responses.response import finished_response, opening_response, incomplete_reason
from gateway.wire.responses.stream import ResponsesDecoder, incomplete_stop_reason
from gateway.wire.responses.usage import parse_usage
from gateway.wire.responses.whole import render_simple_items

_COMPLETED_EVENT: Final = "response.completed"
_FAILED_EVENT: Final = "response.failed"
_TERMINAL_EVENTS: Final = {
    "incomplete": "response.incomplete",
    "failed": _FAILED_EVENT,
    "cancelled": _FAILED_EVENT,
}


def parse_reply(body: Payload) -> Reply:
    """Raises `ReplyFailed` where the body is a failure or no response at all."""
    kind, items = _terminal_event(body)
    if kind == _FAILED_EVENT or _has_duplicate_ids(items):
        return collect_reply(ResponsesDecoder().decode(b"", {"type": kind, "response": body}))
    parts = tuple([part for item in items for part in parse_output_item(item)])
    kinds = {type(part) for part in parts}
    return Reply(
        id=lenient_str(body.get("id")),
        model=lenient_str(body.get("model")),
        parts=parts,
        stop=_stop_reason(body, kind, called=ToolCall in kinds, refused=Refusal in kinds),
        usage=parse_usage(body),
    )


def read_usage(body: Payload) -> tuple[StopReason, Usage | None]:
    """Raises `ReplyFailed` like `parse_reply`."""
    kind, items = _terminal_event(body)
    if kind == _FAILED_EVENT or _has_duplicate_ids(items):
        reply = parse_reply(body)
        return reply.stop, reply.usage
    called = any([item.get("type") in CALLS for item in items])
    refused = any([item.get("type") == MESSAGE and _has_refusal(item) for item in items])
    return _stop_reason(body, kind, called=called, refused=refused), parse_usage(body)


def render_reply(reply: Reply, prompt: Prompt, metadata: ReplyMetadata) -> tuple[Payload, Set[str]]:
    """The same reply as a stream would end with it."""
    end = End(reply.stop, reply.usage, reply.stop_sequence)
    reason = incomplete_reason(reply.stop, refused=False)
    items = None
    if not client_tools_of(prompt.tools):
        items = render_simple_items(reply.parts, IdGenerator(metadata.reply_id), truncated=reason is not None)
    if items is not None:
        return finished_response(opening_response(prompt, metadata), items, end, reason), frozenset()
    encoder = ResponsesEncoder(prompt, metadata, NullWriter())
    for event in reply_events(reply):
        encoder.encode(event)
    return encoder.response, encoder.dropped


def _terminal_event(body: Payload) -> tuple[str, list[Payload]]:
    """The terminal event that would carry the body, and the output items."""
    if body.get("error"):
        raise ReplyFailed(parse_stream_error(body))
    if not isinstance(body.get("output"), list):
        raise ReplyFailed(Failure(kind=FailureKind.MALFORMED, message="the reply is no response"))
    status = body.get("status")
    kind = _TERMINAL_EVENTS.get(status) if isinstance(status, str) else None
    return kind or _COMPLETED_EVENT, lenient_objects(body["output"])


def _has_duplicate_ids(items: Sequence[Payload]) -> bool:
    """Whether several items have one id: then they are one item to the decoder."""
    if len(items) < 2:
        return False
    ids = [id for item in items if isinstance(id := item.get("id"), str) and id]
    return len(set(ids)) < len(ids)


def _has_refusal(message: Payload) -> bool:
    return any([part.get("type") == "refusal" for part in lenient_objects(message.get("content"))])


def _stop_reason(body: Payload, kind: str, *, called: bool, refused: bool) -> StopReason:
    stop = StopReason.END_TURN if kind == _COMPLETED_EVENT else incomplete_stop_reason(body)
    if refused and stop is StopReason.END_TURN:
        stop = StopReason.REFUSAL
    return normalize_stop(stop, called)
