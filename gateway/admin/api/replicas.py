"""Replicas as operators see them, and their routes in the admin API."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from aiohttp import web

from gateway.admin.access.permissions import Permission, requires
from gateway.admin.api.json import json_response
from gateway.runtime import Runtime
from gateway.store.database import Database
from gateway.store.postgresql.replicas import EXPIRED, ListedReplica, list_replicas


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaView:
    """A replica as its last heartbeat describes it. `state` is `starting`, `serving`, `draining`,
    `lost`, or `expired`: others have settled its requests, its leases are kept. `config_differs`:
    most others have another configuration. `heartbeat_age` is in seconds, `started_at` in Unix
    microseconds; `clock_offset` is how many seconds the machine's clock is ahead of the server's,
    which replicas use. `requests` run, and `unwritten` rows of the request log wait. `leases` are
    budgets of which it has leased a part: `leased_units` and `leased_usd` in millionths, of keys
    and groups together. `absent_from_shared` names replicas that serve, but share no limits with
    it."""

    name: str
    is_self: bool
    is_leader: bool
    state: str
    version: str
    schema: int
    address: str
    config_hash: str
    config_differs: bool
    started_at: int
    heartbeat_age: float
    requests: int
    unwritten: int
    spool_bytes: int
    clock_offset: float
    absent_from_shared: list[str]
    leases: int
    leased_units: int
    leased_usd: int


async def replica_views(runtime: Runtime, database: Database) -> list[ReplicaView]:
    """Returns the replicas by name; none if there is no database server. Raises SQLAlchemyError."""
    if not runtime.fleet.is_replica:
        return []
    listed = await list_replicas(database)
    usual = usual_hash(listed)
    return [_view(each, usual, runtime.fleet.epoch) for each in listed]


def usual_hash(listed: list[ListedReplica]) -> str | None:
    """The configuration that more replicas have than any other, lost ones left out; None if no
    configuration is more usual than another."""
    counts = Counter(each.row.config_hash for each in listed if each.is_living).most_common(2)
    if not counts or (len(counts) == 2 and counts[0][1] == counts[1][1]):
        return None
    return counts[0][0]


def _view(replica: ListedReplica, usual: str | None, own_epoch: int) -> ReplicaView:
    row, details = replica.row, replica.details
    return ReplicaView(
        name=row.name,
        is_self=row.epoch == own_epoch,
        is_leader=replica.is_living and details.get("leader") is True,
        state=row.state if replica.is_living or row.state == EXPIRED else "lost",
        version=row.version,
        schema=row.schema,
        address=row.address,
        config_hash=row.config_hash,
        config_differs=row.config_hash != usual,
        started_at=row.started_at,
        heartbeat_age=round(replica.age, 3),
        requests=details.get("requests", 0),
        unwritten=details.get("unwritten", 0),
        spool_bytes=details.get("spool", 0),
        clock_offset=details.get("clock", 0.0),
        absent_from_shared=details.get("absent", []),
        leases=replica.leases,
        leased_units=replica.leased_units,
        leased_usd=replica.leased_usd,
    )


def add_replica_routes(app: web.Application, runtime: Runtime, database: Database) -> None:
    @requires(Permission.READ)
    async def show_replicas(_: web.Request) -> web.Response:
        views = await replica_views(runtime, database)
        return json_response({"configured": runtime.fleet.is_replica, "replicas": views})

    app.router.add_get("/replicas", show_replicas)
