"""Failures from upstream errors with any body."""

from __future__ import annotations

from time import perf_counter
from typing import Any

import orjson
import pytest
from hypothesis import given

from gateway.core.events import FailureKind
from gateway.wire.upstream_errors import (
    MAX_BODY,
    parse_http_error,
    parse_stream_error,
    truncated_failure,
)
from tests.support.hypothesis_profiles import examples
from tests.wire.stream_cases import JSON


@pytest.mark.parametrize(
    ("body", "message", "type", "code"),
    [
        (
            b'{"error":{"message":"no","type":"t","code":"c","param":"p"}}',
            "no",
            "t",
            "c",
        ),
        (b'{"type":"error","error":{"type":"t","message":"no"}}', "no", "t", None),
        (b'{"error":"no"}', "no", None, None),
        (b'{"message":"no"}', "no", None, None),
        (b'{"detail":"no"}', "no", None, None),
        (b'{"detail":[{"loc":["a"]}]}', '[{"loc":["a"]}]', None, None),
        (b"no\n way", "no way", None, None),
        (b"<html><head><TITLE>502 Bad\nGateway</TITLE>", "502 Bad Gateway", None, None),
        (b"<html><body>no</body>", "HTTP status 502", None, None),
        (b"", "HTTP status 502", None, None),
        (b"{}", "{}", None, None),
        (b"\xff\xfe", "\ufffd\ufffd", None, None),
    ],
)
def test_http_errors(body: bytes, message: str, type: str | None, code: str | None) -> None:
    failure = parse_http_error(502, {}, body)
    assert failure.kind is FailureKind.RESPONSE
    assert (failure.status, failure.message) == (502, message)
    assert (failure.type, failure.code) == (type, code)
    assert failure.body == body.decode("utf-8", "replace")


@pytest.mark.parametrize("text", ["<title", "<title>", "<title x=1", "ratelimit"])
def test_repetitions_take_linear_time(text: str) -> None:
    """Twice as much in about twice the time, at most."""

    def seconds(size: int) -> float:
        body = (text * (size // len(text))).encode()
        times = []
        for _ in range(5):
            began = perf_counter()
            parse_http_error(500, {}, body)
            times.append(perf_counter() - began)
        return min(times)

    assert seconds(32_000) < 20 * seconds(4_000) + 0.005


def test_long_bodies_are_truncated() -> None:
    failure = parse_http_error(500, {}, b"x" * 100_000)
    assert len(failure.body or "") == MAX_BODY
    assert len(failure.message) <= 500


LIMITS = {"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "6m0s"}


@pytest.mark.parametrize(
    ("status", "headers", "fields", "seconds"),
    [
        (429, {}, {}, None),
        (429, LIMITS, {}, 360),
        (500, LIMITS, {}, None),
        (500, {"retry-after": "7"}, {}, 7),
        (429, LIMITS | {"retry-after": "7"}, {"resets_in_seconds": 9}, 7),
        (429, LIMITS, {"resets_in_seconds": 9}, 9),
        (429, {}, {"resets_in_seconds": "soon"}, None),
    ],
)
def test_retry_after(
    status: int, headers: dict[str, str], fields: dict[str, Any], seconds: float | None
) -> None:
    body = orjson.dumps({"error": {"message": "no"} | fields})
    assert parse_http_error(status, headers, body).retry_after == seconds


def test_retry_hints_in_stream_errors() -> None:
    assert parse_stream_error({"error": {"resets_in_seconds": 9}}).retry_after == 9
    assert parse_stream_error({"error": {}}).retry_after is None


@pytest.mark.parametrize(
    ("data", "status", "message"),
    [
        ({"error": {"type": "overloaded_error", "message": "no"}}, 529, "no"),
        ({"error": {"type": "x", "code": "rate_limit_exceeded", "message": "no"}}, 429, "no"),
        ({"error": {"type": "t", "code": "invalid_api_key", "message": "no"}}, 401, "no"),
        ({"error": {"type": "t", "code": "permission_denied", "message": "no"}}, 403, "no"),
        ({"error": {"code": 503, "message": "no"}}, 503, "no"),
        ({"error": {"code": "429", "message": "no"}}, 429, "no"),
        ({"error": {"code": 1301, "message": "no"}}, 500, "no"),
        ({"type": "error", "code": "server_is_overloaded", "message": "no"}, 503, "no"),
        ({"response": {"error": {"code": "invalid_prompt", "message": "no"}}}, 400, "no"),
        ({"error": "no"}, 500, "no"),
        ({"error": True}, 500, "the upstream reported an error"),
        ({}, 500, "the upstream reported an error"),
    ],
)
def test_stream_errors(data: dict[str, Any], status: int, message: str) -> None:
    failure = parse_stream_error(data)
    assert failure.kind is FailureKind.RESPONSE
    assert (failure.status, failure.message) == (status, message)
    assert failure.body == orjson.dumps(data).decode()


@examples(3)
@given(value=JSON)
def test_any_json_is_an_error(value: Any) -> None:
    for data in ({"error": value}, {"error": {"message": value, "code": value, "type": value}}):
        assert 400 <= (parse_stream_error(data).status or 0) < 600
        assert parse_http_error(500, {}, orjson.dumps(data)).message
    assert parse_http_error(500, {}, orjson.dumps(value)).status == 500


def test_truncated_failure() -> None:
    assert truncated_failure(started=True).kind is FailureKind.TRUNCATED
    assert truncated_failure(started=False).kind is FailureKind.EMPTY


def test_too_deeply_nested_errors() -> None:
    nested = b'{"detail":' + b"[" * 300 + b"]" * 300 + b"}"
    assert parse_http_error(400, {}, nested).message == "null"
    assert parse_stream_error(orjson.loads(nested)).body == "null"
