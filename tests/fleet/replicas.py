"""Members of a fleet without gateways."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson

from gateway.config.load import parse_config
from gateway.config.schema import Config
from gateway.fleet.changes import Changes
from gateway.fleet.cluster import Cluster
from gateway.fleet.membership import Membership
from gateway.fleet.start import joined
from gateway.store.database import Database
from gateway.store.postgresql.database import PostgresqlDatabase
from gateway.store.postgresql.replicas import ListedReplica, list_replicas
from tests.support.gateway import RunningGateway


def parse(url: str, state_dir: Path | None = None, **replica: Any) -> Config:
    text = {
        "state_dir": str(state_dir or "unused"),
        "database": url,
        "shared": "valkey://127.0.0.1:1",
        "replica": replica,
        "channels": [],
    }
    return parse_config(orjson.dumps(text).decode())


def url_of(database: Database) -> str:
    assert isinstance(database, PostgresqlDatabase)
    return database.server.url.get_secret_value()


@asynccontextmanager
async def replica(
    database: Database,
    folder: Path,
    name: str,
    *,
    directory: str | None = None,
    shared: bool = True,
    expiry: float = 60,
    lease_expiry: float = 0,
) -> AsyncIterator[Membership]:
    """One with the state directory `folder/NAME`; `expiry` can be shorter than configured ones.
    Leases end with it, or at their own."""
    state_dir = folder / (directory or name)
    state_dir.mkdir(exist_ok=True)
    config = parse(url_of(database), state_dir, name=name)
    expiries = {"expiry": expiry, "lease_expiry": lease_expiry}
    changes: dict[str, Any] = {"replica": config.replica.model_copy(update=expiries)}
    if not shared:
        changes["shared"] = None
    config = config.model_copy(update=changes)
    assert config.database is not None
    boot_id = f"boot-{name}-{id(config)}"
    async with joined(database, config.database, config, boot_id) as member:
        yield member.membership


def cluster_of(gateway: RunningGateway) -> Cluster:
    fleet = gateway.daemon.runtime.fleet
    assert isinstance(fleet, Cluster)
    return fleet


def changes_of(gateway: RunningGateway) -> Changes:
    return cluster_of(gateway)._changes


async def listed(database: Database) -> dict[str, ListedReplica]:
    return {each.row.name: each for each in await list_replicas(database)}


async def die(membership: Membership) -> None:
    """Without leaving, as a process that is killed."""
    assert membership._task is not None
    membership._task.cancel()
    await asyncio.wait({membership._task})
    await membership._disconnect()
    membership.own.epoch = -1
