"""What a failed attempt means to the client: the whole table."""

from __future__ import annotations

import pytest

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
from gateway.routing.verdict import client_error

LINE = {
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
SAID: dict[int | None, type[GatewayError]] = {
    **dict.fromkeys((400, 404, 413, 422), UpstreamRefusal),
    **dict.fromkeys((401, 403), UpstreamForbidden),
    **dict.fromkeys((402, 429), NoAvailableAccounts),
    **dict.fromkeys((408, 504, 524), UpstreamTimeout),
    **dict.fromkeys((301, 302, 307), BadUpstreamReply),
    **dict.fromkeys((405, 409, 418, 500, 502, 503, 520, 529, 599), ServiceUnavailable),
    None: ServiceUnavailable,
}


def told(**fields: object) -> GatewayError:
    failure = Failure(**({"kind": FailureKind.SAID, "message": "at host"} | fields))  # type: ignore[arg-type]
    return client_error(failure, lambda text: text.replace("host", "[address]"))


def test_no_kind_is_forgotten() -> None:
    assert {*LINE, FailureKind.SAID} == set(FailureKind)


@pytest.mark.parametrize("kind", LINE)
def test_the_line(kind: FailureKind) -> None:
    error = told(kind=kind, message="secret place")
    assert type(error) is LINE[kind]
    assert "secret" not in error.message
    assert error.detail == "secret place"


@pytest.mark.parametrize("status", SAID)
def test_what_the_upstream_said(status: int | None) -> None:
    error = told(status=status)
    assert type(error) is SAID[status]
    if isinstance(error, UpstreamRefusal):
        assert error.status == status
        assert error.message == "at [address]"
    else:
        assert "at" not in error.message.split()


def test_a_spent_quota_in_whatever_status() -> None:
    assert type(told(status=503, code="insufficient_quota")) is NoAvailableAccounts


@pytest.mark.parametrize("status", [429, 503])
def test_the_time_is_passed_on(status: int) -> None:
    assert told(status=status, retry_after=4.0).retry_after == 4
    assert told(status=status).retry_after == (30 if status == 429 else 5)


def test_a_refusal_keeps_the_field_and_the_code() -> None:
    error = told(status=400, code="too_long", param="messages")
    assert (error.code, error.param) == ("too_long", "messages")
