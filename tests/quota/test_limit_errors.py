"""The messages and headers of exceeded limits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gateway.core.limits import BUDGETS, Budget
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

Create = Callable[..., GatewayError]

LAPTOP = "key laptop"
DAWN = 1_795_305_600_000_000  # 2026-11-22T00:00:00Z


@pytest.mark.parametrize(
    ("create", "args", "message"),
    [
        (
            too_many_requests,
            (LAPTOP, 600, 600, 11.2),
            "key laptop: 600 of 600 requests per minute used; try again in 12 s",
        ),
        (
            too_many_requests,
            (LAPTOP, 1000, 1200, 12.0),
            "key laptop: 1,200 of 1,000 requests per minute used; try again in 12 s",
        ),
        (
            too_many_requests,
            ("the gateway", 1, 1, 0.001),
            "the gateway: 1 of 1 request per minute used; try again in 1 s",
        ),
        (
            too_many_tokens,
            (LAPTOP, 100_000, 99_000, 5_000, 59.5),
            "key laptop: 99,000 of 100,000 tokens per minute used, this request may use 5,000; "
            "try again in 60 s",
        ),
        (
            too_many_tokens,
            (LAPTOP, 1, 1, 1, 0.0),
            "key laptop: 1 of 1 token per minute used, this request may use 1; try again in 1 s",
        ),
        (
            concurrency_exceeded,
            ("group team", 5, 5),
            "group team: 5 of 5 concurrent requests running",
        ),
        (
            concurrency_exceeded,
            ("group team", 1, 1),
            "group team: 1 of 1 concurrent request running",
        ),
        (
            concurrency_exceeded,
            ("group team", 1000, 1001),
            "group team: 1,001 of 1,000 concurrent requests running",
        ),
    ],
)
def test_temporary_errors(create: Create, args: tuple[Any, ...], message: str) -> None:
    error = create(*args)
    assert error.message == f"Too Many Requests: {message}"
    assert not error.permanent
    assert "x-should-retry" not in error.headers()
    assert error.status == 429
    assert error.code == "rate_limit_exceeded"


@pytest.mark.parametrize(
    ("create", "args", "wait"),
    [
        (too_many_requests, (LAPTOP, 600, 600, 11.2), 11.2),
        (too_many_tokens, (LAPTOP, 600, 600, 1, 59.5), 59.5),
        (concurrency_exceeded, (LAPTOP, 5, 5), 1.0),
    ],
)
def test_retry_after(create: Create, args: tuple[Any, ...], wait: float) -> None:
    assert create(*args).retry_after == wait


def test_header_and_message_have_the_same_seconds() -> None:
    assert too_many_requests(LAPTOP, 600, 600, 11.2).headers() == {"retry-after": "12"}


@pytest.mark.parametrize(
    ("create", "args", "message"),
    [
        (too_many_requests, (LAPTOP, 0, 0, None), "key laptop: the limit is 0 requests per minute"),
        (concurrency_exceeded, (LAPTOP, 0, 0), "key laptop: the limit is 0 concurrent requests"),
        (
            too_many_tokens,
            (LAPTOP, 1000, 0, 5000, None),
            "key laptop: this request may use 5,000 tokens, over the limit of 1,000 tokens per "
            "minute; reduce max_tokens or raise the limit",
        ),
        (
            too_many_tokens,
            (LAPTOP, 0, 0, 7, None),
            "key laptop: this request may use 7 tokens, over the limit of 0 tokens per minute; "
            "reduce max_tokens or raise the limit",
        ),
    ],
)
def test_permanent_errors(create: Create, args: tuple[Any, ...], message: str) -> None:
    error = create(*args)
    assert error.message == f"Too Many Requests: {message}"
    assert error.permanent
    assert error.headers() == {"x-should-retry": "false"}


def test_queued_behind_others() -> None:
    error = queued_behind("group team", 1200, 41.5)
    assert error.message == (
        "Too Many Requests: group team: 1,200 requests queued ahead; try again in 42 s"
    )
    assert (error.retry_after, error.permanent) == (41.5, False)


@pytest.mark.parametrize(
    ("capacity", "holder", "message"),
    [
        (1000, "", "the queue is full (1,000 requests)"),
        (1, LAPTOP, "the queue is full for key laptop (1 request)"),
    ],
)
def test_the_queue_is_full(capacity: int, holder: str, message: str) -> None:
    error = queue_full(concurrency_exceeded(LAPTOP, 1, 1), capacity, holder)
    assert error.message == (
        f"Too Many Requests: key laptop: 1 of 1 concurrent request running; {message}"
    )
    assert error.headers() == {"retry-after": "1"}


def test_tokens_and_requests_have_different_types() -> None:
    assert type(too_many_tokens(LAPTOP, 1, 1, 1, 0.0)) is TooManyTokens
    assert type(too_many_tokens(LAPTOP, 1, 1, 2, None)) is TooManyTokens
    assert type(too_many_requests(LAPTOP, 1, 1, 0.0)) is TooManyRequests
    assert type(concurrency_exceeded(LAPTOP, 1, 1)) is TooManyRequests


@pytest.mark.parametrize(
    ("shortfall", "message"),
    [
        (
            BudgetShortfall(Budget(BUDGETS["budget_day"], 5_000_000), 4_900_000, 200_000, DAWN),
            "key laptop: daily budget of 5 units: 4.9 spent, 0.2 reserved by running requests, "
            "this request may cost 1.5; resets at 2026-11-22T00:00:00Z",
        ),
        (
            BudgetShortfall(
                Budget(BUDGETS["budget_month"], 5_000_000_000_000), 5_000_000_000_001, 0, DAWN
            ),
            "key laptop: monthly budget of 5,000,000 units: 5,000,000.000001 spent, 0 reserved by "
            "running requests, this request may cost 1.5; resets at 2026-11-22T00:00:00Z",
        ),
        (
            BudgetShortfall(Budget(BUDGETS["budget"], 1_000_000), 0, 0, None),
            "key laptop: total budget of 1 unit: 0 spent, 0 reserved by running requests, "
            "this request may cost 1.5; does not reset",
        ),
    ],
)
def test_exceeded_budgets(shortfall: BudgetShortfall, message: str) -> None:
    error = budget_exceeded(LAPTOP, shortfall, 1_500_000)
    assert error.message == f"Insufficient quota: {message}"
    assert type(error) is InsufficientQuota
    assert error.headers() == {"x-should-retry": "false"}
    assert (error.status, error.messages_status) == (429, 402)


def rolling(name: str, spent: int, reserved: int, resets_at: int | None) -> BudgetShortfall:
    return BudgetShortfall(Budget(BUDGETS[name], 5_000_000), spent, reserved, resets_at)


@pytest.mark.parametrize(
    ("shortfall", "amount", "message"),
    [
        (
            rolling("budget_usd_5h", 4_900_000, 0, DAWN),
            250_000,
            "5-hour budget of $5: $4.9 spent, $0 reserved by running requests, this request may "
            "cost $0.25; has room again at 2026-11-22T00:00:00Z",
        ),
        (
            rolling("budget_week", 0, 4_900_000, None),
            250_000,
            "weekly budget of 5 units: 0 spent, 4.9 reserved by running requests, this request may "
            "cost 0.25; has room again when they have ended",
        ),
        (
            rolling("budget_5h", 4_900_000, 0, DAWN),
            5_000_001,
            "5-hour budget of 5 units: 4.9 spent, 0 reserved by running requests, this request may "
            "cost 5.000001; it alone exceeds the budget",
        ),
        (
            rolling("budget_usd_day", 4_900_000, 0, DAWN),
            5_000_001,
            "daily budget of $5: $4.9 spent, $0 reserved by running requests, this request may "
            "cost $5.000001; resets at 2026-11-22T00:00:00Z",
        ),
    ],
)
def test_rolling_budgets_and_dollars(shortfall: BudgetShortfall, amount: int, message: str) -> None:
    error = budget_exceeded(LAPTOP, shortfall, amount)
    assert error.message == f"Insufficient quota: key laptop: {message}"
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
def test_units_are_exact(micro: int, text: str) -> None:
    assert format_units(micro) == text
