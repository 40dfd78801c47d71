"""Builds a decoder's events in the grammar of `core.events`; collects replies from streams."""

from __future__ import annotations

from collections.abc import Hashable, Sequence, Set
from dataclasses import dataclass
from typing import Final

from gateway.core.events import (
    Begin,
    Close,
    Delta,
    End,
    Event,
    Fail,
    Failure,
    Open,
    Piece,
    Ping,
    StopReason,
    Usage,
)
from gateway.core.parts import Part, ProviderData, ReplyField, ToolCall
from gateway.core.reply import Reply, collect_reply, count_output_chars, cut_deltas, reply_events
from gateway.core.value import replace
from gateway.errors import GatewayError
from gateway.wire.codec import Encoder
from gateway.wire.upstream_errors import truncated_failure


@dataclass(slots=True)
class _OpenPart:
    index: int
    part: Part
    default_text: str


class EventBuilder:
    """One reply. Every method adds to the events that `take` returns; what the grammar does not
    allow is left out. `tool_called`: a tool call was opened."""

    __slots__ = ("_events", "_next", "_open", "finished", "started", "tool_called")

    def __init__(self) -> None:
        self._events: list[Event] = []
        self._open: dict[Hashable, _OpenPart] = {}
        self._next = 0
        self.started = False
        self.tool_called = False
        self.finished = False

    def take(self) -> list[Event]:
        """The events since the last call."""
        events, self._events = self._events, []
        return events

    def begin(self, event: Begin) -> None:
        if not self.started and not self.finished:
            self.started = True
            self._events.append(event)

    def ping(self) -> None:
        if self.started and not self.finished:
            self._events.append(Ping())

    def open(self, key: Hashable, part: Part, default_text: str = "") -> None:
        """Opens a part and closes those that may not be open at the same time. `default_text` is
        the part's text if it gets no delta."""
        if self.finished:
            return
        self.begin(Begin("", ""))
        is_call = isinstance(part, ToolCall)
        for other, opened in list(self._open.items()):
            if other == key or not (is_call and isinstance(opened.part, ToolCall)):
                self.close(other)
        self.tool_called = self.tool_called or is_call
        self._open[key] = _OpenPart(self._next, part, default_text)
        self._events.append(Open(self._next, part))
        self._next += 1

    def add_field(self, field: ReplyField) -> None:
        """A field of the whole reply, after its other parts."""
        self.open(field.name, field)
        self.close(field.name)

    def open_part(self, key: Hashable) -> Part | None:
        """The part of the key, where it is open."""
        opened = self._open.get(key)
        return opened.part if opened else None

    def tool_call_open(self) -> bool:
        """Tells whether tool calls are open, and so nothing else."""
        for opened in self._open.values():
            return isinstance(opened.part, ToolCall)
        return False

    def add(self, key: Hashable, piece: Piece) -> None:
        """A delta of an open part; empty texts and deltas of other parts are left out."""
        opened = self._open.get(key)
        if opened is None or piece == "" or self.finished:
            return
        if isinstance(piece, str):
            opened.default_text = ""
        self._events.append(Delta(opened.index, piece))

    def close(self, key: Hashable, extra: ProviderData | None = None) -> None:
        if self.finished or (opened := self._open.get(key)) is None:
            return
        if opened.default_text:
            self.add(key, opened.default_text)
        del self._open[key]
        self._events.append(Close(opened.index, extra))

    def close_all(self) -> None:
        for key in list(self._open):
            self.close(key)

    def end(
        self,
        stop: StopReason,
        usage: Usage | None,
        stop_sequence: str | None = None,
        extra: ProviderData | None = None,
        service_tier: str | None = None,
    ) -> None:
        """Closes all open parts and ends the reply."""
        if self.finished:
            return
        self.begin(Begin("", ""))
        self.close_all()
        self.finished = True
        stop = normalize_stop(stop, self.tool_called)
        self._events.append(End(stop, usage, stop_sequence, extra, service_tier))

    def fail(self, failure: Failure, usage: Usage | None) -> None:
        if not self.finished:
            self.finished = True
            self._events.append(Fail(failure, usage))

    def truncate(self, usage: Usage | None) -> None:
        """The bytes ended before the reply did."""
        self.fail(truncated_failure(self.started), usage)


def normalize_stop(stop: StopReason, tool_called: bool) -> StopReason:
    """Corrects the stop reason, which alone decides whether agents run calls: with a call, an
    ordinary end becomes a tool call; without one, a tool call becomes an ordinary end."""
    if tool_called and stop in (StopReason.END_TURN, StopReason.STOP_SEQUENCE):
        return StopReason.TOOL_CALL
    if not tool_called and stop is StopReason.TOOL_CALL:
        return StopReason.END_TURN
    return stop


_MAX_DELTA: Final = 3000
"""Characters of a delta where a complete reply is sent as a stream."""


class ReplyCollector:
    """An `Encoder` that keeps the events: a stream becomes a complete reply."""

    __slots__ = ("_events",)

    dropped: Set[str] = frozenset()

    def __init__(self) -> None:
        self._events: list[Event] = []

    @property
    def events(self) -> Sequence[Event]:
        return self._events

    @property
    def reply(self) -> Reply:
        """Returns the reply of a complete stream."""
        return collect_reply(self._events)

    def encode(self, event: Event) -> bytes:
        self._events.append(event)
        return b""

    def encode_text_run(
        self, index: int, texts: Sequence[str], json_texts: Sequence[bytes]
    ) -> bytes:
        self._events.append(Delta(index, "".join(texts)))
        return b""

    def ping(self) -> bytes:
        return b""

    def encode_error(self, error: GatewayError, *, withheld: bool = False) -> bytes:
        return b""


def encode_reply(reply: Reply, encoder: Encoder) -> bytes:
    """A complete reply as a stream."""
    return b"".join(map(encoder.encode, cut_deltas(reply_events(reply), _MAX_DELTA)))


def with_estimated_usage(reply: Reply, input_tokens: int) -> Reply:
    """The reply with an estimate where the upstream counted nothing, as in a stream."""
    if reply.usage is not None:
        return reply
    return replace(reply, usage=Usage.estimated(input_tokens, count_output_chars(reply)))
