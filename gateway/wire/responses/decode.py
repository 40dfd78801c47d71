"""Responses replies to events: streams frame by frame, and complete bodies in one step.

Upstreams omit indexes, sequence numbers and fields of the response object, and send errors flat,
nested, or in the form of other formats. A complete body is what a stream's terminal event carries:
the tests compare both ways.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, Final

from gateway.core.events import Begin, Event, Failure, FailureKind, StopReason, Usage
from gateway.core.formats import Format
from gateway.core.parts import ProviderData, Refusal, ReplyField, ToolCall
from gateway.core.reply import Reply, ReplyFailed, collect_reply
from gateway.wire.json.fields import Payload, lenient_object, lenient_objects, lenient_str
from gateway.wire.responses.decode_items import CALLS, MESSAGE, OutputDecoder, parse_output_item
from gateway.wire.responses.usage import parse_usage
from gateway.wire.stream.event_builder import EventBuilder, normalize_stop
from gateway.wire.upstream_errors import parse_stream_error

_COMPLETED: Final = "response.completed"
_INCOMPLETE: Final = "response.incomplete"
_FAILED: Final = "response.failed"
_TERMINAL_EVENTS: Final = {
    "": _COMPLETED,  # some upstreams state none
    "completed": _COMPLETED,
    "failed": _FAILED,
    "cancelled": _FAILED,
}
"""Events by the status of the response; any other status is incomplete."""
_INCOMPLETE_STOPS: Final = {
    "max_output_tokens": StopReason.MAX_TOKENS,
    "content_filter": StopReason.REFUSAL,
}
"""Stop reasons by that of an incomplete response; any other, or none, has interrupted it."""


class ResponsesDecoder:
    """Decodes the events about the response as a whole; `OutputDecoder` those about its items."""

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
        self._usage = parse_usage(response, self._usage, self._output.searches)
        self._builder.begin(
            Begin(
                id=lenient_str(response.get("id")),
                model=lenient_str(response.get("model")),
                usage=self._usage,
                extra=ProviderData(Format.RESPONSES, response),
            )
        )

    def _on_progress(self, data: Payload) -> None:
        """The first one is part of the start; a repeated one is a ping."""
        if self._in_progress:
            self._builder.ping()
        self._in_progress = True
        self._on_started(data)

    def _finish(self, data: Payload, kind: str) -> None:
        self._on_started(data)
        response = lenient_object(data.get("response"))
        self._output.finish(response.get("output"))
        for field in _reply_fields(response):
            self._builder.add_field(field)
        stop = _stop_reason(response, kind, self._output.refused)
        extra = ProviderData(Format.RESPONSES, response)
        self._builder.end(stop, self._usage, extra=extra, service_tier=_service_tier(response))

    def _on_error(self, data: Payload) -> None:
        response = lenient_object(data.get("response"))
        self._usage = parse_usage(response, self._usage, self._output.searches)
        self._builder.fail(parse_stream_error(data), self._usage)

    _HANDLERS: ClassVar[dict[str, Callable[[ResponsesDecoder, Payload], None]]] = {
        "response.created": _on_started,
        "response.queued": _on_started,
        "response.in_progress": _on_progress,
        _COMPLETED: lambda self, data: self._finish(data, _COMPLETED),
        _INCOMPLETE: lambda self, data: self._finish(data, _INCOMPLETE),
        _FAILED: _on_error,
        "response.cancelled": _on_error,
        "error": _on_error,
        "keepalive": lambda self, _: self._builder.ping(),
    }


def parse_reply(body: Payload) -> Reply:
    """Raises `ReplyFailed` where the body is a failure or not a response."""
    kind, items = _terminal_event(body)
    if kind == _FAILED or _has_duplicate_ids(items):
        return collect_reply(ResponsesDecoder().decode(b"", {"type": kind, "response": body}))
    output = [part for item in items for part in parse_output_item(item)]
    parts = (*output, *_reply_fields(body))
    kinds = {type(part) for part in parts}
    return Reply(
        id=lenient_str(body.get("id")),
        model=lenient_str(body.get("model")),
        parts=parts,
        stop=normalize_stop(_stop_reason(body, kind, Refusal in kinds), ToolCall in kinds),
        usage=parse_usage(body),
        service_tier=_service_tier(body),
    )


def read_usage(body: Payload) -> tuple[StopReason, Usage | None]:
    """Raises `ReplyFailed` like `parse_reply`."""
    kind, items = _terminal_event(body)
    if kind == _FAILED or _has_duplicate_ids(items):
        reply = parse_reply(body)
        return reply.stop, reply.usage
    called = any([lenient_str(item.get("type")) in CALLS for item in items])
    refused = any([item.get("type") == MESSAGE and _has_refusal(item) for item in items])
    return normalize_stop(_stop_reason(body, kind, refused), called), parse_usage(body)


def _terminal_event(body: Payload) -> tuple[str, list[Payload]]:
    """The type of the terminal event that would carry the body, and the output items."""
    if body.get("error"):
        raise ReplyFailed(parse_stream_error(body))
    if not isinstance(body.get("output"), list):
        raise ReplyFailed(Failure(kind=FailureKind.MALFORMED, message="the reply is no response"))
    return _event_by_status(body), lenient_objects(body["output"])


def _event_by_status(response: Payload) -> str:
    return _TERMINAL_EVENTS.get(lenient_str(response.get("status")), _INCOMPLETE)


def _has_duplicate_ids(items: Sequence[Payload]) -> bool:
    """Tells whether several items have the same id: to the decoder they are one item."""
    if len(items) < 2:
        return False
    ids = [id for item in items if isinstance(id := item.get("id"), str) and id]
    return len(set(ids)) < len(ids)


def _has_refusal(message: Payload) -> bool:
    return any([part.get("type") == "refusal" for part in lenient_objects(message.get("content"))])


def _reply_fields(response: Payload) -> list[ReplyField]:
    """The results of moderation, if any were requested."""
    results = response.get("moderation")
    data = ProviderData(Format.RESPONSES, results)
    return [ReplyField("moderation", data)] if results else []


def _service_tier(response: Payload) -> str | None:
    return lenient_str(response.get("service_tier")) or None


def _stop_reason(response: Payload, kind: str, refused: bool) -> StopReason:
    """`kind` is the type of the terminal event."""
    stop = StopReason.END_TURN
    if _INCOMPLETE in (kind, _event_by_status(response)):
        details = lenient_object(response.get("incomplete_details"))
        stop = _INCOMPLETE_STOPS.get(lenient_str(details.get("reason")), StopReason.INTERRUPTED)
    return StopReason.REFUSAL if refused and stop is StopReason.END_TURN else stop
