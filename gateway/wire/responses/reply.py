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
from gateway.core.reply import Reply, ReplyFailed, fold, unfold
from gateway.core.usage import Usage
from gateway.wire.assembly import settled
from gateway.wire.codec import Stamp
from gateway.wire.failures import parse_stream_error
from gateway.wire.fields import Payload
from gateway.wire.lenient import read_objects, read_text
from gateway.wire.responses.arrivals import CALLS, MESSAGE
from gateway.wire.responses.complete import complete_parts
from gateway.wire.responses.encoder import ResponsesEncoder, client_tools_of
from gateway.wire.responses.ids import Ids
from gateway.wire.responses.pen import SilentPen
from gateway.wire.responses.response import ended_response, opening_response, reason_of
from gateway.wire.responses.stream import ResponsesDecoder, incomplete_stop
from gateway.wire.responses.usage import parse_usage
from gateway.wire.responses.whole import usual_items

_COMPLETED: Final = "response.completed"
_FAILED: Final = "response.failed"
_TERMINAL: Final = {
    "incomplete": "response.incomplete",
    "failed": _FAILED,
    "cancelled": _FAILED,
}


def parse_reply(body: Payload) -> Reply:
    """Raises `ReplyFailed` where the body is a failure or no response at all."""
    kind, items = _opened(body)
    if kind == _FAILED or _repeats_ids(items):
        return fold(ResponsesDecoder().decode(b"", {"type": kind, "response": body}))
    parts = tuple([part for item in items for part in complete_parts(item)])
    kinds = {type(part) for part in parts}
    return Reply(
        id=read_text(body.get("id")),
        model=read_text(body.get("model")),
        parts=parts,
        stop=_stop(body, kind, called=ToolCall in kinds, refused=Refusal in kinds),
        usage=parse_usage(body),
    )


def measure_reply(body: Payload) -> tuple[StopReason, Usage | None]:
    """Raises `ReplyFailed` like `parse_reply`."""
    kind, items = _opened(body)
    if kind == _FAILED or _repeats_ids(items):
        reply = parse_reply(body)
        return reply.stop, reply.usage
    called = any([item.get("type") in CALLS for item in items])
    refused = any([item.get("type") == MESSAGE and _refuses(item) for item in items])
    return _stop(body, kind, called=called, refused=refused), parse_usage(body)


def render_reply(reply: Reply, prompt: Prompt, stamp: Stamp) -> tuple[Payload, Set[str]]:
    """The same reply as a stream would end with it."""
    end = End(reply.stop, reply.usage, reply.stop_sequence)
    reason = reason_of(reply.stop, refused=False)
    items = None
    if not client_tools_of(prompt.tools):
        items = usual_items(reply.parts, Ids(stamp.reply_id), cut=reason is not None)
    if items is not None:
        return ended_response(opening_response(prompt, stamp), items, end, reason), frozenset()
    encoder = ResponsesEncoder(prompt, stamp, SilentPen())
    for event in unfold(reply):
        encoder.encode(event)
    return encoder.response, encoder.dropped


def _opened(body: Payload) -> tuple[str, list[Payload]]:
    """The terminal event that would carry the body, and the output items."""
    if body.get("error"):
        raise ReplyFailed(parse_stream_error(body))
    if not isinstance(body.get("output"), list):
        raise ReplyFailed(Failure(kind=FailureKind.GARBAGE, message="the reply is no response"))
    status = body.get("status")
    kind = _TERMINAL.get(status) if isinstance(status, str) else None
    return kind or _COMPLETED, read_objects(body["output"])


def _repeats_ids(items: Sequence[Payload]) -> bool:
    """Whether several items have one id: then they are one item to the decoder."""
    if len(items) < 2:
        return False
    ids = [id for item in items if isinstance(id := item.get("id"), str) and id]
    return len(set(ids)) < len(ids)


def _refuses(message: Payload) -> bool:
    return any([part.get("type") == "refusal" for part in read_objects(message.get("content"))])


def _stop(body: Payload, kind: str, *, called: bool, refused: bool) -> StopReason:
    stop = StopReason.END_TURN if kind == _COMPLETED else incomplete_stop(body)
    if refused and stop is StopReason.END_TURN:
        stop = StopReason.REFUSAL
    return settled(stop, called)
