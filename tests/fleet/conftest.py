from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest

from gateway.store.database import Database
from gateway.store.open import open_database
from gateway.store.postgresql.budget_leases import LeaseTable
from tests.admission.lease_replicas import GrantsOf
from tests.fleet.replicas import parse
from tests.support.postgres import new_database_url


@pytest.fixture
async def database() -> AsyncIterator[Database]:
    """A new one on the server."""
    server = parse(await new_database_url()).database
    assert server is not None
    database = await open_database(server)
    yield database
    await database.close()


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
