"""The events of a streamed reply, with its failures and its usage.

    stream := Begin ( Open(i) | Delta(i) | Close(i) | Ping )* ( End | Fail )    Fail can come first

A Delta comes only between its Open and its Close. Indexes count up from 0; each opens once and
closes once; only tool calls can be open concurrently. End comes once, with everything closed, and
has the total usage. Events are those of choice 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gateway.core.parts import Citation, Part, ProviderData
from gateway.core.value import FastStrEnum, value

CHARS_PER_TOKEN: Final = 4
"""The characters per token of a model's output, if the upstream reports no usage."""


class StopReason(FastStrEnum):
    """Why the model stopped; values are those of the messages format where it has one. INTERRUPTED
    is any other reason: the reply may go on."""

    END_TURN = "end_turn"
    MAX_TOKENS = "max_tokens"
    STOP_SEQUENCE = "stop_sequence"
    TOOL_CALL = "tool_call"
    REFUSAL = "refusal"
    CONTEXT_WINDOW = "context_window"
    PAUSE = "pause"
    COMPACTION = "compaction"
    INTERRUPTED = "interrupted"


class ProofLoss(FastStrEnum):
    """Why earlier reasoning could not return to an upstream: another account or model had written
    it, what comes before it is no longer the same, or the upstream gave no such reason."""

    ACCOUNT_SWITCHED = "account_switched"
    MODEL_SWITCHED = "model_switched"
    PREFIX_CHANGED = "prefix_changed"
    REFUSED = "refused"


LOST: Final = "thinking."
"""Before the reason: the name of the loss in what was dropped of a request."""


class FailureKind(FastStrEnum):
    """RESPONSE is an error that the upstream sent; the others are detected by the gateway. REUSED
    is a connection that broke at the second request or later, or brought the response to an earlier
    one. PAGE is a complete response that is no reply, such as a login page; UNWRITABLE is a reply
    that could be read, but not written for the client; CREDENTIAL is a request that was not sent,
    as its account has no credential now."""

    RESPONSE = "said"
    CONNECT = "connect"
    TLS = "tls"
    TIMEOUT = "timeout"
    DISCONNECT = "disconnect"
    REUSED = "reused"
    TRUNCATED = "cut"
    MALFORMED = "garbage"
    PAGE = "page"
    EMPTY = "empty"
    TOO_LARGE = "too_large"
    EVENT_TOO_LARGE = "event_too_large"
    UNWRITABLE = "unwritable"
    CREDENTIAL = "credential"


@value(kw_only=True)
class Failure:
    """A failure of an upstream: an HTTP error, an error event or a network error.

    `status` is the upstream's HTTP status, or the equivalent of its error event. `message` is the
    upstream's text, `details` what messages adds to it for programs, `body` the raw error (at most
    8 KiB) for the request log; none is redacted. `retry_after` is in seconds, `should_retry` is
    what the upstream says to client libraries.
    """

    kind: FailureKind
    message: str
    status: int | None = None
    type: str | None = None
    code: str | None = None
    param: str | None = None
    details: Mapping[str, Any] | None = None
    body: str | None = None
    retry_after: float | None = None
    should_retry: str | None = None


@value(kw_only=True)
class Usage:
    """Token counts of one reply, never negative.

    `input_tokens` is the whole prompt, cache reads and writes included (as chat and responses
    report it; messages reports them separately). `cache_write_1h_tokens` is the part of
    `cache_write_tokens` with a lifetime of one hour, `reasoning_tokens` a part of `output_tokens`.
    """

    input_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cache_write_1h_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0
    web_searches: int = 0

    def __add__(self, other: Usage) -> Usage:
        names = Usage.__annotations__
        return Usage(**{name: getattr(self, name) + getattr(other, name) for name in names})

    def __sub__(self, other: Usage) -> Usage | None:
        """Returns what is left; None where `other` is no part of it."""
        left = {name: getattr(self, name) - getattr(other, name) for name in Usage.__annotations__}
        return Usage(**left) if min(left.values()) >= 0 else None

    @property
    def fresh_input_tokens(self) -> int:
        """Input that was neither read from the cache nor written to it."""
        return max(0, self.input_tokens - self.cache_read_tokens - self.cache_write_tokens)

    @property
    def total_tokens(self) -> int:
        return self.input_tokens + self.output_tokens

    def is_plausible(self, characters: int, initial: Usage | None) -> bool:
        """Whether a reply of so many characters can have this usage; `initial` was reported before
        it. Some upstreams report only that, or no output at all."""
        if self == initial:
            return characters // CHARS_PER_TOKEN <= self.output_tokens
        return bool(self.output_tokens) or not characters

    @classmethod
    def estimated(cls, input_tokens: int, characters: int) -> Usage:
        """Estimates the usage of a reply without a reported one; `characters` is the length of its
        output."""
        output_tokens = max(1, characters // CHARS_PER_TOKEN)
        return cls(input_tokens=input_tokens, output_tokens=output_tokens)


@value
class Begin:
    """`id` and `model` are the upstream's; `usage` is a first estimate if the format has one;
    `extra` is the opening body for the same format."""

    id: str
    model: str
    usage: Usage | None = None
    extra: ProviderData | None = None


@value
class Open:
    """A part with its names and ids, usually without content."""

    index: int
    part: Part


@value
class Signature:
    """Completes the `signature` of its thinking part; the last one counts."""

    value: ProviderData


Piece = str | Signature | Citation


@value
class Delta:
    """A piece of the open part `index`: a string is appended to its text, arguments or input."""

    index: int
    piece: Piece


@value
class Close:
    """The part is complete. `extra` is data of its own format from the end."""

    index: int
    extra: ProviderData | None = None


@value
class Ping:
    """A keep-alive without content."""


@value
class End:
    """The reply is complete. `usage` is None if the upstream reported none; `service_tier` is the
    one that it was served with, if that is known, as chat and responses call it."""

    stop: StopReason
    usage: Usage | None
    stop_sequence: str | None = None
    extra: ProviderData | None = None
    service_tier: str | None = None


@value
class Fail:
    """The reply failed. `usage` is what was reported until then."""

    failure: Failure
    usage: Usage | None = None


Event = Begin | Open | Delta | Close | Ping | End | Fail
