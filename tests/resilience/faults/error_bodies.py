"""What upstreams say when they refuse: in which words, in which dress, as a body or as a frame.

Independent of when a refusal is due.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from gateway.core.formats import Format
from tests.resilience.faults.retry_hints import Hint, duration
from tests.resilience.faults.sample_replies import frame_data, stream_frames

LEAK = "see https://api.upstream.example/v1/models for {key} of org-upstream-7"
"""What no client may read."""


@dataclass(frozen=True, slots=True)
class ErrorText:
    """`type` and `code` are those of chat and responses, `alpha` is the type in messages."""

    message: str
    type: str
    code: str | None
    alpha: str


ERROR_TEXTS = {
    "invalid": ErrorText(
        "temperature must not be above 2",
        "invalid_request_error",
        "invalid_value",
        "invalid_request_error",
    ),
    "leak": ErrorText(LEAK, "invalid_request_error", "invalid_value", "invalid_request_error"),
    "context": ErrorText(
        "prompt is too long: 210000 tokens > 200000 maximum",
        "invalid_request_error",
        "context_length_exceeded",
        "invalid_request_error",
    ),
    "policy": ErrorText(
        "This prompt goes against our content policy",
        "invalid_request_error",
        "content_policy_violation",
        "invalid_request_error",
    ),
    "key": ErrorText(
        "The API key is not valid",
        "invalid_request_error",
        "invalid_api_key",
        "authentication_error",
    ),
    "forbidden": ErrorText(
        "This key may not do that", "permission_error", None, "permission_error"
    ),
    "disabled": ErrorText(
        "This organization has been disabled.",
        "invalid_request_error",
        None,
        "invalid_request_error",
    ),
    "deactivated": ErrorText(
        "deactivated account", "invalid_request_error", "account_deactivated", "permission_error"
    ),
    "billing": ErrorText("Payment is due", "billing_error", None, "billing_error"),
    "credit": ErrorText(
        "Your credit balance is too low",
        "invalid_request_error",
        None,
        "invalid_request_error",
    ),
    "quota": ErrorText(
        "The quota is spent", "insufficient_quota", "insufficient_quota", "rate_limit_error"
    ),
    "usage_limit": ErrorText(
        "The usage limit has been reached", "usage_limit_reached", None, "rate_limit_error"
    ),
    "rate_limit": ErrorText(
        "Rate limit reached", "requests", "rate_limit_exceeded", "rate_limit_error"
    ),
    "not_found": ErrorText(
        "No such model", "invalid_request_error", "model_not_found", "not_found_error"
    ),
    "no_file": ErrorText(
        "File not found: file_1", "invalid_request_error", "not_found", "not_found_error"
    ),
    "too_large": ErrorText(
        "The request is too large",
        "invalid_request_error",
        "request_too_large",
        "request_too_large",
    ),
    "timeout": ErrorText("It took too long", "timeout_error", None, "timeout_error"),
    "server": ErrorText("Something broke", "server_error", None, "api_error"),
    "slow_down": ErrorText("Too many at once", "server_error", "slow_down", "overloaded_error"),
    "overloaded": ErrorText(
        "Overloaded", "server_error", "server_is_overloaded", "overloaded_error"
    ),
}

OF_STATUS = {
    400: "invalid",
    401: "key",
    402: "billing",
    403: "forbidden",
    404: "not_found",
    408: "timeout",
    413: "too_large",
    422: "invalid",
    429: "rate_limit",
    503: "overloaded",
    504: "timeout",
    524: "timeout",
    529: "overloaded",
}
"""The words of a status where none are asked for; any other says `server`."""


def error_object(format: Format, error_text: ErrorText, key: str, hint: Hint | None = None) -> Any:
    """What stands under `error`. `key` is the one that the request came with."""
    message = error_text.message.format(key=key)
    if hint and hint.text is not None:
        message += f". Please try again in {duration(hint.text)}."
    error: dict[str, Any] = {"type": error_text.alpha, "message": message}
    if format is not Format.MESSAGES:
        error = {
            "message": message,
            "type": error_text.type,
            "param": None,
            "code": error_text.code,
        }
    if hint and hint.body is not None:
        error |= {
            "resets_in_seconds": int(hint.body),
            "resets_at": int(time.time() + hint.body),
        }
    return error


def envelope(format: Format, error: object) -> dict[str, Any]:
    """An error as a body of its own."""
    if format is Format.MESSAGES:
        return {"type": "error", "error": error, "request_id": "req_upstream_1"}
    return {"error": error}


def dressed(format: Format, dress: str, status: int, error: Mapping[str, Any]) -> tuple[str, bytes]:
    """Content type and body. Dresses: `own` (the format's), `chat`, `messages` (another's),
    `detail`, `message`, `string`, `plain`, `html`, `empty`."""
    text = str(error["message"])
    match dress:
        case "plain":
            return "text/plain", text.encode()
        case "html":
            return "text/html; charset=utf-8", page(f"{status} {text}")
        case "empty":
            return "application/json", b""
        case "detail" | "message":
            body: dict[str, Any] = {dress: text}
        case "string":
            body = {"error": text}
        case "chat" | "messages":
            body = envelope(Format(dress), error)
        case "own":
            body = envelope(format, error)
        case _:
            raise ValueError(f"no such dress: {dress}")
    return "application/json", orjson.dumps(body)


def page(title: str) -> bytes:
    """What a login wall, a captcha or a proxy on the way answers instead of JSON."""
    head = f"<head><meta charset='utf-8'><title>{title}</title></head>"
    form = "<form method='post' action='/check'><input name='answer'></form>"
    return f"<!doctype html>\n<html>{head}<body><h1>{title}</h1>{form}</body></html>\n".encode()


def error_frame(format: Format, form: str, error: Mapping[str, Any], number: int) -> bytes:
    """An error inside a stream after `number` frames.

    Forms: `own`; of chat also `named` (with an event line) and `done` (`[DONE]` follows); of
    responses `bare` (a flat `error`), `nested` and `failed`, of which `own` is the first before
    anything came and the last one after.
    """
    match format:
        case Format.CHAT:
            start = b"event: error\n" if form == "named" else b""
            end = b"data: [DONE]\n\n" if form == "done" else b""
            return start + b"data: " + orjson.dumps({"error": error}) + b"\n\n" + end
        case Format.MESSAGES:
            return _event("error", {"error": error})
        case Format.RESPONSES if form == "failed" or (form == "own" and number):
            created = frame_data(stream_frames(format)[0])["response"]
            fields = {"code": error["code"] or "server_error", "message": error["message"]}
            response = created | {"status": "failed", "error": fields}
            return _event("response.failed", {"sequence_number": number, "response": response})
        case Format.RESPONSES if form == "nested":
            return _event("error", {"sequence_number": number, "error": error})
        case Format.RESPONSES:
            flat = {"code": error["code"], "message": error["message"], "param": None}
            return _event("error", {"sequence_number": number, **flat})


def _event(kind: str, data: Mapping[str, Any]) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), orjson.dumps({"type": kind, **data}))


STREAM_ONLY = {
    "detail": (400, {"detail": "Stream must be set to true"}),
    "message": (400, "stream must be set to true"),
    "true": (400, "stream must be true"),
    "mode": (
        400,
        "This model only support stream mode, please enable the stream parameter to access it",
    ),
    "thinking": (400, "parameter.enable_thinking must be set to false for non-streaming calls"),
    "call": (400, "current user api does not support http call"),
    "only": (400, "This model only supports streaming"),
    "required": (400, "Streaming is required for operations that may take longer than 10 minutes"),
    "unsupported": (422, "Non-streaming is not supported"),
    "unavailable": (503, "non-stream requests are not served, use stream"),
}
"""How upstreams refuse a request that does not ask for a stream: the status, and the message or
the whole body."""


def stream_only_refusal(format: Format, wording: str) -> tuple[int, bytes]:
    status, result = STREAM_ONLY[wording]
    if isinstance(result, str):
        kind = "invalid_request_error" if status < 500 else "server_error"
        error_text = ErrorText(result, kind, None, kind if status < 500 else "api_error")
        result = envelope(format, error_object(format, error_text, ""))
    return status, orjson.dumps(result)
