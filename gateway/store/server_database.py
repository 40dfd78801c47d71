"""A PostgreSQL server as database, through asyncpg."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import Any, Final, TypeVar

import asyncpg
from sqlalchemy import URL, Connection
from sqlalchemy.engine.interfaces import DBAPICursor
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import create_async_engine

from gateway.config.cluster import DatabaseServer, Tls, TlsMode
from gateway.store.database import Database, driver_cursor
from gateway.store.errors import StoreError

T = TypeVar("T")

_APPLICATION: Final = "model-gateway"


class ServerDatabase(Database):
    """One connection writes, a pool reads."""

    def __init__(self, server: DatabaseServer) -> None:
        self.server = server
        options: dict[str, Any] = {"hide_parameters": True, "connect_args": connect_options(server)}
        try:
            self._engine = create_async_engine(
                _url(server), pool_size=1, max_overflow=0, pool_pre_ping=True, **options
            )
            self.reader = create_async_engine(
                _url(server),
                pool_size=server.connections,
                max_overflow=0,
                pool_pre_ping=True,
                execution_options={"postgresql_readonly": True},
                **options,
            )
        except (SQLAlchemyError, ImportError) as error:
            raise StoreError(f"the database server cannot be used: {error}") from error
        self.dialect = self._engine.dialect

    async def write(self, work: Callable[[Connection], T]) -> T:
        async with self._engine.begin() as connection:
            return await connection.run_sync(work)

    async def write_rows(self, work: Callable[[DBAPICursor], T]) -> T:
        def run(connection: Connection) -> T:
            with driver_cursor(connection) as cursor:
                return work(cursor)

        return await self.write(run)

    async def connect(self, command_timeout: float | None = None) -> asyncpg.Connection:
        """A connection of the caller's own, which closes it. `command_timeout`: seconds of each of
        its statements. Raises an error of the driver, or OSError."""
        return await connect(self.server, command_timeout)

    async def check(self) -> None:
        """Nothing to check: a server does not start on damaged files."""

    async def copy(self, version: int) -> None:
        """Nothing to copy: a server's operator makes its backups."""

    async def free_pages(self) -> None:
        """A server looks after its space itself."""

    async def shrink(self) -> None:
        """Nothing to cut off."""

    async def close(self) -> None:
        await self.reader.dispose()
        await self._engine.dispose()


def _url(server: DatabaseServer) -> URL:
    address = server.address
    return URL.create(
        "postgresql+asyncpg",
        username=address.user or None,
        password=password_of(server),
        host=address.host,
        port=address.port,
        database=address.name,
    )


async def connect(
    server: DatabaseServer, command_timeout: float | None = None
) -> asyncpg.Connection:
    address = server.address
    return await asyncpg.connect(
        user=address.user or None,
        password=password_of(server),
        host=address.host,
        port=address.port,
        database=address.name,
        command_timeout=command_timeout,
        **connect_options(server),
    )


def password_of(server: DatabaseServer) -> str | None:
    if server.password is not None:
        return server.password.get_secret_value()
    return server.address.password or None


def connect_options(server: DatabaseServer) -> dict[str, Any]:
    """asyncpg's options of a connection, besides its address."""
    return {
        "ssl": _tls_context(server.tls),
        "timeout": server.timeout,
        "server_settings": {"application_name": _APPLICATION},
    }


def _tls_context(tls: Tls | None) -> ssl.SSLContext | str | bool:
    if tls is None:
        return "prefer"
    if tls.mode is TlsMode.DISABLE:
        return False
    context = ssl.create_default_context(cafile=str(tls.ca) if tls.ca else None)
    if tls.mode is TlsMode.REQUIRE:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if tls.cert is not None:
        context.load_cert_chain(tls.cert, tls.key)
    return context
