"""What an upstream says when it fails, read from whatever body it chose. It must not judge it.

Bodies met: both vendors' envelopes, `{"detail": …}`, `{"message": …}`, plain text, HTML pages.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import orjson

from gateway.core.failure import Failure, FailureKind
from gateway.wire.hints import reset_after, retry_after, parse_seconds
from gateway.wire.lenient import dump_json

MAX_BODY: Final = 8 * 1024
"""Characters of an upstream's error that are kept for the log row."""

_STATUS_OF_TYPE: Final = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "invalid_api_key": 401,
    "billing_error": 402,
    "permission_error": 403,
    "permission_denied": 403,
    "not_found_error": 404,
    "conflict_error": 409,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "requests": 429,
    "tokens": 429,
    "insufficient_quota": 429,
    "context_length_exceeded": 400,
    "invalid_prompt": 400,
    "content_policy_violation": 400,
    "api_error": 500,
    "server_error": 500,
    "server_is_overloaded": 503,
    "slow_down": 503,
    "timeout_error": 504,
    "overloaded_error": 529,
}
_TITLE = re.compile(r"<title[^>]*>(.*?)</title>", re.IGNORECASE | re.DOTALL)


def parse_http_error(status: int, headers: Mapping[str, str], body: bytes) -> Failure:
    """The failure behind an HTTP status of 400 and above. Header names are in lower case."""
    text = body[: MAX_BODY * 4].decode("utf-8", "replace")
    try:
        data = orjson.loads(body)
    except orjson.JSONDecodeError:
        data = None
    said = _error_object(data)
    message = _message(said, data) or _strip_markup(text) or f"HTTP status {status}"
    return Failure(
        kind=FailureKind.RESPONSE,
        status=status,
        message=message,
        type=_text(said.get("type")),
        code=_text(said.get("code")),
        param=_text(said.get("param")),
        body=text[:MAX_BODY],
        retry_after=_retry_hint(status, headers, said),
    )


def parse_stream_error(data: Mapping[str, Any]) -> Failure:
    """The failure that an error event speaks of: nested under `error`, or flat."""
    said = _error_object(data) or data
    kind, code = _text(said.get("type")), _text(said.get("code"))
    return Failure(
        kind=FailureKind.RESPONSE,
        status=_status(said.get("code"))
        or _STATUS_OF_TYPE.get(code or "")
        or _STATUS_OF_TYPE.get(kind or "", 500),
        message=_message(said, data) or "the upstream reported an error",
        type=kind,
        code=code,
        param=_text(said.get("param")),
        body=dump_json(data)[:MAX_BODY],
        retry_after=parse_seconds(said.get("resets_in_seconds")),
    )


def truncated_failure(started: bool) -> Failure:
    """The failure of a stream whose bytes ended without its terminal event; `begun` tells whether
    any event of the reply had come."""
    if started:
        return Failure(kind=FailureKind.TRUNCATED, message="the stream ended before the reply did")
    return Failure(kind=FailureKind.EMPTY, message="the stream ended before a reply began")


def _retry_hint(status: int, headers: Mapping[str, str], said: Mapping[str, Any]) -> float | None:
    """Seconds. Rate limits are told with every answer, but speak of this one only at a 429."""
    if (hint := retry_after(headers)) is None:
        hint = parse_seconds(said.get("resets_in_seconds"))
    return reset_after(headers) if hint is None and status == 429 else hint


def _error_object(data: object) -> dict[str, Any]:
    if not isinstance(data, dict):
        return {}
    error = data.get("error")
    if isinstance(error, dict):
        return error
    response = data.get("response")
    nested = response.get("error") if isinstance(response, dict) else None
    if isinstance(nested, dict):
        return nested
    return {"message": error} if isinstance(error, str) else {}


def _status(code: object) -> int | None:
    """Some upstreams put the HTTP status where the code belongs, as a number or as text."""
    text = str(code)
    return int(text) if len(text) == 3 and text.isdecimal() and text[0] in "45" else None


def _message(said: Mapping[str, Any], data: object) -> str | None:
    message = said.get("message")
    if not message and isinstance(data, dict):
        message = data.get("message") or data.get("detail")
    if isinstance(message, str):
        return message
    return dump_json(message)[:500] if message else None


def _strip_markup(text: str) -> str:
    if title := _TITLE.search(text):
        return " ".join(title.group(1).split())[:200]
    return "" if text.lstrip().startswith("<") else " ".join(text.split())[:500]


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
