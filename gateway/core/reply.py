"""A complete reply, its conversion from and to events, and its length."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
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
    Signature,
    StopReason,
    Usage,
)
from gateway.core.parts import Citation, Part, Refusal, ServerToolCall, Text, Thinking, ToolCall
from gateway.core.value import replace, value


@value(kw_only=True)
class Reply:
    """`usage` is None if the upstream reported none; `service_tier` as in `End`."""

    id: str
    model: str
    parts: tuple[Part, ...]
    stop: StopReason
    usage: Usage | None
    stop_sequence: str | None = None
    service_tier: str | None = None


def is_empty_reply(stop: StopReason, usage: Usage | None) -> bool:
    """Whether a reply without parts has failed: no limit has ended it, and it cost nothing."""
    return stop in (StopReason.END_TURN, StopReason.INTERRUPTED) and usage in (None, Usage())


class ReplyFailed(Exception):
    """The events end with a failure."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


def collect_reply(events: Iterable[Event]) -> Reply:
    """Raises `ReplyFailed` if the events end with `Fail`, `ValueError` if they are incomplete."""
    begin: Begin | None = None
    parts: dict[int, _PartAccumulator] = {}
    for event in events:
        if isinstance(event, Delta):
            parts[event.index].add(event.piece)
        elif isinstance(event, Open):
            parts[event.index] = _PartAccumulator(event.part)
        elif isinstance(event, Begin):
            begin = event
        elif isinstance(event, Fail):
            raise ReplyFailed(event.failure)
        elif isinstance(event, End):
            if begin is None:
                break
            return Reply(
                id=begin.id,
                model=begin.model,
                parts=tuple([part.complete() for part in parts.values()]),
                stop=event.stop,
                usage=event.usage,
                stop_sequence=event.stop_sequence,
                service_tier=event.service_tier,
            )
    raise ValueError("incomplete events: no Begin, or no End")


def reply_events(reply: Reply) -> Iterator[Event]:
    """The shortest stream of events of the reply."""
    yield Begin(id=reply.id, model=reply.model)
    for index, part in enumerate(reply.parts):
        yield Open(index, opening_part(part))
        for piece in initial_pieces(part):
            yield Delta(index, piece)
        yield Close(index)
    yield End(reply.stop, reply.usage, reply.stop_sequence, service_tier=reply.service_tier)


def cut_deltas(events: Iterable[Event], length: int) -> Iterator[Event]:
    """Yields the events with the text of deltas in pieces of at most `length` characters."""
    for event in events:
        if type(event) is Delta and type(event.piece) is str:
            for at in range(0, len(event.piece), length):
                yield Delta(event.index, event.piece[at : at + length])
        else:
            yield event


def count_output_chars(reply: Reply, usage: Usage | None = None) -> int:
    """Counts the characters of the model's output, reasoning and arguments included; 0 if `usage`
    has output tokens, because then nothing has to be estimated."""
    if usage is not None and usage.output_tokens:
        return 0
    return sum(map(_part_length, reply.parts))


def _part_length(part: Part) -> int:
    match part:
        case Text(text) | Refusal(text) | Thinking(text, redacted=False):
            return len(text)
        case ToolCall(arguments=arguments) | ServerToolCall(arguments=arguments):
            return len(arguments)
        case _:
            return 0


_TEXT: Final = Text()


def opening_part(part: Part) -> Part:
    """The part without the content that `initial_pieces` has."""
    if isinstance(part, Text):
        plain = part.cache is None and part.extra is None
        return _TEXT if plain else Text("", (), part.cache, part.extra)
    if isinstance(part, ToolCall | ServerToolCall):
        return replace(part, arguments="") if part.arguments else part
    if isinstance(part, Thinking) and not part.redacted:
        return replace(part, text="", signature=None) if part.text or part.signature else part
    return Refusal() if isinstance(part, Refusal) else part


def initial_pieces(part: Part) -> Sequence[Piece]:
    """The content of a part as the pieces of its deltas."""
    if isinstance(part, Text):
        return (part.text, *part.citations) if part.text else part.citations
    if isinstance(part, ToolCall | ServerToolCall):
        return (part.arguments,) if part.arguments else ()
    if isinstance(part, Thinking) and not part.redacted:
        pieces = (part.text,) if part.text else ()
        return (*pieces, Signature(part.signature)) if part.signature else pieces
    return (part.text,) if isinstance(part, Refusal) and part.text else ()


class _PartAccumulator:
    """Collects the deltas of one part; pieces are joined once, at the end."""

    __slots__ = ("citations", "part", "pieces", "signature")

    def __init__(self, part: Part) -> None:
        self.part = part
        self.pieces: list[str] = []
        self.citations: list[Citation] = []
        self.signature: Signature | None = None

    def add(self, piece: Piece) -> None:
        if isinstance(piece, str):
            self.pieces.append(piece)
        elif isinstance(piece, Citation):
            self.citations.append(piece)
        else:
            self.signature = piece

    def complete(self) -> Part:
        part = self.part
        more = "".join(self.pieces)
        match part:
            case Text(text, citations):
                together = (*citations, *self.citations)
                return Text(text + more, together, part.cache, part.extra)
            case Refusal(text):
                return Refusal(text + more)
            case Thinking(text, signature):
                signature = self.signature.value if self.signature else signature
                return replace(part, text=text + more, signature=signature)
            case ToolCall() | ServerToolCall():
                return replace(part, arguments=part.arguments + more) if more else part
            case _:
                return part
