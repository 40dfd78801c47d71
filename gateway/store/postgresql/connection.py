"""Connections to a database server, through asyncpg."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, Protocol

import asyncpg

from gateway.config.cluster import DatabaseServer, Tls, TlsMode, tls_context
from gateway.store.errors import ServerUnavailable, StoreError
from gateway.store.postgresql.errors import is_temporary

APPLICATION: Final = "model-gateway"

ERRORS: Final = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, TimeoutError)
"""The errors that a lost or refused connection, and a statement on one, raise."""


class Connector(Protocol):
    """An opener of connections that its callers own and close."""

    async def connect(self, command_timeout: float | None = None) -> asyncpg.Connection: ...


async def connect(
    server: DatabaseServer,
    command_timeout: float | None = None,
    settings: Mapping[str, str] = MappingProxyType({}),
) -> asyncpg.Connection:
    """A connection of the caller's own, which closes it. `command_timeout`: seconds of each of its
    statements. Raises an error of the driver, or OSError."""
    address, options = server.address, connect_options(server)
    options["server_settings"] |= settings
    return await asyncpg.connect(
        user=address.user or None,
        password=password_of(server),
        host=address.host,
        port=address.port,
        database=address.name,
        command_timeout=command_timeout,
        **options,
    )


def time_limits(server: DatabaseServer) -> dict[str, str]:
    """Returns settings with which a server that no longer hears from a connection gives its locks
    back soon."""
    milliseconds = str(int(server.timeout * 1000))
    return {
        "statement_timeout": milliseconds,
        "idle_in_transaction_session_timeout": milliseconds,
    }


def server_failure(message: str, error: BaseException) -> StoreError:
    """Builds an error with this message: ServerUnavailable if trying again later can succeed as it
    is."""
    is_closed = isinstance(error, asyncpg.InterfaceError) and not isinstance(error, ValueError)
    return (ServerUnavailable if is_closed or is_temporary(error) else StoreError)(message)


def password_of(server: DatabaseServer) -> str | None:
    if server.password is not None:
        return server.password.get_secret_value()
    return server.address.password or None


def connect_options(server: DatabaseServer) -> dict[str, Any]:
    """asyncpg's options of a connection, besides its address."""
    return {
        "ssl": _tls_option(server.tls),
        "timeout": server.timeout,
        "server_settings": {"application_name": APPLICATION},
    }


def _tls_option(tls: Tls | None) -> ssl.SSLContext | str | bool:
    if tls is None:
        return "prefer"
    return False if tls.mode is TlsMode.DISABLE else tls_context(tls)
