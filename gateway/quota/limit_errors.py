"""The errors that say no: which limit, whose, how much of it is used, and when there is room again.
It must not know how any of that was counted.

`who` is a holder in words ("key laptop"); waits are in seconds, money is in micro-units.
"""

from __future__ import annotations

import math
from typing import Final

from gateway.core.limits import MICRO_PER_UNIT
from gateway.errors import InsufficientQuota, TooManyRequests, TooManyTokens
from gateway.quota.budgets import BudgetShortfall, format_utc

CONCURRENT_WAIT: Final = 1.0
"""Seconds until another try where requests run that may end at any moment."""

_PERIODS: Final = {"budget": "in all", "budget_day": "a day", "budget_month": "a month"}
_NEXT_PERIOD: Final = {"budget_day": "a new day", "budget_month": "a new month"}


def too_many_requests(who: str, limit: int, used: int, wait: float | None) -> TooManyRequests:
    if wait is None:
        return TooManyRequests(reason=f"{who} may make no requests", permanent=True)
    all_used = f"all {limit:,} are" if used == limit > 1 else f"{used:,} {_is(used)}"
    return TooManyRequests(
        reason=f"{who} may make {_plural(limit, 'request')} per minute: {all_used} used, "
        f"there is room again in {_format_seconds(wait)}",
        retry_after=wait,
    )


def too_many_tokens(
    who: str, limit: int, used: int, wanted: int, wait: float | None
) -> TooManyTokens:
    may = f"{who} may use {_plural(limit, 'token')} per minute"
    if wait is None:
        return TooManyTokens(
            reason=f"{may}: this request alone may take {wanted:,}, it never fits; "
            "ask for less (max_tokens), or have the limit raised",
            permanent=True,
        )
    return TooManyTokens(
        reason=f"{may}: {used:,} {_is(used)} used and this request may take {wanted:,}, "
        f"there is room again in {_format_seconds(wait)}",
        retry_after=wait,
    )


def concurrency_exceeded(who: str, limit: int, running: int) -> TooManyRequests:
    if not limit:
        return TooManyRequests(reason=f"{who} may have no requests at once", permanent=True)
    return TooManyRequests(
        reason=f"{who} may have {_plural(limit, 'request')} at once: "
        f"{running:,} {_is(running)} running",
        retry_after=CONCURRENT_WAIT,
    )


def queued_behind(who: str, ahead: int, wait: float) -> TooManyRequests:
    """What room there may be is for so many others, for the first of them in so many seconds."""
    return TooManyRequests(
        reason=f"others wait for the limits of {who}, {ahead:,} before this request, "
        f"and there is room for the first in {_format_seconds(wait)}",
        retry_after=wait,
    )


def queue_full(error: TooManyRequests, capacity: int, who: str = "") -> TooManyRequests:
    """The same for one who would wait, but may not: as many do as may, of all or of `who`."""
    whose = f" for {who}" if who else ""
    error.message += f"; the line is full{whose}, with {_plural(capacity, 'request')}"
    return error


def budget_exceeded(who: str, shortfall: BudgetShortfall, amount: int) -> InsufficientQuota:
    anew = "it does not begin anew"
    if shortfall.resets_at is not None:
        anew = f"{_NEXT_PERIOD[shortfall.budget]} begins at {format_utc(shortfall.resets_at)}"
    unit = "unit" if shortfall.limit == MICRO_PER_UNIT else "units"
    return InsufficientQuota(
        f"{InsufficientQuota.text}: {who} may spend {format_units(shortfall.limit)} {unit} "
        f"{_PERIODS[shortfall.budget]}: {format_units(shortfall.spent)} are spent and {format_units(shortfall.reserved)} "
        f"reserved by running requests, this one may take {format_units(amount)}; {anew}"
    )


def format_units(micro: int) -> str:
    """Micro-units as units, exactly: 4.9, 1,000,000, 0.000001."""
    whole, rest = divmod(micro, MICRO_PER_UNIT)
    return f"{whole:,}.{rest:06}".rstrip("0").removesuffix(".")


def _plural(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _is(number: int) -> str:
    return "is" if number == 1 else "are"


def _format_seconds(wait: float) -> str:
    return f"{max(1, math.ceil(wait))} s"
