"""A ledger of its own for each test: a real file, a real writer, one token."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.store import tokens
from gateway.store.database import Database
from gateway.store.log.recorder import Recorder
from tests.store.sample_rows import token
from tests.support.ledger_template import open_ledger


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


@pytest.fixture
async def database(path: Path) -> AsyncIterator[Database]:
    database = await open_ledger(path)
    await tokens.add_token(database, token(0))
    yield database
    await database.close()


@pytest.fixture
async def recorder(database: Database) -> AsyncIterator[Recorder]:
    recorder = Recorder(database)
    await recorder.start()
    yield recorder
    await recorder.close()
