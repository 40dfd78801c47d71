"""What a failed attempt means to the client. It must not know how the attempt was made.

Statuses and texts: Specification, "Errors". An upstream's own faults never look like the client's:
its 401 and 403 become 502, its 429 becomes `No available accounts`.
"""

from __future__ import annotations

from collections.abc import Callable

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


def client_error(failure: Failure, clean: Callable[[str], str]) -> GatewayError:
    """The row of the error table that the client is told; `clean` takes addresses, account names
    and keys out of an upstream's own words."""
    if failure.kind is not FailureKind.SAID:
        return _LINE_FAULTS[failure.kind](detail=failure.message)
    status = failure.status or 500
    if status in _CLIENT_FAULTS:
        return UpstreamRefusal(
            status, clean(failure.message), code=failure.code, param=failure.param
        )
    if status in _FORBIDDEN:
        return UpstreamForbidden()
    if status in (402, 429) or failure.code == "insufficient_quota":
        return NoAvailableAccounts(retry_after=failure.retry_after)
    if status in _TIMEOUTS:
        return UpstreamTimeout()
    if 300 <= status < 400:
        return BadUpstreamReply()
    return ServiceUnavailable(retry_after=failure.retry_after)
