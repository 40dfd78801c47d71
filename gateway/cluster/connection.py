"""Connections of their own to the database server, past the pools of requests and of the log."""

from __future__ import annotations

from typing import Any, Final

from gateway.config.cluster import DatabaseServer
from gateway.store import server_connection
from gateway.store.errors import DatabaseUnavailable
from gateway.store.server_connection import APPLICATION

Connection = Any
"""`asyncpg.Connection`, which has no types."""

ERRORS: Final = (*server_connection.ERRORS, DatabaseUnavailable)
"""What a lost or refused connection, and a statement on one, raise."""

_IDLE_TIMEOUT: Final = 10_000
"""Milliseconds after which the server ends a silent connection, and with it its locks.
Longer than a leader takes itself for one without contact."""


async def connect(server: DatabaseServer, name: str) -> Connection:
    """`name` is shown in the server's list of connections. Raises one of `ERRORS`."""
    settings = {
        "application_name": f"{APPLICATION} {name}"[:63],
        "synchronous_commit": "off",  # heartbeats: after a crash of the server the last may be lost
        "idle_session_timeout": str(_IDLE_TIMEOUT),
        "statement_timeout": str(round(server.timeout * 1000)),
    }
    return await server_connection.connect(server, server.timeout, settings)
