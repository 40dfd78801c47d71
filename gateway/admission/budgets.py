"""The budgets of all keys and groups, and of each end user and each session of keys: who has any,
and what was spent of them before the start."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Final

from gateway.admission.dimensions import NO_DIMENSIONS, Dimensions
from gateway.core.limits import DIMENSION_BUDGETS, BudgetWindow, Cost, Currency, Limits
from gateway.quota.budgets import BudgetTracker
from gateway.quota.limits import Holder, HolderKind, Quota
from gateway.store.database import Database
from gateway.store.log.spending import Spend, load_dimension_spend, load_spend
from gateway.store.records import DAY_US, Group, Token, dimension_holder_id
from gateway.store.registry import Registry

_AT_ONCE: Final = 500
"""Holders that are loaded before others have their turn."""


def budget_holders(registry: Registry) -> Iterator[Holder]:
    """The active keys, and the groups, that have any budget; for `Quota.budget_statuses`."""
    records: tuple[tuple[HolderKind, Token | Group], ...] = (
        *((HolderKind.KEY, token) for token in registry.tokens()),
        *((HolderKind.GROUP, group) for group in registry.groups()),
    )
    for kind, record in records:
        if record.limits.has_budget:
            yield holder_of(kind, record)


def holder_of(kind: HolderKind, record: Token | Group) -> Holder:
    id = record.id if isinstance(record, Token) else record.name
    return Holder(kind, id, record.name, record.limits)


async def load_budgets(quota: Quota, database: Database) -> None:
    """Loads what is spent. Call it before any request."""
    spending = await load_spend(database)
    for kind, holders in ((HolderKind.KEY, spending.tokens), (HolderKind.GROUP, spending.groups)):
        for id, spend in holders.items():
            for number, currency in enumerate(Currency):
                load_spent(quota.budget(kind, id, currency), spend, number)


def dimension_limits(token: Token) -> dict[HolderKind, Limits]:
    """The limits of each end user and each session of a key, if it has any."""
    budgets = defaultdict[HolderKind, dict[str, int | None]](dict)
    for name, (dimension, kind) in DIMENSION_BUDGETS.items():
        budgets[HolderKind(dimension)][kind.name] = getattr(token, name)
    limits = {kind: Limits(**named) for kind, named in budgets.items()}
    return {kind: each for kind, each in limits.items() if each}


async def load_dimension_budgets(
    quota: Quota, database: Database, now: int, token_id: str | None = None
) -> list[tuple[str, Dimensions]]:
    """Loads what end users and sessions have spent of their budgets since the UTC day of `now`
    (Unix µs) began, of one key or of all; returns them by key. Leases need nothing of it: whoever
    grants them reads what is spent."""
    if quota.is_leased:
        return []
    day = now - now % DAY_US
    spending = await load_dimension_spend(database, day, token_id)
    for number, (dimension, key, text, cost) in enumerate(spending):
        kind, id = HolderKind(dimension), dimension_holder_id(key, text)
        for currency, amount in zip(Currency, cost, strict=True):
            if amount:
                tracker = quota.budget(kind, id, currency)
                tracker.settle(0, max(0, amount - tracker.spent(BudgetWindow.DAY, day)), day)
        if not number % _AT_ONCE:
            await asyncio.sleep(0)
    return [(key, NO_DIMENSIONS._replace(**{name: text})) for name, key, text, _ in spending]


def load_spent(tracker: BudgetTracker, spend: Spend, number: int) -> None:
    """Loads what was spent in the currency of that number."""
    tracker.load(
        spend.total[number],
        _amounts(spend.by_day, number),
        _amounts(spend.by_hour, number),
        _amounts(spend.by_step, number),
    )


def _amounts(costs: Mapping[int, Cost], number: int) -> dict[int, int]:
    return {at: cost[number] for at, cost in costs.items() if cost[number]}
