"""Admins and tokens of the admin API in the database."""

from __future__ import annotations

from dataclasses import asdict

from sqlalchemy import Connection, Executable, delete, insert, select, update

from gateway.store.database import Reader, Writer
from gateway.store.records import Admin, AdminToken, Role, Scope
from gateway.store.schema import admin_tokens, admins


async def all_admins(database: Reader) -> list[Admin]:
    """By name."""
    async with database.reader.connect() as connection:
        rows = await connection.execute(select(admins).order_by(admins.c.name))
        return [Admin(**dict(row._mapping) | {"role": Role(row.role)}) for row in rows]


async def put_admin(database: Writer, admin: Admin) -> None:
    """Add the admin, or change everything of the one of that name."""

    def put(connection: Connection) -> None:
        connection.execute(delete(admins).where(admins.c.name == admin.name))
        connection.execute(insert(admins).values(asdict(admin)))

    await database.write(put)


async def remove_admin(database: Writer, name: str) -> None:
    await _execute(database, delete(admins).where(admins.c.name == name))


async def all_tokens(database: Reader) -> list[AdminToken]:
    """Oldest first."""
    query = select(admin_tokens).order_by(admin_tokens.c.created_at, admin_tokens.c.id)
    async with database.reader.connect() as connection:
        rows = await connection.execute(query)
        return [AdminToken(**dict(row._mapping) | {"scope": Scope(row.scope)}) for row in rows]


async def add_token(database: Writer, token: AdminToken) -> None:
    await _execute(database, insert(admin_tokens).values(asdict(token)))


async def touch_token(database: Writer, token: AdminToken) -> None:
    """Save the last use."""
    used = {"last_used_at": token.last_used_at, "last_address": token.last_address}
    changed = update(admin_tokens).where(admin_tokens.c.id == token.id).values(used)
    await _execute(database, changed)


async def remove_token(database: Writer, token_id: str) -> None:
    await _execute(database, delete(admin_tokens).where(admin_tokens.c.id == token_id))


async def _execute(database: Writer, statement: Executable) -> None:
    def work(connection: Connection) -> None:
        connection.execute(statement)

    await database.write(work)
