"""Budgets of keys and groups of which much is used."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Final, NamedTuple

from gateway.alerts.condition import Condition, exceeds
from gateway.config.alerts import AlertKind
from gateway.core.limits import MICRO_PER_UNIT, Limits
from gateway.quota.budgets import day_of, format_utc, month_of
from gateway.quota.limits import HolderKind
from gateway.runtime import Runtime

_MARGIN: Final = 5
"""Percentage points by which use has to fall before an alert is resolved: windows that slide would
flap."""
_AT_ONCE: Final = 500
"""Keys that are checked before other tasks of the loop run."""


class BudgetUse(NamedTuple):
    """A budget of a key or group, in micro-units; `resets_at` is in Unix microseconds."""

    kind: HolderKind
    id: str
    holder: str
    budget: str
    limit: int
    spent: int
    resets_at: int | None


async def budget_conditions(runtime: Runtime, thresholds: tuple[int, ...]) -> list[Condition]:
    """A condition for each threshold (in percent) of each budget that has reached it, or nearly.
    Budgets with less use have none."""
    if not thresholds:
        return []
    found: list[Condition] = []
    at = runtime.now()
    holders = [(HolderKind.KEY, key.id, key.name, key.limits) for key in runtime.registry.tokens()]
    holders += [(HolderKind.GROUP, g.name, g.name, g.limits) for g in runtime.registry.groups()]
    for number, (kind, id, name, limits) in enumerate(holders):
        if limits.has_budget:
            for use in _uses(runtime, kind, id, name, limits, at):
                found += _conditions(use, thresholds)
        if number % _AT_ONCE == _AT_ONCE - 1:
            await asyncio.sleep(0)
    return found


def _uses(
    runtime: Runtime, kind: HolderKind, id: str, name: str, limits: Limits, at: int
) -> Iterator[BudgetUse]:
    total, day, month = runtime.quota.budget(kind, id).spent(at)
    budgets = (
        ("budget", limits.budget, total, None),
        ("budget_month", limits.budget_month, month, month_of(at).end),
        ("budget_day", limits.budget_day, day, day_of(at).end),
    )
    for budget, limit, spent, resets_at in budgets:
        if limit is not None and spent:
            yield BudgetUse(kind, id, f"{kind} {name}", budget, limit, spent, resets_at)


def _conditions(use: BudgetUse, thresholds: tuple[int, ...]) -> Iterator[Condition]:
    percent = 100 * use.spent / use.limit if use.limit else 100.0
    for threshold in thresholds:
        active = exceeds(percent, threshold, threshold - _MARGIN)
        if active is False:
            continue
        resets = format_utc(use.resets_at) if use.resets_at is not None else None
        amounts = [f"{amount / MICRO_PER_UNIT:,.0f}" for amount in (use.spent, use.limit)]
        yield Condition(
            AlertKind.BUDGET_USED,
            f"{use.kind} {use.id} {use.budget} {threshold}",
            active,
            f"{use.holder}, {use.budget}",
            f"{use.budget} of {use.holder} is used to {percent:.0f} %: {' of '.join(amounts)} units"
            + (f"; it resets at {resets}." if resets else "."),
            {
                use.kind.value: use.id,
                "budget": use.budget,
                "threshold_percent": threshold,
                "used_percent": round(percent, 1),
                "spent_units": use.spent / MICRO_PER_UNIT,
                "limit_units": use.limit / MICRO_PER_UNIT,
                "resets_at": resets,
            },
        )
