"""The budgets of all keys and groups: who has any, and what was spent of them before the start."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gateway.core.limits import Cost, Currency
from gateway.quota.budgets import BudgetTracker
from gateway.quota.limits import Holder, HolderKind, Quota
from gateway.store.database import Database
from gateway.store.log.spending import Spend, load_spend
from gateway.store.records import Group, Token
from gateway.store.registry import Registry


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


def load_spent(tracker: BudgetTracker, spend: Spend, number: int) -> None:
    """In the currency of that number."""
    tracker.load(
        spend.total[number],
        _amounts(spend.by_day, number),
        _amounts(spend.by_hour, number),
        _amounts(spend.by_step, number),
    )


def _amounts(costs: Mapping[int, Cost], number: int) -> dict[int, int]:
    return {at: cost[number] for at, cost in costs.items() if cost[number]}
