"""Holders and requests for tests of limits."""

from __future__ import annotations

from datetime import datetime

import pytest

from gateway.core.limits import MICRO_PER_UNIT, BudgetWindow, Cost, Limits
from gateway.errors import GatewayError
from gateway.quota.budgets import BudgetTracker
from gateway.quota.limits import Holder, HolderKind, Quota, Reservation, ResourceRequest

NOW = 1000.0
NOON = int(datetime.fromisoformat("2026-11-21T12:00:00Z").timestamp()) * MICRO_PER_UNIT


def key(**limits: int) -> Holder:
    return Holder(HolderKind.KEY, "key_1", "laptop", Limits(**limits))


def group(**limits: int) -> Holder:
    return Holder(HolderKind.GROUP, "team", "team", Limits(**limits))


def gateway(**limits: int) -> Holder:
    return Holder(HolderKind.GATEWAY, "", "", Limits(**limits))


def take(
    quota: Quota,
    *holders: Holder,
    now: float = NOW,
    at: int = NOON,
    tokens: int = 10,
    micro: int = 100,
    usd: int = 0,
) -> Reservation:
    return quota.acquire(ResourceRequest(holders, at, tokens, Cost(micro, usd)), now)


def refusal(quota: Quota, *holders: Holder, now: float = NOW, **fields: int) -> GatewayError:
    with pytest.raises(GatewayError) as raised:
        take(quota, *holders, now=now, **fields)
    return raised.value


def requests_left(quota: Quota, holder: Holder, now: float = NOW) -> int:
    status = quota.limit_statuses([holder], now).requests
    assert status is not None
    return status.remaining


def tokens_left(quota: Quota, holder: Holder, now: float = NOW) -> int:
    status = quota.limit_statuses([holder], now).tokens
    assert status is not None
    return status.remaining


def spent(budget_tracker: BudgetTracker, at: int) -> tuple[int, int, int]:
    """In total, in the month and in the day of `at`."""
    windows = BudgetWindow.TOTAL, BudgetWindow.MONTH, BudgetWindow.DAY
    total, month, day = (budget_tracker.spent(window, at) for window in windows)
    return total, month, day
