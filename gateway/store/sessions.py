"""Who has signed in, and the password that it takes. This room must not know a cookie, nor how a
password is checked: both arrive as digests.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass

from sqlalchemy import Connection, delete, insert, select, update

from gateway.store.database import Database
from gateway.store.schema import sessions, settings

_PASSWORD = "admin_password"  # noqa: S105  # the name of a setting


@dataclass(frozen=True, slots=True)
class SessionRow:
    """A session as it is kept: `digest` is the SHA-256 of its id, times are Unix microseconds."""

    digest: bytes
    created_at: int
    seen_at: int
    address: str
    agent: str


async def all_sessions(database: Database) -> list[SessionRow]:
    """Every session, those that are over included, oldest first."""
    query = select(sessions).order_by(sessions.c.created_at, sessions.c.digest)
    async with database.reader.connect() as connection:
        result = await connection.execute(query)
    return [SessionRow(**row) for row in result.mappings()]


async def add_session(
    database: Database, session: SessionRow, expired: Iterable[bytes] = ()
) -> None:
    """Add a session, and forget those that are over."""
    gone = list(expired)

    def add(connection: Connection) -> None:
        if gone:
            connection.execute(delete(sessions).where(sessions.c.digest.in_(gone)))
        connection.execute(insert(sessions).values(asdict(session)))

    await database.write(add)


async def touch_session(database: Database, digest: bytes, seen_at: int) -> None:
    seen = update(sessions).where(sessions.c.digest == digest).values(seen_at=seen_at)
    await database.write(lambda connection: connection.execute(seen) and None)


async def remove_session(database: Database, digest: bytes) -> None:
    gone = delete(sessions).where(sessions.c.digest == digest)
    await database.write(lambda connection: connection.execute(gone) and None)


async def remove_all_sessions(database: Database) -> None:
    """All of them."""
    await database.write(lambda connection: connection.execute(delete(sessions)) and None)


async def get_password_digest(database: Database) -> str | None:
    """The digest of the password, in the words of whoever made it; None until one is set."""
    query = select(settings.c.value).where(settings.c.name == _PASSWORD)
    async with database.reader.connect() as connection:
        value: str | None = await connection.scalar(query)
    return value


async def set_password_digest(database: Database, digest: str) -> None:
    """Put the password in the place of any other, and forget all sessions, in one transaction."""

    def put(connection: Connection) -> None:
        connection.execute(delete(settings).where(settings.c.name == _PASSWORD))
        connection.execute(insert(settings).values(name=_PASSWORD, value=digest))
        connection.execute(delete(sessions))

    await database.write(put)
