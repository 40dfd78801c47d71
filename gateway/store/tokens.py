"""Tokens in the database: read whole at start, changed through the daemon.

Their totals move in the recorder's transactions, never here. This room must not know a key.
"""

from __future__ import annotations

from dataclasses import asdict

from sqlalchemy import Connection, exists, insert, or_, select, update

from gateway.store.database import Database
from gateway.store.errors import TokenExists, UnknownGroup
from gateway.store.records import Token, TokenState
from gateway.store.schema import groups, tokens


async def all_tokens(database: Database) -> list[Token]:
    """Every token, revoked ones included, oldest first."""
    query = select(tokens).order_by(tokens.c.created_at, tokens.c.id)
    async with database.reader.connect() as connection:
        result = await connection.execute(query)
    return [Token(**{**row, "state": TokenState(row["state"])}) for row in result.mappings()]


async def add_token(database: Database, token: Token) -> None:
    """Raises UnknownGroup, or TokenExists for an id or a digest that is taken."""

    def add(connection: Connection) -> None:
        if not connection.scalar(select(exists().where(groups.c.name == token.group))):
            raise UnknownGroup(f"there is no group '{token.group}'")
        taken = or_(tokens.c.id == token.id, tokens.c.digest == token.digest)
        if connection.scalar(select(exists().where(taken))):
            raise TokenExists("a token with this id or this key exists already")
        connection.execute(insert(tokens).values(asdict(token)))

    await database.write(add)


async def revoke_token(database: Database, token_id: str, at: int) -> bool:
    """Revoke for good, at Unix µs `at`. False where it is unknown or was revoked before."""

    def revoke(connection: Connection) -> bool:
        active = (tokens.c.id == token_id, tokens.c.state == TokenState.ACTIVE)
        revoked = update(tokens).where(*active).values(state=TokenState.REVOKED, revoked_at=at)
        return connection.execute(revoked).rowcount == 1

    return await database.write(revoke)
