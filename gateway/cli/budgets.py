"""Limits in words, and what of the budgets is spent. It must not know whose they are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from gateway.admin.units import format_cost, format_count, format_units
from gateway.cli.client import Client
from gateway.cli.option_types import now_us
from gateway.config import Money

Spent = Mapping[str, int]
"""In micro-units, by the names of the budgets."""

_COUNTS = {
    "requests_per_minute": ("Requests a minute", "rpm"),
    "tokens_per_minute": ("Tokens a minute", "tpm"),
    "concurrent": ("At once", "at once"),
}
_BUDGETS = {
    "budget": ("Budget", "units"),
    "budget_day": ("Budget a day", "units a day"),
    "budget_month": ("Budget a month", "units a month"),
}


def spent(client: Client, **whose: str) -> dict[str, int]:
    """What one key (`key=`) or group (`group=`) has spent, in all, this day and this month of UTC;
    requests that still run are not in it."""
    today = datetime.fromtimestamp(now_us() // 1_000_000, UTC).date().isoformat()
    days = {each["day"]: each["cost_micro"] for each in _days(client, whose)}
    return {
        "budget": sum(days.values()),
        "budget_day": days.get(today, 0),
        "budget_month": sum(micro for day, micro in days.items() if day[:7] == today[:7]),
    }


def limit_fields(
    limits: Mapping[str, int | None], spent: Spent, money: Money
) -> Iterator[tuple[str, str | None]]:
    """A line for each limit."""
    for name, (title, _) in _COUNTS.items():
        most = limits[name]
        yield title, None if most is None else format_count(most)
    for name, (title, _) in _BUDGETS.items():
        most = limits[name]
        told = (
            None
            if most is None
            else f"{format_cost(most, money)}: {format_units(spent[name])} are spent"
        )
        yield title, told


def limit_words(limits: Mapping[str, int | None]) -> str | None:
    """All in one cell: `600 rpm, 5 000 units a day`; None without any."""
    counts = [
        f"{format_count(most)} {words}"
        for name, (_, words) in _COUNTS.items()
        if (most := limits[name]) is not None
    ]
    budgets = [
        f"{format_units(most)} {words}"
        for name, (_, words) in _BUDGETS.items()
        if (most := limits[name]) is not None
    ]
    return ", ".join(counts + budgets) or None


def _days(client: Client, whose: Mapping[str, str]) -> list[dict[str, Any]]:
    days: list[dict[str, Any]] = client.get("/usage", by="day", **whose)["usage"]
    return days
