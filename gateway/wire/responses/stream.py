"""Reads responses streams into events. It must not know who asked or what leaves for the client.

Upstreams met in the wild leave out indexes, sequence numbers and details of the response object,
and speak errors flat, nested, or in other formats' forms.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, Final

from gateway.core.events import Begin, Event, StopReason
from gateway.core.formats import Format
from gateway.core.parts import ProviderData
from gateway.core.usage import Usage
from gateway.wire.assembly import EventBuilder
from gateway.wire.failures import parse_stream_error
from gateway.wire.fields import Payload
from gateway.wire.lenient import lenient_object, lenient_str
from gateway.wire.responses.output import OutputDecoder
from gateway.wire.responses.usage import parse_usage

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
