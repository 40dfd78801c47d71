"""Reads an upstream's failure from its error, whatever the body looks like, and from its headers.

Bodies seen: both vendors' envelopes, `{"detail": …}`, `{"message": …}`, plain text, HTML pages.
Header names are in lower case. A date in a header is compared with the response's own `date`, so no
clock is needed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final

import orjson

from gateway.core.events import Failure, FailureKind
from gateway.wire.json.fields import dump_json

MAX_BODY: Final = 8 * 1024
"""Characters of an upstream's error in the log row."""

_MAX_OWN_TEXT: Final = 500
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
_ADVICE: Final = ("true", "false")
_TITLE: Final = re.compile(r"<title[^<>]{0,200}>([^<]{1,1000})</title>", re.IGNORECASE)
"""Matches in linear time: no part of it can match over the start of another match."""

_MAX_SECONDS: Final = 10**9
_MIN_UNIX_TIME: Final = 10**8
"""Bare numbers from here on are not durations but Unix times, in seconds or milliseconds."""
_MIN_UNIX_MILLISECONDS: Final = 10**11

_RESET: Final = re.compile(r"[a-z-]*ratelimit[a-z-]*reset[a-z-]*|x-[a-z-]+-reset-after-seconds")
_DURATION: Final = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|[smhd]))+")
_DURATION_PIECE: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|[smhd])")
_UNIT_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def parse_http_error(status: int, headers: Mapping[str, str], body: bytes) -> Failure:
    """The failure of a response with an HTTP status of 400 and above."""
    text = body[: MAX_BODY * 4].decode("utf-8", "replace")
    try:
        data = orjson.loads(body)
    except orjson.JSONDecodeError:
        data = None
    if isinstance(data, list) and data:  # one upstream wraps its envelope in a list
        data = data[0]
    error = _error_object(data)
    return Failure(
        kind=FailureKind.RESPONSE,
        status=status,
        message=_message(error, data) or _strip_markup(text) or f"HTTP status {status}",
        body=text[:MAX_BODY],
        retry_after=_retry_hint(status, headers, error),
        should_retry=advice if (advice := headers.get("x-should-retry")) in _ADVICE else None,
        **_identifiers(error),
    )


def parse_stream_error(data: Mapping[str, Any]) -> Failure:
    """The failure in an error event: nested under `error`, or flat."""
    error = _error_object(data) or data
    names = _identifiers(error)
    status = _status(error.get("code"))
    return Failure(
        kind=FailureKind.RESPONSE,
        status=status
        or _STATUS_OF_TYPE.get(names["code"])
        or _STATUS_OF_TYPE.get(names["type"], 500),
        message=_message(error, data) or "the upstream reported an error",
        body=dump_json(data)[:MAX_BODY],
        retry_after=parse_seconds(error.get("resets_in_seconds")),
        **names,
    )


def truncated_failure(started: bool) -> Failure:
    """The failure of a stream without its terminal event; `started`: some event has come."""
    if started:
        return Failure(kind=FailureKind.TRUNCATED, message="the stream ended before the reply did")
    return Failure(kind=FailureKind.EMPTY, message="the stream ended before a reply began")


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds in `retry-after-ms`, else in `retry-after`, which may be a date."""
    for name, scale in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        if (seconds := parse_seconds(headers.get(name))) is not None:
            return seconds * scale
    return _from_now(_date(headers.get("retry-after", "")), headers)


def reset_after(headers: Mapping[str, str]) -> float | None:
    """Seconds until every exhausted limit resets, by the rate limit headers: a `reset`
    without its `remaining` counts as exhausted."""
    times = [
        _seconds_until(headers[name], headers)
        for name in headers
        if _RESET.fullmatch(name) and _is_exhausted(name, headers)
    ]
    return max((time for time in times if time is not None and time > 0), default=None)


def parse_seconds(value: object) -> float | None:
    """A plausible duration from a number or its text."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    try:
        seconds = float(value)
    except (ValueError, OverflowError):
        return None
    return seconds if 0 <= seconds < _MAX_SECONDS else None


def _retry_hint(status: int, headers: Mapping[str, str], error: Mapping[str, Any]) -> float | None:
    """Seconds. Rate limit headers come with every response, but only explain a 429."""
    if (hint := retry_after(headers)) is None:
        hint = parse_seconds(error.get("resets_in_seconds"))
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
    """Reads the HTTP status, which some upstreams send as the code, as a number or as text."""
    text = str(code)
    return int(text) if len(text) == 3 and text.isdecimal() and text[0] in "45" else None


def _message(error: Mapping[str, Any], data: object) -> str | None:
    message = error.get("message")
    if not message and isinstance(data, dict):
        message = data.get("message") or data.get("detail")
    if isinstance(message, str):
        return message
    return dump_json(message)[:500] if message else None


def _strip_markup(text: str) -> str:
    if title := _TITLE.search(text):
        return " ".join(title.group(1).split())[:200]
    return "" if text.lstrip().startswith("<") else " ".join(text.split())[:500]


def _identifiers(error: Mapping[str, Any]) -> dict[str, Any]:
    """Type, code and parameter, each a text or None, and details, an object or None."""
    fields = {name: error.get(name) for name in ("type", "code", "param")}
    names = {name: value if isinstance(value, str) else None for name, value in fields.items()}
    details = error.get("details")
    return names | {"details": details if isinstance(details, dict) else None}


def _is_exhausted(name: str, headers: Mapping[str, str]) -> bool:
    window, found, _ = name.rpartition("reset-after-seconds")
    if found:
        used = parse_seconds(headers.get(f"{window}used-percent"))
        return used is None or used >= 100
    remaining = parse_seconds(headers.get(name.replace("reset", "remaining")))
    return remaining is None or remaining == 0


def _seconds_until(value: str, headers: Mapping[str, str]) -> float | None:
    """Seconds from any notation: `6m0s`, `20ms`, `1.5`, a Unix time, a date."""
    if _DURATION.fullmatch(value):
        pieces = _DURATION_PIECE.findall(value)
        return sum(float(number) * _UNIT_SECONDS[unit] for number, unit in pieces)
    try:
        number = float(value)
    except ValueError:
        return _from_now(_date(value, datetime.fromisoformat) or _date(value), headers)
    if number >= _MIN_UNIX_MILLISECONDS:
        number /= 1000
    if not _MIN_UNIX_TIME <= number < _MIN_UNIX_MILLISECONDS:
        return parse_seconds(number)
    return _from_now(datetime.fromtimestamp(number, UTC), headers)


def _from_now(then: datetime | None, headers: Mapping[str, str]) -> float | None:
    now = _date(headers.get("date", ""))
    if then is None or now is None:
        return None
    return max(0.0, (then - now).total_seconds())


def _date(value: str, parse: Callable[[str], datetime] = parsedate_to_datetime) -> datetime | None:
    """A date, in the notation of HTTP by default; UTC where it has no time zone."""
    try:
        date = parse(value)
    except (ValueError, OverflowError):
        return None
    return date if date.tzinfo is not None else date.replace(tzinfo=UTC)


def unwritable(error: Exception) -> Failure:
    """Builds the failure of a reply that could be read but not written: the account is not to
    blame."""
    message = f"the reply cannot be written: {describe_error(error)}"
    return Failure(kind=FailureKind.UNWRITABLE, message=message)


def describe_error(error: Exception) -> str:
    """Describes an error as the request log has it."""
    return f"{type(error).__name__}: {error}"[:_MAX_OWN_TEXT]
