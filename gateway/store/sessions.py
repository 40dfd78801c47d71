"""Console sessions in the database."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import asdict

from sqlalchemy import Connection, Executable, delete, insert, select, update

from gateway.store.database import Reader, Writer
from gateway.store.records import SessionRow
from gateway.store.schema import sessions


async def all_sessions(database: Reader) -> list[SessionRow]:
    """Every session, ended ones included, oldest first."""
    query = select(sessions).order_by(sessions.c.created_at, sessions.c.digest)
    async with database.reader.connect() as connection:
        return [SessionRow(*row) for row in await connection.execute(query)]


async def sessions_by_digest(database: Reader, digests: Collection[bytes]) -> list[SessionRow]:
    """Those of these digests that there are."""
    query = select(sessions).where(sessions.c.digest.in_(digests))
    async with database.reader.connect() as connection:
        return [SessionRow(*row) for row in await connection.execute(query)]


async def add_session(database: Writer, session: SessionRow, ended: Iterable[bytes] = ()) -> None:
    """Add a session and remove the ended ones."""
    await _execute(
        database,
        delete(sessions).where(sessions.c.digest.in_(list(ended))),
        insert(sessions).values(asdict(session)),
    )


async def touch_session(database: Writer, digest: bytes, seen_at: int) -> None:
    changed = update(sessions).where(sessions.c.digest == digest).values(seen_at=seen_at)
    await _execute(database, changed)


async def remove_session(database: Writer, digest: bytes) -> None:
    await _execute(database, delete(sessions).where(sessions.c.digest == digest))


async def remove_all_sessions(database: Writer) -> None:
    await _execute(database, delete(sessions))


async def _execute(database: Writer, *statements: Executable) -> None:
    def work(connection: Connection) -> None:
        for statement in statements:
            connection.execute(statement)

    await database.write(work)
