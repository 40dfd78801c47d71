"""Dedicated connections to the database server, outside the pools of readers and of the log."""

from __future__ import annotations

from typing import Any, Final

from gateway.config.cluster import DatabaseServer
from gateway.store.errors import DatabaseUnavailable
from gateway.store.postgresql import connection
from gateway.store.postgresql.connection import APPLICATION

Connection = Any
"""`asyncpg.Connection`, which has no types."""

ERRORS: Final = (*connection.ERRORS, DatabaseUnavailable)
"""The errors that a lost or refused connection, and a statement on one, raise."""

_IDLE_TIMEOUT: Final = 10_000
"""Milliseconds after which the server closes a silent connection, and with it frees its locks. It
is longer than `LOST_AFTER`, until which a leader without contact goes on."""


async def connect(server: DatabaseServer, name: str) -> Connection:
    """`name` is shown in the server's list of connections. Raises one of `ERRORS`."""
    settings = {
        "application_name": f"{APPLICATION} {name}"[:63],
        "synchronous_commit": "off",  # heartbeats: after a crash of the server the last may be lost
        "idle_session_timeout": str(_IDLE_TIMEOUT),
        "statement_timeout": str(round(server.timeout * 1000)),
    }
    return await connection.connect(server, server.timeout, settings)
