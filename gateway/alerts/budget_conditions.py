"""Budgets of keys and groups of which much is used."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Final

from gateway.admin.units import format_units, format_usd
from gateway.admission.budgets import budget_holders
from gateway.alerts.condition import Condition, exceeds
from gateway.config.alerts import AlertKind
from gateway.core.limits import MICRO_PER_UNIT, Currency
from gateway.core.text import NARROW_SPACE
from gateway.quota.budgets import format_utc
from gateway.quota.limits import BudgetStatus
from gateway.runtime import Runtime

_MARGIN: Final = 5
"""Percentage points by which use has to fall before an alert is resolved: windows that slide would
flap."""
_AT_ONCE: Final = 500
"""Keys that are checked before other tasks of the loop run."""


async def budget_conditions(runtime: Runtime, thresholds: tuple[int, ...]) -> list[Condition]:
    """A condition for each threshold (in percent) of each budget that has reached it, or nearly.
    Budgets with less use have none. Of several that are reached only the highest can begin an
    alert: lower ones that fire go on."""
    if not thresholds:
        return []
    found: list[Condition] = []
    at = runtime.now()
    for number, holder in enumerate(budget_holders(runtime.registry)):
        for status in runtime.quota.budget_statuses((holder,), at):
            if status.spent:
                found += _conditions(status, thresholds)
        if number % _AT_ONCE == _AT_ONCE - 1:
            await asyncio.sleep(0)
    return found


def _conditions(status: BudgetStatus, thresholds: tuple[int, ...]) -> Iterator[Condition]:
    holder, name, limit = status.holder, status.budget.kind.name, status.budget.limit
    currency = status.budget.kind.currency
    percent = 100 * status.spent / limit if limit else 100.0
    reached = max((each for each in thresholds if percent >= each), default=None)
    for threshold in thresholds:
        active = exceeds(percent, threshold, threshold - _MARGIN)
        if active is False:
            continue
        if threshold != reached:
            active = None
        resets = format_utc(status.resets_at) if status.resets_at is not None else None
        amounts = [_amount(amount, currency) for amount in (status.spent, limit)]
        unit = "" if currency is Currency.USD else " units"
        yield Condition(
            AlertKind.BUDGET_USED,
            f"{holder.kind} {holder.id} {name} {threshold}",
            active,
            f"{holder}, {name}",
            f"{name} of {holder} is used to {percent:.0f} %: {' of '.join(amounts)}{unit}"
            + (f"; it resets at {resets}." if resets else "."),
            {
                holder.kind.value: holder.id,
                "budget": name,
                "threshold_percent": threshold,
                "used_percent": round(percent, 1),
                f"spent_{currency}": status.spent / MICRO_PER_UNIT,
                f"limit_{currency}": limit / MICRO_PER_UNIT,
                "resets_at": resets,
            },
        )


def _amount(micro: int, currency: Currency) -> str:
    """As `gateway budgets` has it, in plain ASCII."""
    text = format_usd(micro) if currency is Currency.USD else format_units(micro)
    return text.replace(NARROW_SPACE, ",")
