"""A desk over a real database, and a client on a real admin socket."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gateway.admin.api import build_admin
from gateway.admin.desk import DATABASE_NAME, Desk
from gateway.admin.socket import serve_admin
from gateway.store.database import Database
from gateway.store.lock import hold
from gateway.store.records import ExchangeState, Intent, Settlement
from gateway.store.registry import Registry

Exchange = Callable[..., tuple[Intent, Settlement]]


class Clock:
    """Unix microseconds that only a test moves."""

    def __init__(self) -> None:
        self.now = 1_700_000_000_000_000

    def __call__(self) -> int:
        return self.now


@dataclass(frozen=True, slots=True)
class House:
    database: Database
    registry: Registry
    desk: Desk
    clock: Clock


@pytest.fixture
def state_dir(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
async def house(state_dir: Path) -> AsyncIterator[House]:
    with hold(state_dir):
        database = await Database.open(state_dir / DATABASE_NAME)
        registry = await Registry.load(database)
        clock = Clock()
        yield House(database, registry, Desk(database, registry, clock), clock)
        await database.close()


@pytest.fixture
async def client(house: House, state_dir: Path) -> AsyncIterator[aiohttp.ClientSession]:
    async with (
        serve_admin(build_admin(house.desk), state_dir) as path,
        aiohttp.ClientSession(
            "http://gateway/admin/api/", connector=aiohttp.UnixConnector(str(path))
        ) as session,
    ):
        yield session


@pytest.fixture
def exchange() -> Exchange:
    """Makes the two halves of a row; keywords change the settlement."""
    return make_exchange


@pytest.fixture
def exchanges() -> list[tuple[Intent, Settlement | None]]:
    """Four in the order of their ids: fine, another key's, failed upstream, still running."""
    failed = {
        "state": ExchangeState.ERROR,
        "status": 503,
        "error_code": "server_is_overloaded",
        "upstream_status": 529,
        "upstream_error": "no \x1b[31m room",
    }
    return [
        make_exchange(1, "tok_a"),
        make_exchange(2, "tok_b"),
        make_exchange(3, "tok_a", **failed),
        (make_exchange(4, "tok_a")[0], None),
    ]


def make_exchange(number: int, token_id: str, **changed: Any) -> tuple[Intent, Settlement]:
    name = f"req_{number:024x}"
    intent = Intent(
        id=name,
        started_at=number,
        token_id=token_id,
        group_name="default",
        endpoint="/v1/messages",
        format="messages",
        model="alpha-opus-4-8" if token_id == "tok_a" else "beta-5.4",
        channel="main",
        account="a1",
        upstream_model="big",
        lane="native",
        stream=False,
        client_address="127.0.0.1",
        user_agent="test",
        client_request_id=None,
        bytes_in=10,
    )
    settlement = Settlement(
        id=name,
        token_id=token_id,
        state=ExchangeState.OK,
        status=200,
        stop_reason="end_turn",
        end_reason=None,
        input_tokens=11,
        cache_read_tokens=0,
        cache_write_tokens=0,
        output_tokens=7,
        reasoning_tokens=0,
        usage_source="upstream",
        first_event_us=1000,
        total_us=2000,
        bytes_out=20,
        error_code=None,
        upstream_status=None,
        upstream_error=None,
        dropped=None,
    )
    return intent, settlement._replace(**changed)
