"""Everything the model answered, as one value, and how events add up to it.

It must not know whether the reply arrived whole or as a stream: both give equal values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from gateway.core.events import (
    Begin,
    Close,
    Delta,
    End,
    Event,
    Fail,
    Open,
    Ping,
    Signature,
    StopReason,
)
from gateway.core.failure import Failure
from gateway.core.parts import Citation, Part, Refusal, ServerToolCall, Text, Thinking, ToolCall
from gateway.core.usage import Usage
from gateway.core.value import value


@value(kw_only=True)
class Reply:
    """A complete answer. `usage` is None where the upstream reported none."""

    id: str
    model: str
    parts: tuple[Part, ...]
    stop: StopReason
    usage: Usage | None
    stop_sequence: str | None = None


class ReplyFailed(Exception):
    """The events ended in a failure, so there is no reply."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


def fold(events: Iterable[Event]) -> Reply:
    """The reply that a stream of events adds up to.

    Raises `ReplyFailed` where it ends in `Fail`, `ValueError` where it does not end at all.
    """
    begin: Begin | None = None
    growing: dict[int, _Growing] = {}
    for event in events:
        match event:
            case Begin():
                begin = event
            case Open(index, part):
                growing[index] = _Growing(part)
            case Delta(index, piece):
                growing[index].add(piece)
            case Close() | Ping():
                pass
            case Fail(failure):
                raise ReplyFailed(failure)
            case End():
                if begin is None:
                    break
                return Reply(
                    id=begin.id,
                    model=begin.model,
                    parts=tuple(part.complete() for part in growing.values()),
                    stop=event.stop,
                    usage=event.usage,
                    stop_sequence=event.stop_sequence,
                )
    raise ValueError("the events do not add up to a reply: no Begin, or no End")


def unfold(reply: Reply) -> Iterator[Event]:
    """The shortest stream of events that adds up to the reply."""
    yield Begin(id=reply.id, model=reply.model)
    for index, part in enumerate(reply.parts):
        opening, pieces = _opened(part)
        yield Open(index, opening)
        for piece in pieces:
            yield Delta(index, piece)
        yield Close(index)
    yield End(reply.stop, reply.usage, reply.stop_sequence)


def said(reply: Reply, usage: Usage | None = None) -> int:
    """How many characters the model has written, reasoning and arguments included; 0 where `usage`
    tells its output, for then nobody has to know."""
    if usage is not None and usage.output_tokens:
        return 0
    pieces = (event.piece for event in unfold(reply) if type(event) is Delta)
    return sum(len(piece) for piece in pieces if isinstance(piece, str))


def _opened(part: Part) -> tuple[Part, list[str | Signature | Citation]]:
    """A part as it opens, and the pieces that complete it."""
    match part:
        case Text(text, citations):
            return replace(part, text="", citations=()), [text, *citations] if text else [
                *citations
            ]
        case Refusal(text):
            return replace(part, text=""), [text] if text else []
        case Thinking(text, signature, redacted=False):
            pieces: list[str | Signature | Citation] = [text] if text else []
            return (
                replace(part, text="", signature=None),
                [*pieces, Signature(signature)] if signature else pieces,
            )
        case ToolCall() | ServerToolCall():
            return replace(part, arguments=""), [part.arguments] if part.arguments else []
        case _:
            return part, []


class _Growing:
    """One part while its deltas arrive; pieces are joined once, at the end."""

    __slots__ = ("citations", "part", "pieces", "signature")

    def __init__(self, part: Part) -> None:
        self.part = part
        self.pieces: list[str] = []
        self.citations: list[Citation] = []
        self.signature: Signature | None = None

    def add(self, piece: str | Signature | Citation) -> None:
        match piece:
            case str():
                self.pieces.append(piece)
            case Citation():
                self.citations.append(piece)
            case Signature():
                self.signature = piece

    def complete(self) -> Part:
        more = "".join(self.pieces)
        match self.part:
            case Text() as part:
                return replace(
                    part,
                    text=part.text + more,
                    citations=(*part.citations, *self.citations),
                )
            case Refusal() as part:
                return replace(part, text=part.text + more)
            case Thinking() as part:
                signature = self.signature.value if self.signature else part.signature
                return replace(part, text=part.text + more, signature=signature)
            case ToolCall() as part:
                return replace(part, arguments=part.arguments + more)
            case ServerToolCall() as part:
                return replace(part, arguments=part.arguments + more)
            case part:
                return part
