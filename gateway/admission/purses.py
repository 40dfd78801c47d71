"""Fills the purses at the start with what the ledger knows. It must not know any limit."""

from __future__ import annotations

from gateway.quota.limits import HolderKind, Quota
from gateway.store.database import Database
from gateway.store.usage import load_spend


async def load_purses(quota: Quota, database: Database, at: int) -> None:
    """Call it before anything is spent; `at` is now, in Unix µs."""
    known = await load_spend(database, at)
    for kind, holders in ((HolderKind.KEY, known.tokens), (HolderKind.GROUP, known.groups)):
        for id, sums in holders.items():
            quota.budget(kind, id).load(sums.total, sums.day, sums.month, at)
