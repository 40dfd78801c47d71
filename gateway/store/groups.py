"""Groups in the database: read whole at start, changed through the daemon.

This room must not know what a pattern matches.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, delete, exists, insert, select, update

from gateway.store.columns import to_columns, from_columns
from gateway.store.database import Database
from gateway.store.errors import GroupInUse
from gateway.store.records import UserAgentMode, Group
from gateway.store.schema import groups, tokens

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
