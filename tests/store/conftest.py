"""A ledger of its own for each test: a real file, a real writer, one token."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.store import tokens
from gateway.store.database import Database
from gateway.store.recorder import Recorder
from tests.store.ledger import token


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


@pytest.fixture
async def database(path: Path) -> AsyncIterator[Database]:
    database = await Database.open(path)
    await tokens.add_token(database, token(0))
    yield database
    await database.close()


@pytest.fixture
async def recorder(database: Database) -> AsyncIterator[Recorder]:
    recorder = Recorder(database)
    await recorder.start()
    yield recorder
    await recorder.close()
