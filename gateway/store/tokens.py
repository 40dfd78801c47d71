"""Tokens and groups in the database: loaded at the start, changed by admin operations.

The totals of tokens change in the recorder's transactions, never here. Lists are stored as JSON.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict
from typing import Any, Final, NamedTuple, TypeVar

import orjson
from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    and_,
    delete,
    exists,
    func,
    insert,
    or_,
    select,
    true,
    update,
)

from gateway.core.limits import DIMENSION_BUDGETS, LIMIT_NAMES, Limits
from gateway.store.database import Database, Reader, Writer, fetch, fetch_one
from gateway.store.errors import GroupInUse, TokenExists, UnknownGroup
from gateway.store.records import Group, OnSharedLoss, Token, TokenState, UserAgentMode
from gateway.store.schema import groups, tokens

_LISTS: Final = ("patterns", "models", "addresses", "user_agents", "trust")
_ENUMS: Final = {
    "state": TokenState,
    "user_agent_mode": UserAgentMode,
    "on_shared_loss": OnSharedLoss,
}

_SETTABLE: Final = (
    *("name", "digest", "display", "group", "state", "revoked_at", "note", "expires_at", "probe"),
    *("models", "addresses", "user_agents", *LIMIT_NAMES),
    *("old_digest", "old_display", "old_expires_at", "let_run", "trust", "cost_in_usage"),
    *DIMENSION_BUDGETS,
)
"""The columns of a token that an operator may set; the others record what happened."""

_MAX_IDS: Final = 500
"""Maximum number of ids in one query."""
_BATCH: Final = 200
"""Tokens that are read at once: requests run between two batches, each of which takes 5 ms."""

R = TypeVar("R", Token, Group)


def _to_columns(record: Token | Group) -> dict[str, Any]:
    columns = asdict(record)
    columns |= columns.pop("limits")
    for name in _LISTS:
        if columns.get(name) is not None:
            columns[name] = orjson.dumps(columns[name]).decode()
    return columns


def _from_row(record: type[R], row: Row[Any]) -> R:
    fields = dict(row._mapping)
    fields["limits"] = Limits(**{name: fields.pop(name) for name in LIMIT_NAMES})
    for name in _LISTS:
        if fields.get(name) is not None:
            fields[name] = tuple(orjson.loads(fields[name]))
    for name, enum in _ENUMS.items():
        if name in fields:
            fields[name] = enum(fields[name])
    return record(**fields)


class TokenPage(NamedTuple):
    """Page `number` of `pages`, from 1 on, of all `matches`; `total` and `revoked` count tokens."""

    tokens: list[Token]
    number: int
    pages: int
    matches: int
    total: int
    revoked: int


async def all_tokens(
    database: Reader,
    *,
    named: str | None = None,
    group: str | None = None,
    limit: int | None = None,
) -> list[Token]:
    """Tokens, revoked ones too, oldest first: those with this id or name, of this group, and no
    more than `limit`."""
    row, conditions = tokens.c, []
    if named is not None:
        conditions.append(or_(row.id == named, row.name == named))
    if group is not None:
        conditions.append(row.group == group)
    query = select(tokens).where(*conditions).order_by(row.created_at, row.id).limit(limit)
    found: list[Token] = []
    async with database.reader.connect() as connection:
        async for rows in (await connection.stream(query)).partitions(_BATCH):
            found += [_from_row(Token, row) for row in rows]
    return found


async def search_tokens(
    database: Reader, text: str, *, with_revoked: bool, number: int, size: int
) -> TokenPage:
    """The tokens with this text in name, group, id or displayed key, sorted by name: that page of
    `size`, or the last one."""
    row, is_revoked = tokens.c, tokens.c.state == TokenState.REVOKED
    places = (row.name, row.group, row.id, row.display)
    found_in = or_(*(place.icontains(text, autoescape=True) for place in places))
    matches = found_in if text else true()
    if not with_revoked:
        matches = and_(matches, ~is_revoked)
    number_of = func.count()
    counts = select(number_of, number_of.filter(is_revoked), number_of.filter(matches))
    query = select(tokens).where(matches).order_by(func.lower(row.name), row.created_at)
    async with database.reader.connect() as connection:
        counted = await connection.execute(counts.select_from(tokens))
        total, revoked, count = counted.one()
        pages = max(1, -(-count // size))
        number = min(number, pages)
        found = await connection.execute(query.limit(size).offset((number - 1) * size))
        page = [_from_row(Token, row) for row in found]
    return TokenPage(page, number, pages, count, total, revoked)


async def count_by_group(database: Reader, *, with_revoked: bool = False) -> dict[str, int]:
    """Counts the tokens of each group that has any."""
    query = select(tokens.c.group, func.count()).group_by(tokens.c.group)
    if not with_revoked:
        query = query.where(tokens.c.state != TokenState.REVOKED)
    return {group: count for group, count in await fetch(database, query)}


async def tokens_by_id(database: Reader, ids: Sequence[str]) -> list[Token]:
    """Returns the tokens that exist with these ids."""
    found: list[Token] = []
    async with database.reader.connect() as connection:
        for start in range(0, len(ids), _MAX_IDS):
            query = select(tokens).where(tokens.c.id.in_(ids[start : start + _MAX_IDS]))
            found += [_from_row(Token, row) for row in await connection.execute(query)]
    return found


async def expiring_tokens(
    database: Reader, since: int, until: int, limit: int
) -> tuple[list[str], int]:
    """Returns the names of the active tokens that expire in a span of Unix µs, the next ones first,
    up to a limit, and how many there are."""
    conditions = (
        tokens.c.state == TokenState.ACTIVE,
        tokens.c.expires_at >= since,
        tokens.c.expires_at < until,
    )
    names = select(tokens.c.name).where(*conditions).order_by(tokens.c.expires_at).limit(limit)
    async with database.reader.connect() as connection:
        count = await connection.scalar(select(func.count()).where(*conditions))
        found = (await connection.scalars(names)).all() if count else ()
    return list(found), count or 0


async def get_token(database: Database, token_id: str) -> Token | None:
    row = await fetch_one(database, select(tokens).where(tokens.c.id == token_id))
    return None if row is None else _from_row(Token, row)


async def tokens_by_digest(database: Database, digests: Collection[bytes]) -> list[Token]:
    """The tokens that have one of these digests, or had it before their key was rotated."""
    return [
        _from_row(Token, row)
        for row in await fetch(database, select(tokens).where(_has_digest(digests)))
    ]


async def add_token(database: Writer, token: Token) -> None:
    """Raises UnknownGroup, or TokenExists for an id or a digest that is taken."""
    await add_tokens(database, (token,))


async def add_tokens(database: Writer, added: Sequence[Token]) -> None:
    """Adds all tokens or none. Raises UnknownGroup, or TokenExists for an id or a digest that is
    taken, by one of them included."""
    conflicting = select(tokens.c.id, tokens.c.digest, tokens.c.old_digest).where(
        or_(
            tokens.c.id.in_([token.id for token in added]),
            _has_digest([digest for token in added for digest in _digests(token)]),
        )
    )

    def add(connection: Connection) -> None:
        names = set(connection.scalars(select(groups.c.name)))
        taken: set[str | bytes | None] = set()
        for row in connection.execute(conflicting):
            taken.update(row)
        for token in added:
            if token.group not in names:
                raise _unknown_group(token)
            if not taken.isdisjoint((token.id, *_digests(token))):
                raise _token_exists(token)
            taken.update((token.id, *_digests(token)))
        if added:
            connection.execute(insert(tokens), list(map(_to_columns, added)))

    await database.write(add)


async def update_token(database: Writer, token: Token, before: Token | None = None) -> Token | None:
    """Set what an operator may set of the token of that id, and only what differs from `before`:
    another replica may have changed the rest, such as revoked it. Totals, first use and changes of
    clients stay. The token as it is then; None if there is no such token. Raises UnknownGroup,
    or TokenExists for a digest that another token has, or had before its key was rotated.
    """
    columns = _to_columns(token)
    earlier = {} if before is None else _to_columns(before)
    changes = {
        name: columns[name]
        for name in _SETTABLE
        if name not in earlier or earlier[name] != columns[name]
    }

    of_token = tokens.c.id == token.id

    def change(connection: Connection) -> Token | None:
        if not connection.scalar(select(exists().where(groups.c.name == token.group))):
            raise _unknown_group(token)
        taken = exists().where(_has_digest(_digests(token)), ~of_token)
        if connection.scalar(select(taken)):
            raise _token_exists(token)
        connection.execute(update(tokens).where(of_token).values(changes or {"id": token.id}))
        row = connection.execute(select(tokens).where(of_token)).one_or_none()
        return None if row is None else _from_row(Token, row)

    return await database.write(change)


async def record_origin(
    database: Database,
    token_id: str,
    *,
    first: tuple[int, str | None, str | None] | None = None,
    changed: tuple[int, str] | None = None,
) -> None:
    """Store who used the token: `first` (Unix µs, address, user agent) unless one is stored,
    `changed` (Unix µs, a description) instead of an earlier one."""
    of_token = update(tokens).where(tokens.c.id == token_id)

    def store(connection: Connection) -> None:
        if first is not None:
            at, address, agent = first
            connection.execute(
                of_token.where(tokens.c.first_used_at.is_(None)).values(
                    first_used_at=at, first_address=address, first_agent=agent
                )
            )
        if changed is not None:
            connection.execute(of_token.values(changed_at=changed[0], changed=changed[1]))

    await database.write(store)


def _has_digest(digests: Collection[bytes]) -> ColumnElement[bool]:
    return or_(tokens.c.digest.in_(digests), tokens.c.old_digest.in_(digests))


def _digests(token: Token) -> list[bytes]:
    return [digest for digest in (token.digest, token.old_digest) if digest is not None]


def _unknown_group(token: Token) -> UnknownGroup:
    return UnknownGroup(f"there is no group '{token.group}'")


def _token_exists(token: Token) -> TokenExists:
    return TokenExists(f"a token with the id or the key of '{token.name}' exists already")


async def all_groups(database: Reader) -> list[Group]:
    """Returns every group, by name."""
    return [
        _from_row(Group, row)
        for row in await fetch(database, select(groups).order_by(groups.c.name))
    ]


async def put_group(database: Writer, group: Group, before: Group | None = None) -> Group:
    """Add the group, or change of the one of that name what differs from `before`; without it,
    everything but `created_at`. The group as it is then."""
    columns = _to_columns(group)
    earlier = {} if before is None else _to_columns(before)
    changes = {
        name: columns[name]
        for name in columns
        if name != "created_at" and (name not in earlier or earlier[name] != columns[name])
    } or {"name": group.name}

    of_group = groups.c.name == group.name

    def put(connection: Connection) -> Group:
        if connection.execute(update(groups).where(of_group).values(changes)).rowcount == 0:
            connection.execute(insert(groups).values(columns))
        return _from_row(Group, connection.execute(select(groups).where(of_group)).one())

    return await database.write(put)


async def remove_group(database: Writer, name: str) -> bool:
    """Removes a group; False if there is no such group. Raises GroupInUse while a token names
    it."""

    def remove(connection: Connection) -> bool:
        if connection.scalar(select(exists().where(tokens.c.group == name))):
            raise GroupInUse(f"tokens use the group '{name}': they would lose their models")
        return connection.execute(delete(groups).where(groups.c.name == name)).rowcount == 1

    return await database.write(remove)
