"""Console sessions and the digest of the console's password."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Final

from sqlalchemy import Connection, Executable, delete, insert, select, update

from gateway.store.database import Database
from gateway.store.records import SessionRow
from gateway.store.schema import sessions, settings

_SETTING: Final = "admin_password"


async def all_sessions(database: Database) -> list[SessionRow]:
    """Every session, expired ones included, oldest first."""
    query = select(sessions).order_by(sessions.c.created_at, sessions.c.digest)
    async with database.reader.connect() as connection:
        return [SessionRow(*row) for row in await connection.execute(query)]


async def add_session(
    database: Database, session: SessionRow, expired: Iterable[bytes] = ()
) -> None:
    """Add a session and remove the expired ones."""
    await _execute(
        database,
        delete(sessions).where(sessions.c.digest.in_(list(expired))),
        insert(sessions).values(asdict(session)),
    )


async def touch_session(database: Database, digest: bytes, seen_at: int) -> None:
    changed = update(sessions).where(sessions.c.digest == digest).values(seen_at=seen_at)
    await _execute(database, changed)


async def remove_session(database: Database, digest: bytes) -> None:
    await _execute(database, delete(sessions).where(sessions.c.digest == digest))


async def remove_all_sessions(database: Database) -> None:
    await _execute(database, delete(sessions))


async def get_password_digest(database: Database) -> str | None:
    """None until a password is set."""
    query = select(settings.c.value).where(settings.c.name == _SETTING)
    async with database.reader.connect() as connection:
        digest: str | None = await connection.scalar(query)
    return digest


async def set_password_digest(database: Database, digest: str) -> None:
    """Replace the password and remove all sessions, in one transaction."""
    await _execute(
        database,
        delete(settings).where(settings.c.name == _SETTING),
        insert(settings).values(name=_SETTING, value=digest),
        delete(sessions),
    )


async def _execute(database: Database, *statements: Executable) -> None:
    def work(connection: Connection) -> None:
        for statement in statements:
            connection.execute(statement)

    await database.write(work)
