"""Admins and tokens of the admin API in the database."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from sqlalchemy import Connection, Executable, Row, delete, insert, select, update

from gateway.store.database import Reader, Writer
from gateway.store.records import Admin, AdminToken, Role, Scope
from gateway.store.schema import admin_tokens, admins


async def all_admins(database: Reader) -> list[Admin]:
    """By name."""
    async with database.reader.connect() as connection:
        rows = await connection.execute(select(admins).order_by(admins.c.name))
        return list(map(_admin, rows))


async def change_admin(
    database: Writer, name: str, change: Callable[[Mapping[str, Admin]], Admin | None]
) -> Admin | None:
    """Put what `change` makes of all admins, by name, in the place of the one of that name; None
    removes it. It gets them as they are, and nobody else, on another replica neither, changes one
    until it is done. What it raises is raised, and nothing is changed."""

    def work(connection: Connection) -> Admin | None:
        database.lock_table(connection, admins)
        known = {admin.name: admin for admin in map(_admin, connection.execute(select(admins)))}
        changed = change(known)
        of_name = admins.c.name == name
        if changed is None:
            connection.execute(delete(admins).where(of_name))
        elif name in known:
            connection.execute(update(admins).where(of_name).values(asdict(changed)))
        else:
            connection.execute(insert(admins).values(asdict(changed)))
        return changed

    return await database.write(work)


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


def _admin(row: Row[Any]) -> Admin:
    return Admin(**dict(row._mapping) | {"role": Role(row.role)})


async def _execute(database: Writer, statement: Executable) -> None:
    def work(connection: Connection) -> None:
        connection.execute(statement)

    await database.write(work)
