"""A PostgreSQL server as database, through asyncpg."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import asyncpg
from sqlalchemy import URL, Connection
from sqlalchemy.engine.interfaces import DBAPICursor
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import create_async_engine

from gateway.config.cluster import DatabaseServer
from gateway.store.database import Database, driver_cursor
from gateway.store.errors import StoreError
from gateway.store.server_connection import connect, connect_options, password_of
from gateway.store.server_writer import ServerWriter

T = TypeVar("T")


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

    def entry_writer(self, boot_id: str) -> ServerWriter:
        return ServerWriter(self.server, boot_id)

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


class SingleReader:
    """One connection that reads, past those of requests. Raises at its first use."""

    def __init__(self, server: DatabaseServer) -> None:
        arguments = connect_options(server) | {"command_timeout": server.timeout}
        self.reader = create_async_engine(
            _url(server),
            pool_size=1,
            max_overflow=0,
            pool_pre_ping=True,
            pool_timeout=server.timeout,
            hide_parameters=True,
            connect_args=arguments,
            execution_options={"postgresql_readonly": True},
        )

    async def close(self) -> None:
        await self.reader.dispose()


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
