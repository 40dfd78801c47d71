"""Reads responses streams into events. It must not know who asked or what leaves for the client.

Upstreams met in the wild leave out indexes, sequence numbers and details of the response object,
and speak errors flat, nested, or in other formats' forms.

Whole responses replies. It must not know how an answer was asked for.

The terminal event of a stream carries the whole reply, and a whole body is what that event carries.
The stream's encoder and decoder know all of it; the usual items are written, and all but odd ones
read, in one step. The tests hold both ways to the same.

Parts of output items that are given whole. It must not know how a stream tells them.

`gateway.wire.responses.decode_items` tells the same of items piece by piece.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, Final

from gateway.core.events import Begin, Event, Failure, FailureKind, StopReason, Usage
from gateway.core.formats import Format
from gateway.core.parts import (
    Part,
    ProviderData,
    Refusal,
    ServerToolCall,
    ServerToolResult,
    Text,
    Thinking,
    ToolCall,
    UnknownPart,
)
from gateway.core.reply import Reply, ReplyFailed, collect_reply
from gateway.wire.event_builder import EventBuilder, normalize_stop
from gateway.wire.json_fields import (
    Payload,
    dump_json,
    lenient_object,
    lenient_objects,
    lenient_str,
)
from gateway.wire.responses.content import parse_citation
from gateway.wire.responses.decode_items import (
    CALLS,
    FUNCTION_CALL,
    MESSAGE,
    REASONING,
    OutputDecoder,
    parse_signature,
    parse_tool_call,
    reasoning_without_text,
)
from gateway.wire.responses.usage import parse_usage
from gateway.wire.upstream_errors import parse_stream_error

_STOP_REASONS: Final = {
    "max_output_tokens": StopReason.MAX_TOKENS,
    "content_filter": StopReason.REFUSAL,
}


def incomplete_stop_reason(response: Payload) -> StopReason:
    """Why a response that is not complete has stopped."""
    reason = lenient_str(lenient_object(response.get("incomplete_details")).get("reason"))
    return _STOP_REASONS.get(reason, StopReason.END_TURN)


class ResponsesDecoder:
    """Reads the events about the response as a whole; `Output` reads those about its items."""

    __slots__ = ("_builder", "_in_progress", "_output", "_usage")

    def __init__(self) -> None:
        self._builder = EventBuilder()
        self._output = OutputDecoder(self._builder)
        self._usage: Usage | None = None
        self._in_progress = False

    def decode(self, name: bytes, data: Payload) -> Sequence[Event]:
        if self._builder.finished:
            return ()
        kind = lenient_str(data.get("type")) or name.decode("ascii", "replace")
        if self._output.handle(kind, data):
            return self._builder.take()
        if handle := self._HANDLERS.get(kind):
            handle(self, data)
        elif name == b"error" or data.get("error"):
            self._on_error(data)
        return self._builder.take()

    def done(self) -> Sequence[Event]:
        return ()

    def close(self) -> Sequence[Event]:
        self._builder.truncate(self._usage)
        return self._builder.take()

    def _on_started(self, data: Payload) -> None:
        response = lenient_object(data.get("response"))
        self._usage = parse_usage(response, self._usage)
        self._builder.begin(
            Begin(
                id=lenient_str(response.get("id")),
                model=lenient_str(response.get("model")),
                usage=self._usage,
                extra=ProviderData(Format.RESPONSES, response),
            )
        )

    def _on_progress(self, data: Payload) -> None:
        """The first one belongs to the opening; a repeated one is a sign of life."""
        if self._in_progress:
            self._builder.ping()
        self._in_progress = True
        self._on_started(data)

    def _on_completed(self, data: Payload) -> None:
        self._finish(data, StopReason.END_TURN)

    def _on_incomplete(self, data: Payload) -> None:
        self._finish(data, incomplete_stop_reason(lenient_object(data.get("response"))))

    def _finish(self, data: Payload, stop: StopReason) -> None:
        self._on_started(data)
        response = lenient_object(data.get("response"))
        self._output.finish(response.get("output"))
        if self._output.refused and stop is StopReason.END_TURN:
            stop = StopReason.REFUSAL
        self._builder.end(stop, self._usage, extra=ProviderData(Format.RESPONSES, response))

    def _on_error(self, data: Payload) -> None:
        self._usage = parse_usage(lenient_object(data.get("response")), self._usage)
        self._builder.fail(parse_stream_error(data), self._usage)

    def _on_keepalive(self, data: Payload) -> None:
        self._builder.ping()

    _HANDLERS: ClassVar[dict[str, Callable[[ResponsesDecoder, Payload], None]]] = {
        "response.created": _on_started,
        "response.queued": _on_started,
        "response.in_progress": _on_progress,
        "response.completed": _on_completed,
        "response.incomplete": _on_incomplete,
        "response.failed": _on_error,
        "response.cancelled": _on_error,
        "error": _on_error,
        "keepalive": _on_keepalive,
    }


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


_SEARCH_CALL = "web_search_call"


def parse_output_item(item: Payload) -> Sequence[Part]:
    kind = lenient_str(item.get("type"))
    if kind == MESSAGE:
        return _message_parts(item)
    if kind in CALLS:
        said = lenient_str(item.get("arguments" if kind == FUNCTION_CALL else "input"))
        return (parse_tool_call(item, said or ("{}" if kind == FUNCTION_CALL else "")),)
    if kind == REASONING:
        return (_reasoning_part(item),)
    if kind == _SEARCH_CALL:
        call_id, pocket = lenient_str(item.get("id")), ProviderData(Format.RESPONSES, item)
        action = dump_json(lenient_object(item.get("action")))
        return (
            ServerToolCall(call_id, "web_search", action, extra=pocket),
            ServerToolResult(call_id, "web_search", pocket),
        )
    return (UnknownPart(kind, ProviderData(Format.RESPONSES, item)),) if kind else ()


def _message_parts(item: Payload) -> list[Part]:
    parts: list[Part] = []
    label = _item_metadata(item)
    for part in lenient_objects(item.get("content")):
        kind = part.get("type")
        if kind == "output_text":
            annotations = lenient_objects(part.get("annotations"))
            citations = tuple([parse_citation(annotation) for annotation in annotations])
            parts.append(Text(lenient_str(part.get("text")), citations, extra=label))
        elif kind == "refusal":
            parts.append(Refusal(lenient_str(part.get("refusal"))))
    return parts


def _reasoning_part(item: Payload) -> Part:
    """Its summary, else its raw text: one of them is told."""
    said = [lenient_str(part.get("text")) for part in lenient_objects(item.get("summary"))]
    if not any(said):
        said = [lenient_str(part.get("text")) for part in lenient_objects(item.get("content"))]
    text = "\n\n".join(filter(None, said))
    signature = parse_signature(item)
    if not text:
        return reasoning_without_text(item, signature)
    return Thinking(text, signature, extra=_item_metadata(item))


def _item_metadata(item: Payload) -> ProviderData | None:
    """What this format's own encoder knows an item by."""
    label: Payload = {}
    if item_id := item.get("id"):
        label["id"] = item_id
    if phase := lenient_str(item.get("phase")):
        label["phase"] = phase
    return ProviderData(Format.RESPONSES, label) if label else None
