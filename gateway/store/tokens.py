"""How values that are more than one number or text stand in a row: lists as JSON, limits as six
columns of their names. It must not know whose row it is.

Tokens in the database: read whole at start, changed through the daemon.

Their totals move in the recorder's transactions, never here. This room must not know a key.

Groups in the database: read whole at start, changed through the daemon.

This room must not know what a pattern matches.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import orjson
from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    delete,
    exists,
    insert,
    or_,
    select,
    update,
)

from gateway.core.limits import LIMIT_NAMES, Limits
from gateway.store.database import Database
from gateway.store.errors import GroupInUse, TokenExists, UnknownGroup
from gateway.store.records import Group, Token, TokenState, UserAgentMode
from gateway.store.schema import groups, tokens


def to_columns(fields: Mapping[str, Any], lists: Iterable[str]) -> dict[str, Any]:
    """The fields of a record as its row has them; those of `lists` are tuples, or None."""
    columns = dict(fields)
    columns |= asdict(columns.pop("limits"))
    for name in lists:
        if columns[name] is not None:
            columns[name] = orjson.dumps(columns[name]).decode()
    return columns


def from_columns(columns: Mapping[Any, Any], lists: Iterable[str]) -> dict[str, Any]:
    """And back."""
    fields = dict(columns)
    fields["limits"] = Limits(**{name: fields.pop(name) for name in LIMIT_NAMES})
    for name in lists:
        if fields[name] is not None:
            fields[name] = tuple(orjson.loads(fields[name]))
    return fields


_TOKEN_LISTS = ("models", "addresses", "user_agents")

_SETTABLE = (
    "name",
    "digest",
    "display",
    "group",
    "state",
    "revoked_at",
    "note",
    "expires_at",
    "probe",
    *_TOKEN_LISTS,
    *LIMIT_NAMES,
    "old_digest",
    "old_display",
    "old_expires_at",
)
"""What an operator may set; the rest is what happened."""


async def all_tokens(database: Database) -> list[Token]:
    """Every token, revoked ones included, oldest first."""
    query = select(tokens).order_by(tokens.c.created_at, tokens.c.id)
    async with database.reader.connect() as connection:
        result = await connection.execute(query)
    return [_token(row) for row in result.mappings()]


async def get_token(database: Database, token_id: str) -> Token | None:
    async with database.reader.connect() as connection:
        result = await connection.execute(select(tokens).where(tokens.c.id == token_id))
    row = result.mappings().one_or_none()
    return None if row is None else _token(row)


async def tokens_by_digest(database: Database, digests: Collection[bytes]) -> list[Token]:
    """The tokens that have one of these digests, or had it before their key was rotated."""
    async with database.reader.connect() as connection:
        result = await connection.execute(select(tokens).where(_opened_by(digests)))
    return [_token(row) for row in result.mappings()]


async def add_token(database: Database, token: Token) -> None:
    """Raises UnknownGroup, or TokenExists for an id or a digest that is taken."""
    await add_tokens(database, (token,))


async def add_tokens(database: Database, added: Sequence[Token]) -> None:
    """All of them or none. Raises UnknownGroup, or TokenExists for an id or a digest that is
    taken, be it by another of them."""

    def add(connection: Connection) -> None:
        known = set(connection.scalars(select(groups.c.name)))
        ids: set[str] = set()
        digests: set[bytes | None] = set()
        for row in connection.execute(_like(added)):
            ids.add(row.id)
            digests |= {row.digest, row.old_digest}
        for token in added:
            if token.group not in known:
                raise _unknown_group(token)
            if token.id in ids or not digests.isdisjoint(_digests(token)):
                raise _exists(token)
            ids.add(token.id)
            digests.update(_digests(token))
        if added:
            connection.execute(insert(tokens), list(map(_columns, added)))

    await database.write(add)


async def update_token(database: Database, token: Token) -> bool:
    """Make the token of that id what an operator says of it; totals, first use and changes of
    users stay. False where there is none. Raises UnknownGroup, or TokenExists for a digest that
    another token has, or had before its key was rotated.
    """
    columns = _columns(token)
    fields = {name: columns[name] for name in _SETTABLE}

    def change(connection: Connection) -> bool:
        if not connection.scalar(select(exists().where(groups.c.name == token.group))):
            raise _unknown_group(token)
        taken = _opened_by(_digests(token))
        if connection.scalar(select(exists().where(taken, tokens.c.id != token.id))):
            raise _exists(token)
        changed = update(tokens).where(tokens.c.id == token.id).values(fields)
        return connection.execute(changed).rowcount == 1

    return await database.write(change)


async def record_origin(
    database: Database,
    token_id: str,
    *,
    first: tuple[int, str | None, str | None] | None = None,
    changed: tuple[int, str] | None = None,
) -> None:
    """Keep who came: `first` (Unix µs, address, user agent) where nobody came before, `changed`
    (Unix µs, in words) in the place of an earlier one."""
    of_token = update(tokens).where(tokens.c.id == token_id)

    def note(connection: Connection) -> None:
        if first is not None:
            at, address, agent = first
            connection.execute(
                of_token.where(tokens.c.first_used_at.is_(None)).values(
                    first_used_at=at, first_address=address, first_agent=agent
                )
            )
        if changed is not None:
            connection.execute(of_token.values(changed_at=changed[0], changed=changed[1]))

    await database.write(note)


def _columns(token: Token) -> dict[str, Any]:
    return to_columns({name: getattr(token, name) for name in token.__slots__}, _TOKEN_LISTS)


def _token(row: Mapping[Any, Any]) -> Token:
    fields = from_columns(row, _TOKEN_LISTS)
    return Token(**fields | {"state": TokenState(fields["state"])})


def _like(added: Sequence[Token]) -> Select[tuple[str, bytes, bytes | None]]:
    """The id and the digests of each token that has an id or a digest of these."""
    digests = [digest for token in added for digest in _digests(token)]
    same_id = tokens.c.id.in_([token.id for token in added])
    return select(tokens.c.id, tokens.c.digest, tokens.c.old_digest).where(
        or_(same_id, _opened_by(digests))
    )


def _opened_by(digests: Collection[bytes]) -> ColumnElement[bool]:
    return or_(tokens.c.digest.in_(digests), tokens.c.old_digest.in_(digests))


def _digests(token: Token) -> list[bytes]:
    return [digest for digest in (token.digest, token.old_digest) if digest is not None]


def _unknown_group(token: Token) -> UnknownGroup:
    return UnknownGroup(f"there is no group '{token.group}'")


def _exists(token: Token) -> TokenExists:
    return TokenExists(f"a token with the id or the key of '{token.name}' exists already")


_GROUP_LISTS = ("patterns", "user_agents")
_FIXED = ("name", "created_at")
"""What a group keeps as long as it lives."""


async def all_groups(database: Database) -> list[Group]:
    """Every group, by name."""
    async with database.reader.connect() as connection:
        result = await connection.execute(select(groups).order_by(groups.c.name))
    return [_group(row) for row in result.mappings()]


async def put_group(database: Database, group: Group) -> None:
    """Add the group, or change all of the one of that name but its `created_at`."""
    added = to_columns({name: getattr(group, name) for name in group.__slots__}, _GROUP_LISTS)
    fields = {name: value for name, value in added.items() if name not in _FIXED}

    def put(connection: Connection) -> None:
        changed = update(groups).where(groups.c.name == group.name).values(fields)
        if connection.execute(changed).rowcount == 0:
            connection.execute(insert(groups).values(added))

    await database.write(put)


async def remove_group(database: Database, name: str) -> bool:
    """False where there is no such group. Raises GroupInUse while a token names it."""

    def remove(connection: Connection) -> bool:
        if connection.scalar(select(exists().where(tokens.c.group == name))):
            raise GroupInUse(f"tokens use the group '{name}': they would lose their models")
        return connection.execute(delete(groups).where(groups.c.name == name)).rowcount == 1

    return await database.write(remove)


def _group(row: Mapping[Any, Any]) -> Group:
    fields = from_columns(row, _GROUP_LISTS)
    return Group(**fields | {"user_agent_mode": UserAgentMode(fields["user_agent_mode"])})
