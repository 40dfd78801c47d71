"""What went wrong upstream, in one shape for HTTP errors, error events and broken lines.

It must not know what follows from a failure (that is a verdict) nor how a client is told.
"""

from __future__ import annotations

from gateway.core.value import value
from gateway.core.word import FastStrEnum


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
