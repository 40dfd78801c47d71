"""Limits and spent budgets of keys and groups, for display."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Final

from gateway.admin.units import format_cost, format_count, format_units
from gateway.cli.client import Client
from gateway.cli.option_types import now_us
from gateway.config import Money

_COUNTS: Final = {
    "requests_per_minute": "RPM",
    "tokens_per_minute": "TPM",
    "concurrent": "Max concurrency",
}
_BUDGETS: Final = {
    "budget": "Total budget",
    "budget_day": "Daily budget",
    "budget_month": "Monthly budget",
}
_SUMMARY: Final = {
    "requests_per_minute": "{} RPM",
    "tokens_per_minute": "{} TPM",
    "concurrent": "{} concurrent",
    "budget": "{} units",
    "budget_day": "{} units per day",
    "budget_month": "{} units per month",
}


def get_spent(client: Client, **holder: str) -> dict[str, int]:
    """What a key (`key=`) or a group (`group=`) has spent of each budget, in micro-units, without
    running requests."""
    today = datetime.fromtimestamp(now_us() // 1_000_000, UTC).date().isoformat()
    usage = client.get("/usage", by="day", **holder)["usage"]
    days: dict[str, int] = {row["day"]: row["cost_micro"] for row in usage}
    return {
        "budget": sum(days.values()),
        "budget_day": days.get(today, 0),
        "budget_month": sum(micro for day, micro in days.items() if day[:7] == today[:7]),
    }


def limit_fields(
    limits: Mapping[str, int | None], spent: Mapping[str, int], money: Money
) -> Iterator[tuple[str, str | None]]:
    """Name and value of each limit."""
    for name, title in _COUNTS.items():
        limit = limits[name]
        yield title, None if limit is None else format_count(limit)
    for name, title in _BUDGETS.items():
        limit = limits[name]
        if limit is None:
            yield title, None
        else:
            yield title, f"{format_cost(limit, money)}, {format_units(spent[name])} spent"


def limit_summary(limits: Mapping[str, int | None]) -> str | None:
    """`600 RPM, 5 000 units per day`; None without limits."""
    parts = [
        text.format(format_units(limit) if name in _BUDGETS else format_count(limit))
        for name, text in _SUMMARY.items()
        if (limit := limits[name]) is not None
    ]
    return ", ".join(parts) or None
