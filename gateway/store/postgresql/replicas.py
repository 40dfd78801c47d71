"""The table of replicas on the database server, and this process's own registration.

A replica has a row from its registration until it stops, or until others remove it. The row's epoch
is a fencing token: budget leases belong to an epoch, and those of an epoch without a row have
ended.

A replica that is not heard of ends in two steps, as it may only be cut off. After its expiry its
requests are settled as interrupted. Its leases stay for longer, as it reports what it has spent of
them when it is back.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, Final, NamedTuple, TypeVar

import orjson
import sqlalchemy
from sqlalchemy import (
    ColumnElement,
    Connection,
    Delete,
    Select,
    Update,
    delete,
    func,
    insert,
    literal_column,
    select,
    update,
)

from gateway.store.database import Database
from gateway.store.errors import ReplicaNameTaken, ReplicaUnclear, SharedStateMissing
from gateway.store.postgresql.recovery import mark_interrupted
from gateway.store.postgresql.schema import AdvisoryLock, budget_leases, replicas
from gateway.store.schema import requests

_Filtered = TypeVar("_Filtered", Select[Any], Update, Delete)

LOST_AFTER: Final = 5.0
"""Seconds without a heartbeat, after which a replica is lost and has no share of limits."""
LEASE_MARGIN: Final = 3.0
"""Seconds before an expiry at which a replica stops what others may do after it."""

EXPIRED: Final = "expired"
"""The state of a replica whose requests others have settled; a heartbeat ends it."""

_EPOCHS: Final = sqlalchemy.Sequence("replica_epochs")
_NOW: Final[ColumnElement[int]] = literal_column(
    "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
)


class ReplicaRow(NamedTuple):
    """`state` is starting, serving, draining or expired; times are Unix us of the server's clock.
    `details` is a JSON object with what the last heartbeat reported."""

    name: str
    epoch: int
    boot_id: str
    state_id: str
    state: str
    address: str
    version: str
    schema: int
    config_hash: str
    started_at: int
    heartbeat_at: int
    expiry_us: int
    details: str


class ListedReplica(NamedTuple):
    """A replica, how many seconds ago it was heard of, the number of its budget leases, and their
    sums in millionths: a request counts in that of its key and that of its group."""

    row: ReplicaRow
    age: float
    leases: int = 0
    leased_units: int = 0
    leased_usd: int = 0

    @property
    def is_living(self) -> bool:
        return self.age <= LOST_AFTER

    @property
    def details(self) -> dict[str, Any]:
        details: dict[str, Any] = orjson.loads(self.row.details)
        return details


def steady_seconds() -> float:
    """A clock that is never set, and that goes on while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass(slots=True, eq=False)
class OwnReplica:
    """This process among the replicas; `fleet.membership` updates it with each heartbeat.

    `epoch` is 0 if it is not registered, which begins when it was reaped. `contact_at` is when
    the last heartbeat that succeeded was sent, by `steady_seconds`. `names` are those of all living
    replicas, sorted, and `serving` those that admit requests; `lost` ones were not heard of.
    """

    name: str
    boot_id: str
    state_id: str
    expiry: float
    epoch: int = 0
    contact_at: float = -inf
    names: Sequence[str] = ()
    serving: Collection[str] = ()
    lost: int = 0
    holds_leader_lock: bool = False
    lease_expiry: float = 0.0

    @property
    def position(self) -> tuple[int, int]:
        """Returns its rank among the living replicas by name, from 0, and how many there are."""
        return bisect_left(self.names, self.name), max(1, len(self.names))

    @property
    def contact_age(self) -> float:
        """Seconds."""
        return steady_seconds() - self.contact_at

    @property
    def lease_seconds(self) -> float:
        """Returns for how long budget leases can still be used without a further heartbeat; 0 or
        less: no request may be admitted with them, as others may use their budgets soon."""
        return self._seconds_of(max(self.expiry, self.lease_expiry))

    @property
    def name_seconds(self) -> float:
        """Returns for how long no other replica can start in the place of this one, or beside it if
        nothing is shared, without a further heartbeat."""
        return self._seconds_of(self.expiry)

    def _seconds_of(self, expiry: float) -> float:
        return expiry - LEASE_MARGIN - self.contact_age if self.epoch else 0.0

    @property
    def is_leader(self) -> bool:
        """Whether this replica does the work of the leader. The server frees the lock of a silent
        connection later than `LOST_AFTER`, so there are never two leaders."""
        return self.holds_leader_lock and self.contact_age <= LOST_AFTER


@dataclass(frozen=True, slots=True)
class Registration:
    """The statement of a replica that starts. `directory` identifies its state directory on its
    machine: two processes with the same one cannot both hold the directory's lock. Without
    `has_shared` it has to be the only replica."""

    name: str
    boot_id: str
    state_id: str
    expiry: float
    lease_expiry: float
    address: str
    version: str
    schema: int
    config_hash: str
    directory: str
    has_shared: bool


class Registered(NamedTuple):
    """`interrupted`: running requests of this replica's earlier process, which were settled."""

    epoch: int
    interrupted: int


def register(connection: Connection, new: Registration) -> Registered:
    """Add the replica with a new epoch, instead of its earlier process, whose requests are settled
    in the same transaction, and whose leases end: it left nothing in its spool.

    An expired replica of the same name, with another state, loses the name.

    Raises ReplicaNameTaken, SharedStateMissing, or ReplicaUnclear if it is not known yet whether
    another process uses a copy of the state directory.
    """
    connection.execute(select(func.pg_advisory_xact_lock(AdvisoryLock.REGISTRATION)))
    interrupted = 0
    for other in _listed(connection):
        if _is_replaced_by(other, new):
            interrupted += remove(connection, other.row.epoch) or 0
        elif other.row.name == new.name:
            interrupted += expire(connection, other.row.epoch) or 0
            without_name = {"name": f"{new.name} (epoch {other.row.epoch})"}
            connection.execute(_of(other.row.epoch, update(replicas)).values(without_name))
    now: int = connection.execute(select(_NOW)).scalar_one()
    epoch: int = connection.scalar(_EPOCHS)
    row = ReplicaRow(
        name=new.name,
        epoch=epoch,
        boot_id=new.boot_id,
        state_id=new.state_id,
        state="starting",
        address=new.address,
        version=new.version,
        schema=new.schema,
        config_hash=new.config_hash,
        started_at=now,
        heartbeat_at=now,
        expiry_us=round(new.expiry * 1e6),
        details=orjson.dumps(
            {"directory": new.directory, "lease_expiry": new.lease_expiry}
        ).decode(),
    )
    connection.execute(insert(replicas).values(row._asdict()))
    return Registered(epoch, interrupted)


def _is_replaced_by(other: ListedReplica, new: Registration) -> bool:
    """Whether another row is that of an earlier process of the new replica. Raises where both
    cannot be."""
    row, is_expired = other.row, other.age > other.row.expiry_us / 1e6
    if row.state_id == new.state_id:
        if other.is_living and other.details.get("directory") != new.directory:
            raise ReplicaUnclear(
                f"replica '{row.name}' at {row.address} has a copy of this state directory, and was"
                f" heard of {other.age:.1f} s ago: give each replica a state directory of its own"
            )
        return True
    if row.name == new.name:
        if not is_expired:
            raise ReplicaNameTaken(
                f"another replica has the name '{row.name}': the one at {row.address}, heard of"
                f" {other.age:.1f} s ago. Set replica.name to another one, or wait until that"
                f" replica has been silent for {row.expiry_us / 1e6:.0f} s"
            )
        return False
    if not new.has_shared and not is_expired:
        raise SharedStateMissing(
            f"replica '{row.name}' at {row.address} uses the same database, and this one has no"
            " `shared` server: limits would apply to each replica alone. Configure `shared` for"
            " all replicas, or stop the other one"
        )
    return False


def expire(connection: Connection, epoch: int, unheard_since: int | None = None) -> int | None:
    """Settle a replica's running requests, whose cost is taken from its leases; the rest of them
    stays. Returns and takes what `remove` does."""
    count = _settle(connection, epoch, unheard_since, keeps_leases=True)
    if count is not None:
        connection.execute(_of(epoch, update(replicas)).values(state=EXPIRED))
    return count


def remove(connection: Connection, epoch: int, unheard_since: int | None = None) -> int | None:
    """Delete a replica's row, and with it its budget leases, and settle its running requests in the
    same transaction; returns their number, or None if there is no such row.

    `unheard_since` is the heartbeat (`heartbeat_at`) since which nothing was heard of it: a later
    one keeps it.
    """
    count = _settle(connection, epoch, unheard_since)
    if count is not None:
        connection.execute(_of(epoch, delete(replicas)))
    return count


def _settle(
    connection: Connection,
    epoch: int,
    unheard_since: int | None,
    *,
    keeps_leases: bool = False,
) -> int | None:
    # First the row is locked, which ends grants of leases, and last it is changed with its leases:
    # in the order in which settlements lock.
    own = _of(epoch, select(replicas.c.boot_id))
    if unheard_since is not None:
        own = own.where(replicas.c.heartbeat_at == unheard_since)
    boot_id = connection.scalar(own.with_for_update())
    if boot_id is None:
        return None
    kept = epoch if keeps_leases else None
    return mark_interrupted(connection, requests.c.boot_id == boot_id, kept)


def _of(epoch: int, statement: _Filtered) -> _Filtered:
    return statement.where(replicas.c.epoch == epoch)


def set_address(connection: Connection, epoch: int, address: str) -> None:
    """Sets where a replica listens, once it does."""
    connection.execute(_of(epoch, update(replicas)).values(address=address))


async def list_replicas(database: Database) -> list[ListedReplica]:
    """Returns all replicas by name; only a database server has any."""
    async with database.reader.connect() as connection:
        return await connection.run_sync(_listed)


def _listed(connection: Connection) -> list[ListedReplica]:
    columns = [replicas.c[name] for name in ReplicaRow._fields]
    lease = budget_leases.c
    units, usd = (
        func.coalesce(func.sum(func.greatest(0, each)), 0) for each in (lease.units, lease.usd)
    )
    leases = func.count().filter((lease.units > 0) | (lease.usd > 0)), units, usd
    query = (
        select(*columns, _NOW, *leases)
        .select_from(replicas.outerjoin(budget_leases, lease.epoch == replicas.c.epoch))
        .group_by(*columns)
        .order_by(replicas.c.name)
    )
    listed = []
    for *fields, now, count, units_sum, usd_sum in connection.execute(query):
        row = ReplicaRow(*fields)
        age = max(0.0, (now - row.heartbeat_at) / 1e6)
        listed.append(ListedReplica(row, age, count, int(units_sum), int(usd_sum)))
    return listed
