"""Groups in the database: read whole at start, changed through the daemon.

This room must not know what a pattern matches.
"""

from __future__ import annotations

import orjson
from sqlalchemy import Connection, delete, exists, insert, select, update

from gateway.store.database import Database
from gateway.store.errors import GroupInUse
from gateway.store.records import Group
from gateway.store.schema import groups, tokens


async def all_groups(database: Database) -> list[Group]:
    """Every group, by name."""
    async with database.reader.connect() as connection:
        result = await connection.execute(select(groups).order_by(groups.c.name))
    return [Group(row.name, tuple(orjson.loads(row.patterns)), row.created_at) for row in result]


async def put_group(database: Database, group: Group) -> None:
    """Add the group, or give the one of that name other patterns; it keeps its `created_at`."""
    fields = {"patterns": orjson.dumps(group.patterns).decode()}

    def put(connection: Connection) -> None:
        changed = update(groups).where(groups.c.name == group.name).values(fields)
        if connection.execute(changed).rowcount == 0:
            added = {"name": group.name, "created_at": group.created_at}
            connection.execute(insert(groups).values(fields | added))

    await database.write(put)


async def remove_group(database: Database, name: str) -> bool:
    """False where there is no such group. Raises GroupInUse while a token names it."""

    def remove(connection: Connection) -> bool:
        if connection.scalar(select(exists().where(tokens.c.group == name))):
            raise GroupInUse(f"tokens use the group '{name}': they would lose their models")
        return connection.execute(delete(groups).where(groups.c.name == name)).rowcount == 1

    return await database.write(remove)
