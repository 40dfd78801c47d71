"""Error bodies of all formats."""

from __future__ import annotations

import orjson

from gateway.errors import (
    ContextLengthExceeded,
    InvalidRequest,
    NoAvailableAccounts,
    ThreadUnsupported,
)
from gateway.wire.error_body import chat_error_body, combined_error_body, messages_error_body


def test_chat() -> None:
    error = InvalidRequest("model: Field required", param="model")
    assert orjson.loads(chat_error_body(error)) == {
        "error": {
            "message": "model: Field required",
            "type": "invalid_request_error",
            "param": "model",
            "code": "invalid_value",
        }
    }


def test_messages() -> None:
    fields = {"type": "overloaded_error", "message": "No available accounts"}
    assert orjson.loads(messages_error_body(NoAvailableAccounts(), "req_1")) == {
        "type": "error",
        "error": fields,
        "request_id": "req_1",
    }
    assert orjson.loads(messages_error_body(NoAvailableAccounts(), None)) == {
        "type": "error",
        "error": fields,
    }


def test_messages_details() -> None:
    error = orjson.loads(messages_error_body(ThreadUnsupported(), "req_1"))["error"]
    assert error == {
        "type": "invalid_request_error",
        "message": "thread: message threads are not supported for this model",
        "details": {"error_code": "thread_unsupported_request", "unsupported": ["thread"]},
    }


def test_messages_text_of_a_long_prompt() -> None:
    error = ContextLengthExceeded("Too much.", used=12, limit=10)
    assert orjson.loads(messages_error_body(error, None))["error"]["message"] == (
        "prompt is too long: 12 tokens > 10 maximum (Too much.)"
    )
    assert orjson.loads(chat_error_body(error))["error"]["message"] == "Too much."


def test_combined() -> None:
    assert orjson.loads(combined_error_body(NoAvailableAccounts(), "req_1")) == {
        "type": "error",
        "error": {
            "message": "No available accounts",
            "type": "overloaded_error",
            "param": None,
            "code": "no_available_accounts",
        },
        "request_id": "req_1",
    }


def test_internal_details_are_not_sent() -> None:
    error = InvalidRequest("no", detail="the account a1 said so")
    for body in (
        chat_error_body(error),
        messages_error_body(error, "req_1"),
        combined_error_body(error, "req_1"),
    ):
        assert b"a1" not in body
