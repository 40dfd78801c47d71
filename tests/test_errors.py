"""The error classes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gateway import errors
from gateway.errors import (
    GatewayError,
    InvalidRequest,
    MethodNotAllowed,
    NoAvailableAccounts,
    ServiceUnavailable,
    TooManyRequests,
)


def rows(of: type[GatewayError] = GatewayError) -> Iterator[type[GatewayError]]:
    if of is not errors.AboutName:  # it has no field of its own
        yield of
    for row in of.__subclasses__():
        yield from rows(row)


MESSAGES_TYPES = {
    *("invalid_request_error", "authentication_error", "permission_error", "not_found_error"),
    *("request_too_large", "rate_limit_error", "api_error", "overloaded_error"),
    "billing_error",
}
NEEDS_ARGUMENTS = {
    errors.PreviousResponseNotFound: ("resp_1",),
    errors.ItemNotFound: ("msg_1", "input.0"),
    errors.StoredChainTooLarge: ("resp_1", "more than 2,000 replies"),
    errors.ResponseNotFound: ("resp_1",),
    errors.NotInBackground: ("resp_1",),
    errors.ConversationNotFound: ("conv_1",),
    errors.ConversationItemNotFound: ("msg_1",),
    errors.ConversationLocked: ("conv_1",),
    errors.ThreadNotFound: ("msg_1",),
    errors.UnsupportedField: ("n", "only one choice can be had"),
    errors.ContextLengthExceeded: ("Too long.",),
    errors.InvalidUrl: ("GET", "/x"),
    errors.UnknownModelId: ("m",),
    errors.MethodNotAllowed: ("GET",),
    errors.ModelNotFound: ("m",),
    errors.UpstreamRejected: (422, "No."),
    errors.ImageDownloadFailed: ("messages.0.content.1.image_url.url", "example.org"),
} | dict.fromkeys(
    [errors.InvalidImage, *errors.InvalidImage.__subclasses__()], ("input.0.content.1", "No.")
)


@pytest.mark.parametrize("row", [*rows()], ids=lambda row: row.__name__)
def test_every_error_can_be_rendered(row: type[GatewayError]) -> None:
    error = row(*NEEDS_ARGUMENTS.get(row, ()))
    assert 400 <= error.status < 600
    assert error.message
    assert str(error) == error.message
    assert error.messages_type in MESSAGES_TYPES
    assert error.type in {
        "invalid_request_error",
        "server_error",
        "requests",
        "tokens",
        "authentication_error",
        "insufficient_quota",
    }
    assert (error.type == "server_error") <= (error.status >= 500)
    for name, value in error.headers().items():
        assert name == name.lower()
        assert value.isascii()
    assert ("x-should-retry" in error.headers()) == row.permanent


@pytest.mark.parametrize(
    ("seconds", "header", "final"),
    [(0, "1", False), (0.2, "1", False), (7.1, "8", False), (60, "60", False), (61, "60", True)],
)
def test_retry_after(seconds: float, header: str, final: bool) -> None:
    headers = NoAvailableAccounts(retry_after=seconds).headers()
    assert headers["retry-after"] == header
    assert ("x-should-retry" in headers) == final


@pytest.mark.parametrize("row", [NoAvailableAccounts, ServiceUnavailable, TooManyRequests])
def test_a_long_wait_is_in_the_message(row: type[GatewayError]) -> None:
    assert row(retry_after=60).message == row.text
    error = row(retry_after=3599.2)
    assert error.message == str(error) == f"{row.text} (retry after 3600 s)"
    assert error.headers()["retry-after"] == "60"


def test_retry_after_is_per_instance() -> None:
    NoAvailableAccounts(retry_after=1)
    assert NoAvailableAccounts().headers() == {"retry-after": "30"}
    assert TooManyRequests().headers() == {}


def test_details_are_those_of_the_class() -> None:
    assert errors.GatewayError().details is None
    assert errors.ThreadUnsupported().details == {
        "error_code": "thread_unsupported_request",
        "unsupported": ["thread"],
    }


def test_the_detail_is_not_sent() -> None:
    error = GatewayError(detail="secret")
    assert "secret" not in error.message + str(error.headers()) + str(error)


def test_allowed_methods_are_in_the_header() -> None:
    assert MethodNotAllowed("GET, POST").headers()["allow"] == "GET, POST"


def test_messages_that_repeat_what_a_client_has_sent_are_cut() -> None:
    error = InvalidRequest("x" * 10**6)
    assert error.message == "x" * 4096 + "..."
