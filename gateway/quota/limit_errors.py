"""The errors of exceeded limits: which limit, of which holder, its usage, and when to retry.

`holder` is text ("key laptop"); waits are in seconds, money is in millionths.
"""

from __future__ import annotations

import math
from typing import Final

from gateway.core.limits import MICRO_PER_UNIT, BudgetWindow, Currency
from gateway.errors import InsufficientQuota, TooManyRequests, TooManyTokens
from gateway.quota.budgets import BudgetShortfall, format_utc

CONCURRENT_WAIT: Final = 1.0
"""Seconds until a retry, because the end of running requests is unknown."""

_WINDOWS: Final = {
    BudgetWindow.TOTAL: "total",
    BudgetWindow.FIVE_HOURS: "5-hour",
    BudgetWindow.DAY: "daily",
    BudgetWindow.WEEK: "weekly",
    BudgetWindow.MONTH: "monthly",
}
_ROLLING: Final = (BudgetWindow.FIVE_HOURS, BudgetWindow.WEEK)


def too_many_requests(holder: str, limit: int, used: int, wait: float | None) -> TooManyRequests:
    """`wait` is None for a limit of 0."""
    if wait is None:
        return TooManyRequests(
            reason=f"{holder}: the limit is 0 requests per minute", permanent=True
        )
    return TooManyRequests(
        reason=f"{holder}: {used:,} of {_plural(limit, 'request')} per minute used; "
        f"try again in {_seconds(wait)}",
        retry_after=wait,
    )


def too_many_tokens(
    holder: str, limit: int, used: int, requested: int, wait: float | None
) -> TooManyTokens:
    """`wait` is None if the request alone exceeds the limit."""
    if wait is None:
        return TooManyTokens(
            reason=f"{holder}: this request may use {_plural(requested, 'token')}, over the limit "
            f"of {_plural(limit, 'token')} per minute; reduce max_tokens or raise the limit",
            permanent=True,
        )
    return TooManyTokens(
        reason=f"{holder}: {used:,} of {_plural(limit, 'token')} per minute used, this request may "
        f"use {requested:,}; try again in {_seconds(wait)}",
        retry_after=wait,
    )


def concurrency_exceeded(holder: str, limit: int, running: int) -> TooManyRequests:
    if not limit:
        return TooManyRequests(
            reason=f"{holder}: the limit is 0 concurrent requests", permanent=True
        )
    return TooManyRequests(
        reason=f"{holder}: {running:,} of {_plural(limit, 'concurrent request')} running",
        retry_after=CONCURRENT_WAIT,
    )


def queued_behind(holder: str, ahead: int, wait: float) -> TooManyRequests:
    """`wait` is that of the first request in the queue."""
    return TooManyRequests(
        reason=f"{holder}: {_plural(ahead, 'request')} queued ahead; try again in {_seconds(wait)}",
        retry_after=wait,
    )


def queue_full(error: TooManyRequests, capacity: int, holder: str = "") -> TooManyRequests:
    """Builds the error for a request that cannot be queued; `holder` has a capacity of its own."""
    owner = f" for {holder}" if holder else ""
    error.message += f"; the queue is full{owner} ({_plural(capacity, 'request')})"
    return error


def budget_exceeded(holder: str, shortfall: BudgetShortfall, amount: int) -> InsufficientQuota:
    text = f"{InsufficientQuota.text}: {_budget(holder, shortfall, amount)}"
    return InsufficientQuota(f"{text}; {_reset(shortfall, amount)}")


def budget_reserved(holder: str, shortfall: BudgetShortfall, amount: int) -> TooManyRequests:
    """Builds the error for a request for which what is spent leaves room, but not what running
    requests have reserved."""
    reason = f"{_budget(holder, shortfall, amount)}; it may have room when they have ended"
    return TooManyRequests(reason=reason, retry_after=CONCURRENT_WAIT)


def _budget(holder: str, shortfall: BudgetShortfall, amount: int) -> str:
    kind, limit = shortfall.budget.kind, shortfall.budget.limit
    elsewhere = ""
    if shortfall.elsewhere:
        elsewhere = f"{_amount(shortfall.elsewhere, kind.currency)} leased to other replicas, "
    reserved = shortfall.reserved - shortfall.elsewhere
    return (
        f"{holder}: {_WINDOWS[kind.window]} budget of "
        f"{format_money(limit, kind.currency)}: {_amount(shortfall.spent, kind.currency)} spent, "
        f"{_amount(reserved, kind.currency)} reserved by running requests, {elsewhere}this request "
        f"may cost {_amount(amount, kind.currency)}"
    )


def _reset(shortfall: BudgetShortfall, amount: int) -> str:
    is_rolling = shortfall.budget.kind.window in _ROLLING
    if is_rolling and amount > shortfall.budget.limit:
        return "it alone exceeds the budget"
    if shortfall.resets_at is not None:
        verb = "has room again" if is_rolling else "resets"
        return f"{verb} at {format_utc(shortfall.resets_at)}"
    return "has room again when they have ended" if is_rolling else "does not reset"


def format_money(micro: int, currency: Currency) -> str:
    """`1 unit`, `4.9 units`, `$0.25`."""
    noun = "" if currency is Currency.USD else " unit" if micro == MICRO_PER_UNIT else " units"
    return _amount(micro, currency) + noun


def _amount(micro: int, currency: Currency) -> str:
    return f"${format_units(micro)}" if currency is Currency.USD else format_units(micro)


def format_units(micro: int) -> str:
    """Micro-units as exact units: 4.9, 1,000,000, 0.000001."""
    units, fraction = divmod(micro, MICRO_PER_UNIT)
    return f"{units:,}.{fraction:06}".rstrip("0").removesuffix(".")


def _plural(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _seconds(wait: float) -> str:
    return f"{max(1, math.ceil(wait))} s"
