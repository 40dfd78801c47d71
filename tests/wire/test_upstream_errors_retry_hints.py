"""Every notation of retry times in headers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.wire.upstream_errors import reset_after, retry_after

NOW = "Wed, 21 Oct 2026 07:28:00 GMT"
UNIX = 1_792_567_680


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after-ms": "1500", "retry-after": "7"}, 1.5),
        ({"retry-after-ms": "soon", "retry-after": "7"}, 7),
        ({"retry-after": "Wed, 21 Oct 2026 07:29:30 GMT", "date": NOW}, 90),
        ({"retry-after": "Wed, 21 Oct 2026 07:00:00 GMT", "date": NOW}, 0),
        ({"retry-after": "Wed, 21 Oct 2026 07:28:00 GMT"}, None),
        ({"retry-after": "Wed, 21 Oct 2026 07:28:00 GMT", "date": "today"}, None),
        ({"retry-after": "tomorrow", "date": NOW}, None),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
    ],
)
def test_retry_after_headers(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers) == seconds


@pytest.mark.parametrize(
    ("notation", "seconds"),
    [
        ("20ms", 0.02),
        ("1s", 1),
        ("8.64s", 8.64),
        ("6m0s", 360),
        ("1h2m3s", 3723),
        ("2d", 172_800),
        ("12", 12),
        ("0.5", 0.5),
        (str(UNIX + 5), 5),
        (str((UNIX + 5) * 1000), 5),
        ("2026-10-21T07:28:30Z", 30),
        ("2026-10-21T07:28:30", 30),
        ("2026-10-21T09:28:30.5+02:00", 30.5),
        ("Wed, 21 Oct 2026 07:29:30 GMT", 90),
        ("0s", None),
        ("2026-10-21T07:00:00Z", None),
        ("", None),
        ("soon", None),
        ("-3", None),
        ("nan", None),
    ],
)
def test_notations(notation: str, seconds: float | None) -> None:
    seconds_found = reset_after({"x-ratelimit-reset-requests": notation, "date": NOW})
    assert seconds_found == (pytest.approx(seconds) if seconds is not None else None)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        (
            {
                "x-ratelimit-remaining-requests": "59",
                "x-ratelimit-reset-requests": "1h",
                "x-ratelimit-remaining-tokens": "0",
                "x-ratelimit-reset-tokens": "9s",
            },
            9,
        ),
        (
            {
                "anthropic-ratelimit-input-tokens-remaining": "0",
                "anthropic-ratelimit-input-tokens-reset": "2026-10-21T07:28:30Z",
                "anthropic-ratelimit-requests-remaining": "0",
                "anthropic-ratelimit-requests-reset": "2026-10-21T07:28:50Z",
                "anthropic-ratelimit-output-tokens-remaining": "800",
                "anthropic-ratelimit-output-tokens-reset": "2026-10-21T07:59:00Z",
            },
            50,
        ),
        ({"ratelimit-reset": "30", "ratelimit-remaining": "0"}, 30),
        ({"ratelimit-reset": "30", "ratelimit-remaining": "3"}, None),
        ({"x-ratelimit-reset": str(UNIX + 30)}, 30),
        (
            {
                "x-some-primary-reset-after-seconds": "40",
                "x-some-primary-used-percent": "100",
                "x-some-secondary-reset-after-seconds": "4000",
                "x-some-secondary-used-percent": "31",
            },
            40,
        ),
        ({"x-reset": "3", "reset": "4", "x-ratelimit-limit": "5"}, None),
    ],
)
def test_only_exhausted_limits_count(headers: dict[str, str], seconds: float | None) -> None:
    assert reset_after(headers | {"date": NOW}) == seconds


@given(st.text(), st.text())
def test_malformed_hints_are_ignored(notation: str, date: str) -> None:
    headers = {"retry-after": notation, "x-ratelimit-reset": notation, "date": date}
    for seconds_found in (retry_after(headers), reset_after(headers)):
        assert seconds_found is None or seconds_found >= 0
