"""This replica's registration on the database server: it joins, sends a heartbeat every second, and
leaves. The heartbeat has a connection of its own, which neither the request log nor readers delay.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

import orjson
from sqlalchemy.exc import SQLAlchemyError

from gateway import __version__
from gateway.config.cluster import DatabaseServer
from gateway.config.schema import Config
from gateway.fleet.connection import ERRORS, Connection, connect
from gateway.fleet.reaper import Reaper
from gateway.fleet.server_clock import ServerClock, steady_microseconds
from gateway.runtime import Runtime
from gateway.store.database import Database
from gateway.store.errors import ReplicaUnclear, error_reason
from gateway.store.migrations import NAMES
from gateway.store.postgresql.connection import server_failure
from gateway.store.postgresql.replicas import (
    EXPIRED,
    LOST_AFTER,
    OwnReplica,
    Registration,
    register,
    remove,
    set_address,
    steady_seconds,
)
from gateway.store.postgresql.schema import AdvisoryLock

HEARTBEAT: Final = 1.0
"""Seconds."""
STATE_ID: Final = "replica"
"""The file of the state directory with the random id of this replica's state."""

_LEAVE_TIMEOUT: Final = 3.0
_RETRY: Final = 0.25
"""Seconds between two tries to connect."""

_CLOCK: Final = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
_LEAD: Final = "SELECT pg_try_advisory_lock($1)"
_BEAT: Final = """
UPDATE replicas SET heartbeat_at = (extract(epoch FROM clock_timestamp()) * 1000000)::bigint,
    state = $2, config_hash = $3, details = $4
WHERE epoch = $1 AND name = $5 RETURNING 1
"""
_OTHERS: Final = """
SELECT array_agg(name) FILTER (WHERE living) AS living,
    array_agg(name) FILTER (WHERE living AND state = 'serving') AS serving,
    count(*) FILTER (WHERE NOT living AND state <> $3) AS lost
FROM (
    SELECT name, state, name = $1
        OR heartbeat_at > (extract(epoch FROM clock_timestamp()) * 1000000)::bigint - $2 AS living
    FROM replicas
) AS known
"""

log = logging.getLogger(__name__)


class Membership:
    """Keeps `own` and `clock` up to date."""

    def __init__(
        self, database: Database, server: DatabaseServer, config: Config, boot_id: str
    ) -> None:
        """Call it with the state directory's lock."""
        self.own = OwnReplica(
            name=config.replica.name_for(config.server.port),
            boot_id=boot_id,
            state_id=read_state_id(config.state_dir),
            expiry=config.replica.expiry,
            lease_expiry=config.replica.lease_expiry,
        )
        self.clock = ServerClock()
        self.on_epoch: list[Callable[[int], None]] = []
        """Called with the new epoch whenever this replica is registered again: what the earlier one
        had, leases above all, is no longer its own."""
        self.failure: str | None = None
        """Why the last heartbeat failed."""
        self._database = database
        self._server = server
        self._connection: Connection | None = None
        self._task: asyncio.Future[None] | None = None
        self._reaper = Reaper(database, self.own)
        self._config = config
        self._has_shared = config.shared is not None
        self._hash: tuple[Config | None, str] = (None, "")
        self._address = ""
        self._runtime: Runtime | None = None
        self._directory = directory_identity(config.state_dir)

    async def join(self) -> int:
        """Registers and starts the heartbeat; returns how many requests of this replica's earlier
        process were settled as interrupted.

        Raises StoreError: the name is taken, there are others and nothing is shared with them, or
        the server cannot be used.
        """
        try:
            try:
                interrupted = await self._register()
            except ReplicaUnclear:
                await asyncio.sleep(LOST_AFTER + 0.5)
                interrupted = await self._register()
            await self._beat()
        except (SQLAlchemyError, *ERRORS) as error:
            await self._disconnect()
            text = f"the replica cannot be registered: {error_reason(error)}"
            raise server_failure(text, error) from error
        self._task = asyncio.ensure_future(self._run())
        return interrupted

    async def leave(self) -> None:
        """Removes the row, with what is leased, and settles what still runs.

        Where rows wait in the spool, or the server cannot be reached in time, the next start does
        it, or the others do after the expiry."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
        await self._reaper.close()
        if not self.own.epoch:
            return
        if self._is_spooled():  # it was spent within the leases
            await self._disconnect()
            return
        with suppress(*ERRORS):
            async with asyncio.timeout(_LEAVE_TIMEOUT):
                leave = partial(remove, epoch=self.own.epoch)
                with suppress(SQLAlchemyError):
                    await self._database.write(leave)
                    self.own.epoch = 0
        await self._disconnect()
        if self.own.epoch:
            log.warning("replica %s could not be removed from the list of replicas", self.own.name)

    async def attach(self, runtime: Runtime, address: str) -> None:
        """Report from now on that this replica serves, at this address."""
        self._runtime, self._address, epoch = runtime, address, self.own.epoch
        try:
            await self._database.write(partial(set_address, epoch=epoch, address=address))
        except (SQLAlchemyError, *ERRORS) as error:  # it is only shown
            log.warning("the replica's address could not be stored: %s", error_reason(error))

    def _report(self) -> tuple[str, dict[str, Any]]:
        runtime = self._runtime
        if runtime is None:
            return "starting", {}
        spool = runtime.recorder.spool
        return "draining" if runtime.draining else "serving", {
            "requests": runtime.active_requests,
            "unwritten": runtime.recorder.backlog,
            "spool": spool.size if spool is not None and spool.count else 0,
            "leader": self.own.is_leader,
            "clock": round(self.clock.machine_offset, 4),
            "absent": list(runtime.fleet.absent),
        }

    def _is_spooled(self) -> bool:
        spool = None if self._runtime is None else self._runtime.recorder.spool
        return spool is not None and spool.count > 0

    def _config_hash(self) -> str:
        config = self._config if self._runtime is None else self._runtime.config
        if self._hash[0] is not config:
            self._hash = config, comparable_hash(config)
        return self._hash[1]

    async def _register(self) -> int:
        own, config = self.own, self._config
        new = Registration(
            name=own.name,
            boot_id=own.boot_id,
            state_id=own.state_id,
            expiry=own.expiry,
            lease_expiry=own.lease_expiry,
            address=self._address or f"{config.server.host}:{config.server.port}",
            version=__version__,
            schema=len(NAMES),
            config_hash=self._config_hash(),
            directory=self._directory,
            has_shared=self._has_shared,
        )
        work = partial(register, new=new)
        async with asyncio.timeout(4 * self._server.timeout):
            registered = await self._database.write(work)
        own.epoch = registered.epoch
        return registered.interrupted

    async def _run(self) -> None:
        due = asyncio.get_running_loop().time()
        while True:
            due = max(due + HEARTBEAT, (now := asyncio.get_running_loop().time()))
            await asyncio.sleep(due - now)
            try:
                await self._beat()
            except Exception as error:
                # Such as a server that is gone. The loop must go on: nothing else renews leases.
                await self._note_failure(error)
                await asyncio.sleep(_RETRY)
                due = asyncio.get_running_loop().time() - HEARTBEAT

    async def _beat(self) -> None:
        """Sends one heartbeat. What it proves counts from the moment at which it was sent."""
        async with asyncio.timeout(min(self._server.timeout, LOST_AFTER) + _RETRY):
            connection = self._connection
            if connection is None or connection.is_closed():
                self.own.holds_leader_lock = False
                connection = self._connection = await connect(self._server, self.own.name)
            await self._measure_clock(connection)
            own, (state, details) = self.own, self._report()
            details |= {"directory": self._directory, "lease_expiry": own.lease_expiry}
            values = state, self._config_hash(), orjson.dumps(details).decode(), own.name
            sent_at = steady_seconds()
            if not await connection.fetchval(_BEAT, own.epoch, *values):
                await self._join_again()
                sent_at = steady_seconds()
            lost_after = round(LOST_AFTER * 1e6)
            others = await connection.fetchrow(_OTHERS, own.name, lost_after, EXPIRED)
            own.names, own.lost = sorted(others["living"]), others["lost"]
            own.serving = frozenset(others["serving"] or ())
            own.contact_at = sent_at
            if not own.holds_leader_lock:
                own.holds_leader_lock = await connection.fetchval(_LEAD, AdvisoryLock.LEADER)
            await self._reaper.look(connection)
        if self.failure is not None:
            log.info("replica %s is in contact with the database server again", own.name)
            self.failure = None

    async def _measure_clock(self, connection: Connection) -> None:
        sent_at = steady_microseconds()
        server_time = await connection.fetchval(_CLOCK)
        self.clock.add_sample(sent_at, server_time, steady_microseconds())

    async def _join_again(self) -> None:
        """Joins again, as other replicas have removed this replica and use its leases, or one of
        them has its name."""
        own = self.own
        own.epoch = 0
        await self._register()
        log.warning("replica %s was removed by others and is registered again", own.name)
        for call in self.on_epoch:
            call(own.epoch)

    async def _note_failure(self, error: Exception) -> None:
        await self._disconnect()
        reason = error_reason(error)
        if reason != self.failure:
            self.failure = reason
            log.warning("the heartbeat of replica %s failed: %s", self.own.name, reason)

    async def _disconnect(self) -> None:
        self.own.holds_leader_lock = False
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.terminate()


def comparable_hash(config: Config) -> str:
    """A hash of the options that all replicas should have in common: all but `replica`, `state_dir`
    and the address."""
    own = {"replica": True, "state_dir": True, "server": {"host", "port"}}
    text = config.model_dump_json(exclude=own, exclude_defaults=True)  # type: ignore[arg-type]
    return blake2b(text.encode(), digest_size=6).hexdigest()


def read_state_id(state_dir: Path) -> str:
    """The random id of this state directory, created at its first use by the holder of its lock."""
    path = state_dir / STATE_ID
    try:
        if found := path.read_text("ascii").strip():
            return found
    except FileNotFoundError:
        pass
    state_id = secrets.token_hex(16)
    draft = path.with_suffix(".part")
    with draft.open("w", encoding="ascii") as file:
        file.write(f"{state_id}\n")
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
    return state_id


def directory_identity(state_dir: Path) -> str:
    """Identifies the directory on this boot of this machine. A copy of it has another identity; two
    processes with the same one cannot both hold its lock. Random where the system does not say."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        status = state_dir.stat()
    except OSError:
        return secrets.token_hex(16)
    return f"{boot}:{status.st_dev}:{status.st_ino}"
