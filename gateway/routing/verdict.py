"""What a failed attempt means to the client. It must not know how the attempt was made.

Statuses and texts: Specification, "Errors". An upstream's own faults never look like the client's:
its 401 and 403 become 502, its 429 becomes `No available accounts`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from gateway.core.failure import Failure, FailureKind
from gateway.errors import (
    BadUpstreamReply,
    EmptyUpstreamReply,
    GatewayError,
    NoAvailableAccounts,
    ServiceUnavailable,
    UpstreamEventTooLarge,
    UpstreamForbidden,
    UpstreamRefusal,
    UpstreamReplyTooLarge,
    UpstreamTimeout,
    UpstreamTlsFailed,
)

_LINE_FAULTS: dict[FailureKind, type[GatewayError]] = {
    FailureKind.CONNECT: ServiceUnavailable,
    FailureKind.TLS: UpstreamTlsFailed,
    FailureKind.TIMEOUT: UpstreamTimeout,
    FailureKind.DISCONNECT: BadUpstreamReply,
    FailureKind.CUT: BadUpstreamReply,
    FailureKind.GARBAGE: BadUpstreamReply,
    FailureKind.EMPTY: EmptyUpstreamReply,
    FailureKind.TOO_LARGE: UpstreamReplyTooLarge,
    FailureKind.EVENT_TOO_LARGE: UpstreamEventTooLarge,
}
_CLIENT_FAULTS = frozenset({400, 404, 413, 422})
_FORBIDDEN = frozenset({401, 403})
_TIMEOUTS = frozenset({408, 504, 524})
_SPENT = frozenset({402, 429})

_LONGEST_MESSAGE: Final = 2000
_LONGEST_WORD: Final = 200
"""Characters of an upstream's own words that a client reads."""


def client_error(failure: Failure, clean: Callable[[str], str]) -> GatewayError:
    """The row of the error table that the client is told; `clean` takes addresses, account names
    and keys out of an upstream's own words."""
    if failure.kind is not FailureKind.SAID:
        return _LINE_FAULTS[failure.kind](detail=failure.message)
    status = failure.status or 500
    if _is_spent(failure):
        return NoAvailableAccounts(retry_after=failure.retry_after)
    if status in _CLIENT_FAULTS:
        return UpstreamRefusal(
            status,
            clean(failure.message)[:_LONGEST_MESSAGE],
            code=_word(failure.code, clean),
            param=_word(failure.param, clean),
        )
    if status in _FORBIDDEN:
        return UpstreamForbidden()
    if status in _TIMEOUTS:
        return UpstreamTimeout()
    if 300 <= status < 400:
        return BadUpstreamReply()
    return ServiceUnavailable(retry_after=failure.retry_after)


def may_be_told(failure: Failure) -> bool:
    """Whether a client may read the upstream's own error frame in the middle of a stream: a fault
    of the client's or a plain one of the server's, but nothing about our credentials and limits."""
    if failure.kind is not FailureKind.SAID or _is_spent(failure):
        return False
    status = failure.status or 500
    return status in _CLIENT_FAULTS or status >= 500


def _is_spent(failure: Failure) -> bool:
    return failure.status in _SPENT or "insufficient_quota" in (failure.code, failure.type)


def _word(said: str | None, clean: Callable[[str], str]) -> str | None:
    return clean(said)[:_LONGEST_WORD] if said else None
