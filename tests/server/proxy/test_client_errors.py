"""What a failed attempt means to the client: the whole table."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.config.redaction import Redactor
from gateway.core.events import Failure, FailureKind
from gateway.errors import (
    BadUpstreamReply,
    ContextLengthExceeded,
    EmptyUpstreamReply,
    GatewayError,
    ModelNotFound,
    NoAvailableAccounts,
    ServiceUnavailable,
    UpstreamEventTooLarge,
    UpstreamForbidden,
    UpstreamRejected,
    UpstreamReplyTooLarge,
    UpstreamTimeout,
    UpstreamTlsFailed,
)
from gateway.server.proxy.client_errors import client_error, client_text, may_forward

NETWORK_ERRORS = {
    FailureKind.CONNECT: ServiceUnavailable,
    FailureKind.TLS: UpstreamTlsFailed,
    FailureKind.TIMEOUT: UpstreamTimeout,
    FailureKind.DISCONNECT: BadUpstreamReply,
    FailureKind.REUSED: BadUpstreamReply,
    FailureKind.TRUNCATED: BadUpstreamReply,
    FailureKind.MALFORMED: BadUpstreamReply,
    FailureKind.PAGE: BadUpstreamReply,
    FailureKind.EMPTY: EmptyUpstreamReply,
    FailureKind.TOO_LARGE: UpstreamReplyTooLarge,
    FailureKind.EVENT_TOO_LARGE: UpstreamEventTooLarge,
    FailureKind.UNWRITABLE: BadUpstreamReply,
    FailureKind.CREDENTIAL: UpstreamForbidden,
}
BY_STATUS: dict[int | None, type[GatewayError]] = {
    **dict.fromkeys((400, 404, 413, 422), UpstreamRejected),
    **dict.fromkeys((401, 403), UpstreamForbidden),
    **dict.fromkeys((402, 429), NoAvailableAccounts),
    **dict.fromkeys((408, 504, 524), UpstreamTimeout),
    **dict.fromkeys((301, 302, 307), BadUpstreamReply),
    **dict.fromkeys((405, 409, 418, 500, 502, 503, 520, 529, 599), ServiceUnavailable),
    None: ServiceUnavailable,
}


def failure(**fields: object) -> Failure:
    return Failure(**({"kind": FailureKind.RESPONSE, "message": "at host"} | fields))  # type: ignore[arg-type]


def error_for(**fields: object) -> GatewayError:
    return client_error(
        failure(**fields), lambda text: text.replace("host", "[address]"), model="ours"
    )


def test_every_failure_kind_has_an_error() -> None:
    assert {*NETWORK_ERRORS, FailureKind.RESPONSE} == set(FailureKind)


@pytest.mark.parametrize("kind", NETWORK_ERRORS)
def test_network_errors_show_no_details(kind: FailureKind) -> None:
    error = error_for(kind=kind, message="secret place")
    assert type(error) is NETWORK_ERRORS[kind]
    assert "secret" not in error.message
    assert error.detail == "secret place"


@pytest.mark.parametrize("status", BY_STATUS)
def test_errors_by_upstream_status(status: int | None) -> None:
    error = error_for(status=status)
    assert type(error) is BY_STATUS[status]
    if isinstance(error, UpstreamRejected):
        assert error.status == status
        assert error.message == "at [address]"
    else:
        assert "at" not in error.message.split()


@pytest.mark.parametrize("status", [400, 403, 503, None])
@pytest.mark.parametrize("field", ["code", "type"])
def test_an_exceeded_quota_in_any_status(status: int | None, field: str) -> None:
    spent = {"status": status, field: "insufficient_quota"}
    assert type(error_for(**spent)) is NoAvailableAccounts
    assert not may_forward(failure(**spent))


@pytest.mark.parametrize("status", [429, 503])
def test_retry_after_is_forwarded(status: int) -> None:
    assert error_for(status=status, retry_after=4.0).retry_after == 4
    assert error_for(status=status).retry_after == (30 if status == 429 else 5)


def test_an_error_keeps_the_field_and_the_code() -> None:
    error = error_for(status=400, code="too_long", param="messages")
    assert (error.code, error.param) == ("too_long", "messages")
    assert error_for(status=400).code is None


def test_an_error_text_is_redacted_and_short() -> None:
    error = error_for(status=400, code="host " * 500, param="host", message="host " * 5000)
    assert error.param == "[address]"
    assert error.code == ("[address] " * 500)[:200]
    assert error.message == ("[address] " * 5000)[:2000]


@pytest.mark.parametrize(
    ("param", "expected"),
    [
        ("temperature", "temperature"),
        ("tools[2].function.name", "tools"),
        ("messages.3.content.0", "messages"),
        ("input", None),
        ("max_output_tokens", None),
        (None, None),
    ],
)
def test_of_a_translated_body_only_the_clients_own_fields_are_named(
    param: str | None, expected: str | None
) -> None:
    fields = {"messages", "temperature", "tools", "max_tokens"}
    refused = failure(status=422, param=param)
    assert client_error(refused, str, fields, model="ours").param == expected
    assert client_error(refused, str, model="ours").param == param


LONG = "This model's maximum context length is 100 tokens, but you sent 130 tokens to host"


@pytest.mark.parametrize("status", [400, 413, 422, 500, None])
def test_a_prompt_that_is_too_long_is_one_error(status: int | None) -> None:
    error = error_for(status=status, message=LONG, code="string_above_max_length", param="input")
    assert isinstance(error, ContextLengthExceeded)
    assert (error.status, error.code, error.param) == (400, "context_length_exceeded", "input")
    assert error.message == LONG.replace("host", "[address]")
    assert error.messages_text == (
        f"prompt is too long: 130 tokens > 100 maximum ({error.message})"
    )


def test_a_prompt_that_is_too_long_without_figures() -> None:
    error = error_for(status=400, code="context_length_exceeded", message="No.")
    assert (error.message, error.messages_text) == ("No.", "prompt is too long (No.)")


def test_a_reply_that_is_too_long_for_the_rest_of_the_window() -> None:
    message = (
        "This model's maximum context length is 100 tokens. However, you requested 130 tokens "
        "(90 in the messages, 40 in the completion)."
    )
    error = error_for(status=400, message=message)
    assert error.messages_text == (
        f"input length and `max_tokens` exceed context limit: 90 + 40 > 100 ({message})"
    )


@pytest.mark.parametrize(
    ("message", "capability"),
    [
        ("Unsupported parameter: 'reasoning_effort' is not supported here.", "effort_unsupported"),
        ("unknown variant `image_url`, expected `text`", "image_block"),
        ("This model does not support image inputs", "image_block"),
        ("Unsupported parameter: 'temperature'", None),
    ],
)
def test_agents_are_told_what_to_do_without(message: str, capability: str | None) -> None:
    refused = failure(status=400, message=message)
    error = client_error(refused, str, {"messages"}, model="ours")
    end = f" (capability_rejected: {capability})" if capability else ""
    assert (error.message, error.messages_text) == (message, f"{message}{end}")
    assert client_error(refused, str, model="ours").messages_text == message, "native: as it is"


@pytest.mark.parametrize(
    "message",
    [
        "prompt is too long: 130 tokens > 100 maximum",
        "input length and `max_tokens` exceed context limit: 90 + 20 > 100, decrease `max_tokens`",
    ],
)
def test_texts_that_messages_clients_recognise_stay(message: str) -> None:
    error = error_for(status=400, message=message)
    assert error.message == error.messages_text == message
    assert error.code == "context_length_exceeded"


@pytest.mark.parametrize(("field", "param"), [("messages", "messages"), ("input", "input")])
def test_a_translated_prompt_that_is_too_long_is_the_clients_conversation(
    field: str, param: str
) -> None:
    error = client_error(failure(status=400, message=LONG), str, {"model", field}, model="ours")
    assert error.param == param


@pytest.mark.parametrize("status", [401, 403, 429])
def test_context_length_errors_are_the_clients_in_every_wording(status: int) -> None:
    assert isinstance(error_for(status=status, message=LONG), ContextLengthExceeded)


def test_a_rejected_account_is_never_the_clients_error() -> None:
    assert isinstance(
        error_for(status=400, message="Your account has been disabled"), UpstreamForbidden
    )


@pytest.mark.parametrize("status", BY_STATUS)
def test_the_errors_that_a_stream_forwards(status: int | None) -> None:
    own = status in (400, 404, 413, 422)
    assert may_forward(failure(status=status)) == (own or status is None or status >= 500)


@pytest.mark.parametrize("kind", NETWORK_ERRORS)
def test_network_errors_have_no_text_to_forward(kind: FailureKind) -> None:
    assert not may_forward(failure(kind=kind))


def test_a_model_that_the_upstream_does_not_have_is_named_as_the_client_named_it() -> None:
    error = error_for(status=404, message="The model `theirs-1` does not exist")
    assert type(error) is ModelNotFound
    assert error.message == "model_not_found: no channel for model ours in this group"


NO_SECRETS = Redactor(keys=(), hosts=(), accounts=())


@pytest.mark.parametrize(
    ("model", "text", "expected"),
    [
        ("up-1.5", "Use `up-1.5`, not up-1.5.", "Use `ours`, not ours."),
        ("up-1.5", "org/UP-1.5:", "org/ours:"),
        ("up-1", "up-1.5 and up-1-mini and not-up-1 and up-1:8b", None),
        ("up(1", "Try up(1", "Try ours"),
        (
            "default",
            "The default model 'default' is default",
            "The default model 'ours' is default",
        ),
        ("ours", "ours", None),
    ],
)
def test_texts_for_clients_have_the_clients_name_of_the_model(
    model: str, text: str, expected: str | None
) -> None:
    assert client_text(NO_SECRETS, model, "ours", text) == (expected or text)


@pytest.mark.parametrize(
    ("fields", "code", "text"),
    [
        (
            {"status": 400, "message": "Output blocked by content filtering policy"},
            "content_policy_violation",
            "Output blocked by content filtering policy",
        ),
        ({"status": 400, "code": "content_filter", "message": "No."}, "content_filter", "No."),
        (
            {"status": 413, "message": "Request exceeds it"},
            "request_too_large",
            "Request exceeds it",
        ),
        (
            {"status": 400, "message": "Unable to download the file. Please verify the URL."},
            "failed_to_download_image",
            "Failed to download image: Unable to download the file. Please verify the URL.",
        ),
        (
            {
                "status": 400,
                "code": "invalid_image_url",
                "message": "Failed to download image from x",
            },
            "invalid_image_url",
            "Failed to download image from x",
        ),
        (
            {"status": 500, "code": "failed_to_download_image", "message": "Timed out."},
            "failed_to_download_image",
            "Failed to download image: Timed out.",
        ),
        (
            {"status": 500, "code": "invalid_image", "message": "No image."},
            "invalid_image",
            "No image.",
        ),
        (
            {"status": 400, "message": "messages.0: image exceeds 5 MB maximum: 6 > 5 bytes"},
            "image_too_large",
            "messages.0: image exceeds 5 MB maximum: 6 > 5 bytes",
        ),
        (
            {"status": 400, "message": "Could not process image"},
            "invalid_image",
            "Could not process image",
        ),
        ({"status": 400, "message": "The file cannot be read"}, None, "The file cannot be read"),
    ],
)
def test_codes_that_upstreams_without_codes_mean(
    fields: dict[str, Any], code: str | None, text: str
) -> None:
    error = error_for(**fields)
    assert (error.code, error.message) == (code, text)
    is_policy = code == "content_policy_violation"
    assert error.messages_text == (f"{code}: {text}" if is_policy else text)


def test_details_are_for_clients_of_the_same_format() -> None:
    details = {"error_code": "thread_unsupported_request", "unsupported": ["host"]}
    rejected = failure(status=400, details=details)
    assert error_for(status=400, details=details).details == {
        "error_code": "thread_unsupported_request",
        "unsupported": ["[address]"],
    }
    assert client_error(rejected, str, {"messages"}, model="ours").details is None
    assert error_for(status=400, message=LONG, details={"a": 1}).details == {"a": 1}


def test_a_conflict_of_message_threads_is_the_clients() -> None:
    error = error_for(status=409, details={"error_code": "thread_continue_in_flight"})
    assert (error.status, error.messages_type) == (409, "conflict_error")
    assert isinstance(error_for(status=409), ServiceUnavailable)
