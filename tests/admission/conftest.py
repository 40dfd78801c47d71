"""A real database with one key, and an admission queue."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from gateway.admission.local import Admission
from gateway.quota.limits import Quota
from gateway.store import tokens
from gateway.store.database import Database
from gateway.store.postgresql.budget_leases import LeaseTable
from tests.admission.lease_replicas import GrantsOf
from tests.store.sample_rows import token
from tests.support.ledger_template import open_ledger


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    database = await open_ledger(tmp_path / "ledger.db")
    await tokens.add_token(database, token(0))
    yield database
    await database.close()


@pytest.fixture
def queue() -> Admission:
    return Admission(Quota())


@pytest.fixture
def grants_of(monkeypatch: pytest.MonkeyPatch) -> GrantsOf:
    """In how many transactions a replica has asked for leases."""
    counts: Counter[LeaseTable] = Counter()
    grant = LeaseTable.grant

    async def counted(table: LeaseTable, *args: Any) -> Any:
        counts[table] += 1
        return await grant(table, *args)

    monkeypatch.setattr(LeaseTable, "grant", counted)
    return lambda leases: counts[leases._table]
