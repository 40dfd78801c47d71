"""Operations over a real database, and a client on a real admin socket."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest

from gateway.admin.api.routes import build_admin_app
from gateway.admin.api.socket import serve_admin
from gateway.admin.operations import AdminOperations
from gateway.store.database import Database
from gateway.store.records import ExchangeState, LogEntry, RequestRow
from gateway.store.registry import Registry
from gateway.store.sqlite.lock import DATABASE_NAME, lock_state_dir
from tests.store.sample_rows import failed_attempt, intent, settlement
from tests.support.ledger_template import open_ledger


class Clock:
    """Unix microseconds that only a test moves."""

    def __init__(self) -> None:
        self.now = 1_700_000_000_000_000

    def __call__(self) -> int:
        return self.now


@dataclass(frozen=True, slots=True)
class AdminFixture:
    database: Database
    registry: Registry
    operations: AdminOperations
    clock: Clock


@pytest.fixture
def state_dir(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
async def admin(state_dir: Path) -> AsyncIterator[AdminFixture]:
    with lock_state_dir(state_dir):
        database = await open_ledger(state_dir / DATABASE_NAME)
        registry = await Registry.load(database)
        clock = Clock()
        yield AdminFixture(database, registry, AdminOperations(database, registry, clock), clock)
        await database.close()


@pytest.fixture
async def client(admin: AdminFixture, state_dir: Path) -> AsyncIterator[aiohttp.ClientSession]:
    async with (
        serve_admin(build_admin_app(admin.operations), state_dir) as path,
        aiohttp.ClientSession(
            "http://gateway/admin/api/", connector=aiohttp.UnixConnector(str(path))
        ) as session,
    ):
        yield session


@pytest.fixture
def exchanges() -> list[tuple[RequestRow, LogEntry | None]]:
    """Four in the order of their ids: fine, another key's, failed upstream, still running."""
    refused = settlement(
        3,
        "tok_a",
        stream=False,
        state=ExchangeState.ERROR,
        status=503,
        upstream_status=529,
        upstream_error="no \x1b[31m room",
        attempts=2,
    )
    return [
        (intent(1, "tok_a"), LogEntry(settlement(1, "tok_a"))),
        (intent(2, "tok_b", model="beta-5.4"), LogEntry(settlement(2, "tok_b", model="beta-5.4"))),
        (intent(3, "tok_a", stream=False), LogEntry(refused, (failed_attempt(), failed_attempt()))),
        (intent(4, "tok_a"), None),
    ]
