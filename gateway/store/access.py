"""Rows of admins and of their sessions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import asdict
from typing import Any

from sqlalchemy import Connection, Row, delete, insert, select, update

from gateway.store.database import Reader, Writer, execute, fetch
from gateway.store.records import Admin, AdminToken, Role, Scope, SessionRow
from gateway.store.schema import admin_tokens, admins, sessions


async def all_sessions(database: Reader) -> list[SessionRow]:
    """Returns every session, ended ones included, oldest first."""
    query = select(sessions).order_by(sessions.c.created_at, sessions.c.digest)
    return [SessionRow(*row) for row in await fetch(database, query)]


async def sessions_by_digest(database: Reader, digests: Collection[bytes]) -> list[SessionRow]:
    """Returns the sessions that exist with these digests."""
    query = select(sessions).where(sessions.c.digest.in_(digests))
    return [SessionRow(*row) for row in await fetch(database, query)]


async def add_session(database: Writer, session: SessionRow, ended: Iterable[bytes] = ()) -> None:
    """Add a session and remove the ended ones."""
    await execute(
        database,
        delete(sessions).where(sessions.c.digest.in_(list(ended))),
        insert(sessions).values(asdict(session)),
    )


async def touch_session(database: Writer, digest: bytes, seen_at: int) -> None:
    changed = update(sessions).where(sessions.c.digest == digest).values(seen_at=seen_at)
    await execute(database, changed)


async def remove_session(database: Writer, digest: bytes) -> None:
    await execute(database, delete(sessions).where(sessions.c.digest == digest))


async def remove_all_sessions(database: Writer) -> None:
    await execute(database, delete(sessions))


async def all_admins(database: Reader) -> list[Admin]:
    """Returns all admins by name."""
    return [*map(_admin, await fetch(database, select(admins).order_by(admins.c.name)))]


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
    """Returns all tokens, oldest first."""
    query = select(admin_tokens).order_by(admin_tokens.c.created_at, admin_tokens.c.id)
    rows = await fetch(database, query)
    return [AdminToken(**dict(row._mapping) | {"scope": Scope(row.scope)}) for row in rows]


async def add_token(database: Writer, token: AdminToken) -> None:
    await execute(database, insert(admin_tokens).values(asdict(token)))


async def touch_token(database: Writer, token: AdminToken) -> None:
    """Save the last use."""
    used = {"last_used_at": token.last_used_at, "last_address": token.last_address}
    changed = update(admin_tokens).where(admin_tokens.c.id == token.id).values(used)
    await execute(database, changed)


async def remove_token(database: Writer, token_id: str) -> None:
    await execute(database, delete(admin_tokens).where(admin_tokens.c.id == token_id))


def _admin(row: Row[Any]) -> Admin:
    return Admin(**dict(row._mapping) | {"role": Role(row.role)})
