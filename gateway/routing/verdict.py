"""What a failed attempt means to the client. It must not know how the attempt was made.

Statuses and texts: Specification, "Errors". An upstream's own faults never look like the client's:
its 401 and 403 become 502, its 429 becomes `No available accounts`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import Final

from gateway.core.failure import Failure, FailureKind
from gateway.errors import (
    BadUpstreamReply,
    ContextLengthExceeded,
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
from gateway.routing.judgement import CONTENT_POLICY, Blame, Judge
from gateway.routing.overflow import overflow

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

_JUDGE: Final = Judge()

_CONVERSATION: Final = ("messages", "input")
_FIELD: Final = re.compile(r"[.\[]")

_LONGEST_MESSAGE: Final = 2000
_LONGEST_WORD: Final = 200
"""Characters of an upstream's own words that a client reads."""


def client_error(
    failure: Failure,
    clean: Callable[[str], str],
    asked: Collection[str] | None = None,
    *,
    judge: Judge = _JUDGE,
) -> GatewayError:
    """The row of the error table that the client is told; `clean` takes addresses, account names
    and keys out of an upstream's own words. `asked` are the fields of the client's own body where
    it was translated: only these may be named to it. `judge` knows the operator's rules."""
    if failure.kind is not FailureKind.SAID:
        return _LINE_FAULTS[failure.kind](detail=failure.message)
    verdict = judge.judge(failure)
    if verdict.blame is Blame.CLIENT:
        return _clients_fault(failure, verdict.reason, clean, asked)
    if verdict.blame is Blame.ACCOUNT and verdict.alert:
        return UpstreamForbidden()
    if verdict.blame is Blame.ACCOUNT or _is_spent(failure):
        return NoAvailableAccounts(retry_after=failure.retry_after)
    return _upstreams_fault(failure)


def _clients_fault(
    failure: Failure, reason: str, clean: Callable[[str], str], asked: Collection[str] | None
) -> GatewayError:
    message = clean(failure.message)[:_LONGEST_MESSAGE]
    param = _param(failure.param, asked)
    if long := overflow(failure):
        param = param or next((field for field in _CONVERSATION if field in (asked or ())), None)
        return ContextLengthExceeded(
            message, used=long.used, most=long.most, param=_word(param, clean)
        )
    status, code = failure.status, failure.code
    if status not in _CLIENT_FAULTS:
        status = 400
    if reason == CONTENT_POLICY:
        status, code = 400, code if failure.status in _CLIENT_FAULTS else "content_policy_violation"
    return UpstreamRefusal(status, message, code=_word(code, clean), param=_word(param, clean))


def _param(said: str | None, asked: Collection[str] | None) -> str | None:
    """The upstream's word for the field that is wrong. Of a translated body nothing but the name
    of the whole field is where the client put it."""
    if said is None or asked is None:
        return said
    field = _FIELD.split(said, maxsplit=1)[0]
    return field if field in asked else None


def _upstreams_fault(failure: Failure) -> GatewayError:
    status = failure.status or 500
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
