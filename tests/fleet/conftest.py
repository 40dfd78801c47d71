from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from gateway.store.database import Database
from gateway.store.open import open_database
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
