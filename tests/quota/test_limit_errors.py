"""What clients are told when a limit has no room, word for word."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gateway.errors import GatewayError, InsufficientQuota, TooManyRequests, TooManyTokens
from gateway.quota.budgets import BudgetShortfall
from gateway.quota.limit_errors import (
    budget_exceeded,
    concurrency_exceeded,
    format_units,
    queue_full,
    queued_behind,
    too_many_requests,
    too_many_tokens,
)

Refuse = Callable[..., GatewayError]

LAPTOP = "key laptop"
DAWN = 1_795_305_600_000_000  # 2026-11-22T00:00:00Z


@pytest.mark.parametrize(
    ("refuse", "told", "message"),
    [
        (
            too_many_requests,
            (LAPTOP, 600, 600, 11.2),
            "key laptop may make 600 requests per minute: all 600 are used, "
            "there is room again in 12 s",
        ),
        (
            too_many_requests,
            (LAPTOP, 1000, 1200, 12.0),
            "key laptop may make 1,000 requests per minute: 1,200 are used, "
            "there is room again in 12 s",
        ),
        (
            too_many_requests,
            ("the gateway", 1, 1, 0.001),
            "the gateway may make 1 request per minute: 1 is used, there is room again in 1 s",
        ),
        (
            too_many_tokens,
            (LAPTOP, 100_000, 99_000, 5_000, 59.5),
            "key laptop may use 100,000 tokens per minute: 99,000 are used and this request may "
            "take 5,000, there is room again in 60 s",
        ),
        (
            too_many_tokens,
            (LAPTOP, 1, 1, 1, 0.0),
            "key laptop may use 1 token per minute: 1 is used and this request may take 1, "
            "there is room again in 1 s",
        ),
        (
            concurrency_exceeded,
            ("group team", 5, 5),
            "group team may have 5 requests at once: 5 are running",
        ),
        (
            concurrency_exceeded,
            ("group team", 1, 1),
            "group team may have 1 request at once: 1 is running",
        ),
        (
            concurrency_exceeded,
            ("group team", 1000, 1001),
            "group team may have 1,000 requests at once: 1,001 are running",
        ),
    ],
)
def test_what_has_to_wait(refuse: Refuse, told: tuple[Any, ...], message: str) -> None:
    error = refuse(*told)
    assert error.message == f"Too Many Requests: {message}"
    assert not error.permanent
    assert "x-should-retry" not in error.headers()
    assert error.status == 429
    assert error.code == "rate_limit_exceeded"


@pytest.mark.parametrize(
    ("refuse", "told", "wait"),
    [
        (too_many_requests, (LAPTOP, 600, 600, 11.2), 11.2),
        (too_many_tokens, (LAPTOP, 600, 600, 1, 59.5), 59.5),
        (concurrency_exceeded, (LAPTOP, 5, 5), 1.0),
    ],
)
def test_when_to_come_back(refuse: Refuse, told: tuple[Any, ...], wait: float) -> None:
    assert refuse(*told).retry_after == wait


def test_the_header_and_the_words_say_the_same_seconds() -> None:
    assert too_many_requests(LAPTOP, 600, 600, 11.2).headers() == {"retry-after": "12"}


@pytest.mark.parametrize(
    ("refuse", "told", "message"),
    [
        (too_many_requests, (LAPTOP, 0, 0, None), "key laptop may make no requests"),
        (concurrency_exceeded, (LAPTOP, 0, 0), "key laptop may have no requests at once"),
        (
            too_many_tokens,
            (LAPTOP, 1000, 0, 5000, None),
            "key laptop may use 1,000 tokens per minute: this request alone may take 5,000, "
            "it never fits; ask for less (max_tokens), or have the limit raised",
        ),
        (
            too_many_tokens,
            (LAPTOP, 0, 0, 7, None),
            "key laptop may use 0 tokens per minute: this request alone may take 7, it never "
            "fits; ask for less (max_tokens), or have the limit raised",
        ),
    ],
)
def test_what_never_fits(refuse: Refuse, told: tuple[Any, ...], message: str) -> None:
    error = refuse(*told)
    assert error.message == f"Too Many Requests: {message}"
    assert error.permanent
    assert error.headers() == {"x-should-retry": "false"}


def test_others_come_first() -> None:
    error = queued_behind("group team", 1200, 41.5)
    assert error.message == (
        "Too Many Requests: others wait for the limits of group team, 1,200 before this request, "
        "and there is room for the first in 42 s"
    )
    assert (error.retry_after, error.permanent) == (41.5, False)


@pytest.mark.parametrize(
    ("most", "who", "told"),
    [
        (1000, "", "the line is full, with 1,000 requests"),
        (1, LAPTOP, "the line is full for key laptop, with 1 request"),
    ],
)
def test_the_line_is_full(most: int, who: str, told: str) -> None:
    error = queue_full(concurrency_exceeded(LAPTOP, 1, 1), most, who)
    assert error.message == (
        f"Too Many Requests: key laptop may have 1 request at once: 1 is running; {told}"
    )
    assert error.headers() == {"retry-after": "1"}


def test_tokens_are_another_type_than_requests() -> None:
    assert type(too_many_tokens(LAPTOP, 1, 1, 1, 0.0)) is TooManyTokens
    assert type(too_many_tokens(LAPTOP, 1, 1, 2, None)) is TooManyTokens
    assert type(too_many_requests(LAPTOP, 1, 1, 0.0)) is TooManyRequests
    assert type(concurrency_exceeded(LAPTOP, 1, 1)) is TooManyRequests


@pytest.mark.parametrize(
    ("lack", "message"),
    [
        (
            BudgetShortfall("budget_day", 5_000_000, 4_900_000, 200_000, DAWN),
            "key laptop may spend 5 units a day: 4.9 are spent and 0.2 reserved by running "
            "requests, this one may take 1.5; a new day begins at 2026-11-22T00:00:00Z",
        ),
        (
            BudgetShortfall("budget_month", 5_000_000_000_000, 5_000_000_000_001, 0, DAWN),
            "key laptop may spend 5,000,000 units a month: 5,000,000.000001 are spent and 0 "
            "reserved by running requests, this one may take 1.5; a new month begins at "
            "2026-11-22T00:00:00Z",
        ),
        (
            BudgetShortfall("budget", 1_000_000, 0, 0, None),
            "key laptop may spend 1 unit in all: 0 are spent and 0 reserved by running requests, "
            "this one may take 1.5; it does not begin anew",
        ),
    ],
)
def test_a_budget_without_room(lack: BudgetShortfall, message: str) -> None:
    error = budget_exceeded(LAPTOP, lack, 1_500_000)
    assert error.message == f"Insufficient quota: {message}"
    assert type(error) is InsufficientQuota
    assert error.headers() == {"x-should-retry": "false"}
    assert (error.status, error.messages_status) == (429, 402)


@pytest.mark.parametrize(
    ("micro", "text"),
    [
        (0, "0"),
        (1, "0.000001"),
        (100_000, "0.1"),
        (1_000_000, "1"),
        (10_000_000, "10"),
        (1_230_000, "1.23"),
        (1_000_000_000_000_500_000, "1,000,000,000,000.5"),
    ],
)
def test_units_are_written_exactly(micro: int, text: str) -> None:
    assert format_units(micro) == text
