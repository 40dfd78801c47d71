"""The steps of an arriving reply, and the one grammar they obey. It must not know any wire format.

    stream := Begin ( Open(i) | Delta(i) | Close(i) | Ping )* ( End | Fail )    Fail may come first

A Delta stands only between its Open and its Close. Indexes count up from 0; each opens once and
closes once; several may be open at once only where all of them are tool calls. End comes once,
with everything closed, and carries the total usage. Events are those of choice 0.
"""

from __future__ import annotations

from gateway.core.failure import Failure
from gateway.core.parts import Citation, ProviderData, Part
from gateway.core.usage import Usage
from gateway.core.value import value
from gateway.core.word import FastStrEnum


class StopReason(FastStrEnum):
    """Why the model stopped; the words are those of the messages format where it has one."""

    END_TURN = "end_turn"
    MAX_TOKENS = "max_tokens"
    STOP_SEQUENCE = "stop_sequence"
    TOOL_CALL = "tool_call"
    REFUSAL = "refusal"
    CONTEXT_WINDOW = "context_window"
    PAUSE = "pause"
    COMPACTION = "compaction"


@value
class Begin:
    """`id` and `model` are the upstream's; `usage` is a first estimate where the format gives one;
    `extra` is the opening body for its own format."""

    id: str
    model: str
    usage: Usage | None = None
    extra: ProviderData | None = None


@value
class Open:
    """The part as it starts: names and ids set, contents usually still empty."""

    index: int
    part: Part


@value
class Signature:
    """Completes the `signature` of the thinking part it belongs to; the last one wins."""

    value: ProviderData


@value
class Delta:
    """A piece of the open part `index`: a string lengthens its text, arguments or input."""

    index: int
    piece: str | Signature | Citation


@value
class Close:
    """The part is complete. `extra` is what only its own format said about it at the end."""

    index: int
    extra: ProviderData | None = None


@value
class Ping:
    """The upstream is alive and has nothing to say."""


@value
class End:
    """The reply is complete. `usage` is None where the upstream never reported one."""

    stop: StopReason
    usage: Usage | None
    stop_sequence: str | None = None
    extra: ProviderData | None = None


@value
class Fail:
    """The reply broke off. `usage` is what was known by then."""

    failure: Failure
    usage: Usage | None = None


Event = Begin | Open | Delta | Close | Ping | End | Fail


class Phase(FastStrEnum):
    BEFORE = "before"
    WITHIN = "within"
    AFTER = "after"


TRANSITIONS: dict[Phase, dict[type[Event], Phase]] = {
    Phase.BEFORE: {Begin: Phase.WITHIN, Fail: Phase.AFTER},
    Phase.WITHIN: {
        Open: Phase.WITHIN,
        Delta: Phase.WITHIN,
        Close: Phase.WITHIN,
        Ping: Phase.WITHIN,
        End: Phase.AFTER,
        Fail: Phase.AFTER,
    },
    Phase.AFTER: {},
}
"""Which event may come in which phase, and the phase it leads to."""
