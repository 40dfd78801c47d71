"""Deletes what end users and sessions have spent on past days: they have budgets of a day alone."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection, delete, exists

from gateway.store.postgresql.schema import budget_leases, spending
from gateway.store.records import BUDGET_DIMENSIONS, DAY_US

_KEPT: Final = 2 * DAY_US


def delete_past(connection: Connection, now: int) -> None:
    """Deletes their spending of days that are over, and their leases of which nothing is left;
    `now` is in Unix µs."""
    spent, lease = spending.c, budget_leases.c
    connection.execute(
        delete(spending).where(spent.holder_kind.in_(BUDGET_DIMENSIONS), spent.start < now - _KEPT)
    )
    # Not those in use: the recorders' transactions lock their rows in another order.
    is_used = exists().where(
        spent.holder_kind == lease.holder_kind, spent.holder_id == lease.holder_id
    )
    is_empty = (lease.units <= 0) & (lease.usd <= 0)
    connection.execute(
        delete(budget_leases).where(lease.holder_kind.in_(BUDGET_DIMENSIONS), is_empty, ~is_used)
    )
