"""What alerts have announced and still have to deliver, over a restart: one row of `settings`."""

from __future__ import annotations

from typing import Any, Final

import orjson
from sqlalchemy import Connection, delete, insert, select

from gateway.store.database import Database
from gateway.store.schema import settings

_SETTING: Final = "alerts"


async def load_alerts(database: Database) -> dict[str, Any]:
    """What `save_alerts` has stored; empty if it was never called or cannot be read."""
    query = select(settings.c.value).where(settings.c.name == _SETTING)
    async with database.reader.connect() as connection:
        text = await connection.scalar(query)
    try:
        state = orjson.loads(text or "{}")
    except orjson.JSONDecodeError:
        return {}
    return state if isinstance(state, dict) else {}


async def save_alerts(database: Database, state: dict[str, Any]) -> None:
    """Replaces what is stored. Errors are those of the database."""
    text = orjson.dumps(state).decode()

    def replace(connection: Connection) -> None:
        connection.execute(delete(settings).where(settings.c.name == _SETTING))
        connection.execute(insert(settings).values(name=_SETTING, value=text))

    await database.write(replace)
