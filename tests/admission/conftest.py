"""A real database with one key, and an admission queue."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.admission.local import Admission
from gateway.quota.limits import Quota
from gateway.store import tokens
from gateway.store.database import Database
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
