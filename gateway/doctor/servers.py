"""The database server and the shared state of several replicas: can they be reached and used."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

from sqlalchemy import Connection, text
from sqlalchemy.exc import SQLAlchemyError

from gateway.config.cluster import DatabaseServer, SharedServer
from gateway.config.document import ConfigError
from gateway.config.load import find_servers
from gateway.doctor.findings import Area, Finding
from gateway.store.errors import NewerSchema, StoreError
from gateway.store.migrations import MIGRATIONS, POSTGRESQL, read_version

_TIMEOUT: Final = 15.0
_REMEDY: Final = "correct `database` or `shared` in the configuration, or the server"


def check_servers(file: Path | None) -> tuple[list[Finding], bool]:
    """The findings, and whether the database is on a server. Nothing is migrated."""
    area = Area("servers")
    try:
        database, shared = find_servers(file)
    except ConfigError as error:
        remedy = "as a service, start it and run this command with its environment"
        area.warn("servers", f"not checked: {error}", remedy)
        return area.findings, False
    if database is not None:
        asyncio.run(_check_database(area, database))
    if shared is not None:
        asyncio.run(_check_shared(area, shared))
    return area.findings, database is not None


async def _check_database(area: Area, server: DatabaseServer) -> None:
    from gateway.store.postgresql.database import PostgresqlDatabase

    address = server.address
    place = f"{address.host}:{address.port}/{address.name}"
    try:
        database = PostgresqlDatabase(server)
        try:
            async with asyncio.timeout(_TIMEOUT):
                await database.check()
                version, schema = await database.write(_facts)
        finally:
            await database.close()
    except NewerSchema as error:
        area.problem("schema", str(error), "start the newer release")
    except (StoreError, SQLAlchemyError, OSError) as error:
        area.problem(place, str(error) or "it does not answer in time", _REMEDY)
    else:
        area.ok(place, f"PostgreSQL {version}")
        _check_schema(area, schema)


def _check_schema(area: Area, schema: int) -> None:
    newest = len(MIGRATIONS)
    if schema < newest:
        remedy = "nothing to do; docs/scaling.md says how a release is rolled out"
        area.warn("schema", f"{schema}: the next start migrates to {newest}", remedy)
    else:
        area.ok("schema", str(schema))


def _facts(connection: Connection) -> tuple[str, int]:
    version = connection.scalar(text("SHOW server_version"))
    return str(version), read_version(connection, POSTGRESQL, len(MIGRATIONS))


async def _check_shared(area: Area, server: SharedServer) -> None:
    from gateway.fleet.valkey.connection import Connection as SharedConnection
    from gateway.fleet.valkey.errors import SharedError

    place = f"{server.address.host}:{server.address.port}"
    connection = SharedConnection(server, "doctor")
    try:
        async with asyncio.timeout(_TIMEOUT):
            await connection.open()
        area.ok(place, "Valkey answers, evicts nothing and can be written to")
    except (SharedError, OSError) as error:
        area.problem(place, str(error) or "it does not answer in time", _REMEDY)
    finally:
        await connection.close()
