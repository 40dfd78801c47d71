"""Headers that tell clients of a key with budgets how much of them is spent.

All formats have the gateway's own. Messages has those of its subscriptions too, as far as they are
known publicly, and responses those that its command-line client reads: both for budgets of five
hours and of a week. What running requests have reserved does not count here, because they spend
less in most cases.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import Final, NamedTuple

from gateway.core.formats import Format
from gateway.core.limits import MICRO_PER_UNIT, BudgetWindow
from gateway.quota.budgets import format_utc
from gateway.quota.limits import BudgetStatus

WARNING_SHARE: Final = 0.8
"""The used part of a budget from which on the status is a warning."""

ALLOWED: Final = "allowed"
WARNING: Final = "allowed_warning"
REJECTED: Final = "rejected"

_OWN: Final = "x-gateway-budget-"
_UNIFIED: Final = "anthropic-ratelimit-unified-"
_CODEX: Final = "x-codex-"
_OWN_FIELDS: Final = ("status", "window", "currency", "limit", "remaining", "reset")


class _Rolling(NamedTuple):
    """The names that clients give a rolling window."""

    short: str
    claim: str
    rank: str
    minutes: int


_ROLLING: Final = {
    BudgetWindow.FIVE_HOURS: _Rolling("5h", "five_hour", "primary", 300),
    BudgetWindow.WEEK: _Rolling("7d", "seven_day", "secondary", 10_080),
}

BUDGET_HEADERS: Final = (
    *(f"{_OWN}{field}" for field in _OWN_FIELDS),
    *(f"{_UNIFIED}{field}" for field in ("status", "reset", "representative-claim")),
    *(
        f"{_UNIFIED}{names.short}-{field}"
        for names in _ROLLING.values()
        for field in ("status", "utilization", "reset")
    ),
    *(
        f"{_CODEX}{names.rank}-{field}"
        for names in _ROLLING.values()
        for field in ("used-percent", "window-minutes", "reset-at")
    ),
)
"""The budget headers of all formats."""


def budget_headers(
    client_format: Format | None, statuses: Iterable[BudgetStatus], *, is_rejected: bool = False
) -> Iterator[tuple[str, str]]:
    """Names and values, of the most used budget, and of the most used one of each rolling window.
    `is_rejected`: a budget had no room for this request."""
    by_use = sorted(statuses, key=_used_share, reverse=True)
    if not by_use:
        return
    first = by_use[0]
    overall = REJECTED if is_rejected else _status(first)
    yield from _own_headers(first, overall)
    rolling = {
        _ROLLING[status.budget.kind.window]: status
        for status in reversed(by_use)
        if status.budget.kind.window in _ROLLING
    }
    if client_format is Format.MESSAGES:
        yield from _unified_headers(first, overall, rolling)
    elif client_format is Format.RESPONSES:
        yield from _codex_headers(rolling)


def _own_headers(first: BudgetStatus, overall: str) -> Iterator[tuple[str, str]]:
    kind, limit = first.budget.kind, first.budget.limit
    yield f"{_OWN}status", overall
    yield f"{_OWN}window", kind.window.value
    yield f"{_OWN}currency", kind.currency.value
    yield f"{_OWN}limit", _decimal(limit)
    yield f"{_OWN}remaining", _decimal(max(0, limit - first.spent))
    if first.resets_at is not None:
        yield f"{_OWN}reset", format_utc(first.resets_at)


def _unified_headers(
    first: BudgetStatus, overall: str, rolling: dict[_Rolling, BudgetStatus]
) -> Iterator[tuple[str, str]]:
    """Utilizations are from 0 to 1, resets are unix seconds."""
    yield f"{_UNIFIED}status", overall
    if first.resets_at is not None:
        yield f"{_UNIFIED}reset", _seconds(first.resets_at)
    if (names := _ROLLING.get(first.budget.kind.window)) is not None:
        yield f"{_UNIFIED}representative-claim", names.claim
    for names, status in rolling.items():
        prefix = f"{_UNIFIED}{names.short}-"
        yield f"{prefix}status", overall if status is first else _status(status)
        yield f"{prefix}utilization", f"{math.floor(_used_share(status) * 100) / 100:.2f}"
        if status.resets_at is not None:
            yield f"{prefix}reset", _seconds(status.resets_at)


def _codex_headers(rolling: dict[_Rolling, BudgetStatus]) -> Iterator[tuple[str, str]]:
    for names, status in rolling.items():
        prefix = f"{_CODEX}{names.rank}-"
        yield f"{prefix}used-percent", f"{math.floor(_used_share(status) * 1000) / 10:.1f}"
        yield f"{prefix}window-minutes", str(names.minutes)
        if status.resets_at is not None:
            yield f"{prefix}reset-at", _seconds(status.resets_at)


def _used_share(status: BudgetStatus) -> float:
    """1.0 is all of it; more is possible."""
    limit = status.budget.limit
    return status.spent / limit if limit else 1.0


def _status(status: BudgetStatus) -> str:
    share = _used_share(status)
    return REJECTED if share >= 1 else WARNING if share >= WARNING_SHARE else ALLOWED


def _decimal(micro: int) -> str:
    """4.9, 1000000, 0.000001."""
    return f"{(Decimal(micro) / MICRO_PER_UNIT).normalize():f}"


def _seconds(at: int) -> str:
    return str(-(-at // 1_000_000))
