"""The outcomes of faults, as the tables of this folder list them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Self

from tests.support.gateway import BETA


class RequestMode(Enum):
    """The kind of request in which the fault happens."""

    BOTH = "both"
    STREAM = "a stream"
    WHOLE = "a body"

    @property
    def streamed(self) -> tuple[bool, ...]:
        return {
            RequestMode.BOTH: (True, False),
            RequestMode.STREAM: (True,),
            RequestMode.WHOLE: (False,),
        }[self]


class Bill(Enum):
    """What a request costs."""

    COUNTED = "as counted"
    """What the upstream has counted."""
    ESTIMATED = "estimated"
    """The prompt, and what was heard of the reply."""
    PROMPT = "the prompt, estimated"
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientError:
    """The client's error: the status and the envelope of their format. `native` is the
    type on messages, `retry_after` the header in seconds, `final` that it says not to try again.
    `wait` is what the message adds where the header cannot tell it."""

    status: int
    code: str | None
    message: str
    type: str = "server_error"
    native: str = "api_error"
    retry_after: int | None = None
    final: bool = False
    wait: str = ""

    def but(self, **changes: Any) -> Self:
        return replace(self, **changes)

    def after(self, seconds: int) -> Self:
        """The same, with the upstream's own time to come back."""
        if seconds <= 60:
            return self.but(retry_after=seconds)
        return self.but(retry_after=60, final=True, wait=f" (retry after {seconds} s)")

    @property
    def headers(self) -> dict[str, str]:
        named = {} if self.retry_after is None else {"retry-after": str(self.retry_after)}
        return named | ({"x-should-retry": "false"} if self.final else {})


OVERLOADED = "overloaded_error"
INVALID = "invalid_request_error"

NO_MODEL = ClientError(
    status=503,
    code="model_not_found",
    message=f"model_not_found: no channel for model {BETA} in this group",
    type=INVALID,
    final=True,
)
UNSTABLE = ClientError(
    status=503,
    code="server_is_overloaded",
    message="Service unavailable",
    native=OVERLOADED,
    retry_after=5,
)
TOO_LATE = UNSTABLE.but(code="upstream_timeout")
NO_ACCOUNTS = UNSTABLE.but(
    code="no_available_accounts", message="No available accounts", retry_after=30
)
FORBIDDEN = ClientError(
    status=502, code="upstream_forbidden", message="Upstream access forbidden", final=True
)
BAD = ClientError(status=502, code="bad_upstream_response", message="Bad upstream response")
EMPTY = BAD.but(code="empty_upstream_response")
NO_TLS = BAD.but(code="upstream_tls", message="Service unavailable")
REPLY_TOO_LARGE = BAD.but(code="upstream_response_too_large")
EVENT_TOO_LARGE = BAD.but(code="upstream_event_too_large")


def refused(status: int, code: str | None, message: str, **changes: Any) -> ClientError:
    """The client's own fault."""
    error = ClientError(status=status, code=code, message=message, type=INVALID, native=INVALID)
    return error.but(**changes)
