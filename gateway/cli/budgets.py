"""Limits, budgets and costs of keys and groups, for display."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Final

from gateway.admin.units import format_cost, format_count, format_price, format_units
from gateway.cli.client import Client
from gateway.cli.option_types import now_us
from gateway.cli.output import Cell, Column, Record, right_align
from gateway.config.limits import Money

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


def limit_columns(money: Money) -> dict[str, Column]:
    """Of records with `limits` and `spent_micro`."""
    return {
        **{title: partial(_count_cell, name) for name, title in _COUNTS.items()},
        **{title: partial(_budget_cell, name, money) for name, title in _BUDGETS.items()},
    }


def limit_summary(limits: Mapping[str, int | None]) -> str | None:
    """`RPM 600, Daily budget 5 000`; None without limits."""
    formats = dict.fromkeys(_COUNTS, format_count) | dict.fromkeys(_BUDGETS, format_units)
    parts = [
        f"{title} {formats[name](limit)}"
        for name, title in (_COUNTS | _BUDGETS).items()
        if (limit := limits[name]) is not None
    ]
    return ", ".join(parts) or None


def units_of(record: Record) -> str:
    """The cost of a key, a request or a row of usage; ~ marks estimates."""
    is_estimate = record.get("estimated") or record.get("usage_source") == "estimated"
    return f"{'~' if is_estimate else ''}{format_units(record['cost_micro'])}"


def cost_columns(money: Money) -> dict[str, Column]:
    """The price only if the configuration has one."""
    columns: dict[str, Column] = {"Units": lambda record: right_align(units_of(record))}
    if money.unit_price is not None:
        columns["Price"] = lambda record: right_align(
            format_price(record["cost_micro"], money) or ""
        )
    return columns


def _count_cell(name: str, record: Record) -> Cell:
    limit = record["limits"][name]
    return None if limit is None else format_count(limit)


def _budget_cell(name: str, money: Money, record: Record) -> Cell:
    limit = record["limits"][name]
    if limit is None:
        return None
    return f"{format_cost(limit, money)}, {format_units(record['spent_micro'][name])} spent"
