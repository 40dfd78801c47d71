"""Several replicas migrate one database server: one applies each migration while the others wait,
and requests go on meanwhile.

A migration is tried again where its turn or a lock was not to be had. For locks on tables it waits
for a moment only: whoever waits for one makes all later requests wait behind it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final, Protocol, TypeVar

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from gateway.store.errors import ServerUnavailable

T = TypeVar("T")

TURN_TIMEOUT: Final = 300.0
"""Seconds of waiting for other replicas, and for transactions that use the tables."""

_ADVISORY_LOCK: Final = 0x6764_6D67
_LOCK_TIMEOUT: Final = 300  # milliseconds
_PAUSE: Final = 0.3  # seconds
_LOCK_NOT_AVAILABLE: Final = "55P03"
_DEADLOCK: Final = "40P01"

_log = logging.getLogger(__name__)


class NotOurTurn(Exception):
    """Another replica migrates."""


class Target(Protocol):
    async def change_schema(self, work: Callable[[Connection], T]) -> T: ...


def take_turn(connection: Connection) -> None:
    """Until the transaction ends. Raises NotOurTurn. With SQLite one process has the file."""
    if connection.dialect.name != "postgresql":
        return
    query = f"SELECT pg_try_advisory_xact_lock({_ADVISORY_LOCK})"
    if not connection.exec_driver_sql(query).scalar():
        raise NotOurTurn
    connection.exec_driver_sql(f"SET LOCAL lock_timeout = {_LOCK_TIMEOUT}")


async def write_in_turn(database: Target, work: Callable[[Connection], T]) -> T:
    """`Database.change_schema`, again until it has its turn and its locks. Raises ServerUnavailable
    after `TURN_TIMEOUT`."""
    now = asyncio.get_running_loop().time
    began, reason = now(), ""
    while now() - began < TURN_TIMEOUT:
        try:
            return await database.change_schema(work)
        except NotOurTurn:
            found = "another replica changes the database's schema"
        except DBAPIError as error:
            if getattr(error.orig, "sqlstate", None) not in (_LOCK_NOT_AVAILABLE, _DEADLOCK):
                raise
            found = "tables are in use by a long transaction"
        if found != reason:
            reason = found
            _log.info("waiting: %s", reason)
        await asyncio.sleep(_PAUSE)
    raise ServerUnavailable(
        f"the schema was not changed within {TURN_TIMEOUT:.0f} s: {reason}. Start it again; "
        "pg_stat_activity shows who is in the way"
    )
