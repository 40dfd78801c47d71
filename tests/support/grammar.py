"""The grammar of `gateway.core.events` as an assertion."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Final

from gateway.core.events import Begin, Close, Delta, End, Event, Fail, Open, Ping, Signature
from gateway.core.parts import (
    Citation,
    Part,
    Refusal,
    ServerToolCall,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)


class Phase(Enum):
    BEFORE = "before"
    WITHIN = "within"
    AFTER = "after"


TRANSITIONS: Final[dict[Phase, dict[type[Event], Phase]]] = {
    Phase.BEFORE: {Begin: Phase.WITHIN, Fail: Phase.AFTER},
    Phase.WITHIN: dict.fromkeys((Open, Delta, Close, Ping), Phase.WITHIN)
    | dict.fromkeys((End, Fail), Phase.AFTER),
    Phase.AFTER: {},
}
"""The events that are valid in a phase, and the phase after them."""

_TAKES_TEXT = Text | Refusal | Thinking | ToolCall | ServerToolCall


def assert_grammar(events: Sequence[Event], *, complete: bool = True) -> None:
    """`complete`: the stream was closed, so it must have come to an end."""
    phase = Phase.BEFORE
    opened: list[Part] = []
    open_now: set[int] = set()
    for position, event in enumerate(events):
        at = f"event {position}, {event}"
        assert type(event) in TRANSITIONS[phase], f"{at}: not allowed {phase.value} a reply"
        phase = TRANSITIONS[phase][type(event)]
        match event:
            case Open(index, part):
                assert index == len(opened), f"{at}: indexes count up from 0"
                assert not isinstance(part, ToolResult), f"{at}: results are for prompts"
                opened.append(part)
                open_now.add(index)
                only_calls = all(isinstance(opened[other], ToolCall) for other in open_now)
                assert len(open_now) == 1 or only_calls, f"{at}: open beside another part"
            case Delta(index, piece):
                assert index in open_now, f"{at}: not open"
                assert piece != "", f"{at}: empty"
                _assert_fits(opened[index], piece, at)
            case Close(index):
                assert index in open_now, f"{at}: not open"
                open_now.remove(index)
            case End():
                assert not open_now, f"{at}: {open_now} still open"
    if complete:
        assert phase is Phase.AFTER, "the stream came to no end"


def _assert_fits(part: Part, piece: str | Signature | Citation, at: str) -> None:
    match piece:
        case str():
            assert isinstance(part, _TAKES_TEXT), f"{at}: {type(part).__name__} takes no text"
        case Signature():
            assert isinstance(part, Thinking), f"{at}: a signature outside of thinking"
        case Citation():
            assert isinstance(part, Text), f"{at}: a citation outside of text"
