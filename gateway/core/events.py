"""The steps of an arriving reply, and the one grammar they obey. It must not know any wire format.

    stream := Begin ( Open(i) | Delta(i) | Close(i) | Ping )* ( End | Fail )    Fail may come first

A Delta stands only between its Open and its Close. Indexes count up from 0; each opens once and
closes once; several may be open at once only where all of them are tool calls. End comes once,
with everything closed, and carries the total usage. Events are those of choice 0.

What went wrong upstream, in one shape for HTTP errors, error events and broken lines.

It must not know what follows from a failure (that is a verdict) nor how a client is told.

Token counts of one reply, with one meaning everywhere. It must not know prices or formats.

`input_tokens` is the whole prompt: cache reads and writes are subsets of it. The messages format
reports the three disjoint, chat and responses report them inclusive; codecs convert at their edge.
"""

from __future__ import annotations

from typing import Final

from gateway.core.parts import Citation, Part, ProviderData
from gateway.core.value import FastStrEnum, value


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


class FailureKind(FastStrEnum):
    """Who speaks: the upstream itself (`said`), or the line to it."""

    RESPONSE = "said"
    CONNECT = "connect"
    TLS = "tls"
    TIMEOUT = "timeout"
    DISCONNECT = "disconnect"
    TRUNCATED = "cut"
    MALFORMED = "garbage"
    EMPTY = "empty"
    TOO_LARGE = "too_large"
    EVENT_TOO_LARGE = "event_too_large"


@value(kw_only=True)
class Failure:
    """`status` is the upstream's HTTP status, or the one that its error event stands for.

    `message` is the upstream's own text, `body` the raw error (at most 8 KiB) for the log row:
    neither has been cleaned for a client. `retry_after` is in seconds.
    """

    kind: FailureKind
    message: str
    status: int | None = None
    type: str | None = None
    code: str | None = None
    param: str | None = None
    body: str | None = None
    retry_after: float | None = None


CHARS_PER_TOKEN: Final = 4
"""Of what a model says, where nobody has counted."""


@value(kw_only=True)
class Usage:
    """All counts are language-model tokens, never negative.

    `cache_write_1h_tokens` is the part of `cache_write_tokens` with the one-hour lifetime;
    `reasoning_tokens` is the part of `output_tokens` that was reasoning.
    """

    input_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cache_write_1h_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0
    web_searches: int = 0

    @property
    def fresh_input_tokens(self) -> int:
        """The part of the prompt that no cache served or kept."""
        return max(0, self.input_tokens - self.cache_read_tokens - self.cache_write_tokens)

    @property
    def total_tokens(self) -> int:
        return self.input_tokens + self.output_tokens

    def is_plausible(self, characters: int, initial: Usage | None) -> bool:
        """Whether a reply of `said` characters can have used this, where `beginning` was told
        before it: some upstreams never count what is said after that, or nothing at all."""
        if self == initial:
            return characters // CHARS_PER_TOKEN <= self.output_tokens
        return bool(self.output_tokens) or not characters

    @classmethod
    def estimated(cls, input_tokens: int, characters: int) -> Usage:
        """Of a reply that nobody has counted; `said` is in characters."""
        output_tokens = max(1, characters // CHARS_PER_TOKEN)
        return cls(input_tokens=input_tokens, output_tokens=output_tokens)
