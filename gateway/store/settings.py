"""Rows of what operators and alerts have set: disabled accounts, announced alerts."""

from __future__ import annotations

from secrets import token_bytes
from typing import Any, Final, NamedTuple

import orjson
from sqlalchemy import Connection, delete, insert, select

from gateway.store.database import Database, Reader, Writer
from gateway.store.records import sanitize_text
from gateway.store.schema import settings

AccountRef = tuple[str, str]
"""The names of a channel and of one of its accounts."""

_PREFIX: Final = "disabled_account:"


class Disabling(NamedTuple):
    """The time (Unix µs) at which an account was disabled, and the actor of the audit log."""

    at: int
    by: str


async def load_disabled(database: Reader) -> dict[AccountRef, Disabling]:
    """Reads the disabled accounts, also accounts that the configuration does not have at the
    moment."""
    query = select(settings.c.name, settings.c.value).where(settings.c.name.startswith(_PREFIX))
    async with database.reader.connect() as connection:
        rows = (await connection.execute(query)).all()
    return {
        (channel, account): Disabling(**orjson.loads(value))
        for name, value in rows
        for channel, account in (orjson.loads(name.removeprefix(_PREFIX)),)
    }


async def add_disabled(writer: Writer, ref: AccountRef, disabling: Disabling) -> None:
    """Adds a disabled account, also if another replica has just disabled it."""
    value = orjson.dumps(disabling._asdict()).decode()
    row = {"name": _name(ref), "value": value}

    def add(connection: Connection) -> None:
        connection.execute(delete(settings).where(settings.c.name == row["name"]))
        connection.execute(insert(settings).values(row))

    await writer.write(add)


async def remove_disabled(writer: Writer, ref: AccountRef) -> None:
    statement = delete(settings).where(settings.c.name == _name(ref))
    await writer.write(lambda connection: connection.execute(statement))


def _name(ref: AccountRef) -> str:
    return sanitize_text(_PREFIX + orjson.dumps(ref).decode())


_SETTING: Final = "alerts"


async def load_alerts(database: Database) -> dict[str, Any]:
    """Returns what `save_alerts` has stored; empty if it was never called or cannot be read."""
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


async def load_secret(database: Database, name: str) -> bytes:
    """Returns the 32 bytes of the installation's secret of this name; the first call makes them."""
    query = select(settings.c.value).where(settings.c.name == name)

    def load(connection: Connection) -> bytes:
        database.lock_table(connection, settings)
        if (text := connection.scalar(query)) is None:
            text = token_bytes(32).hex()
            connection.execute(insert(settings).values(name=name, value=text))
        return bytes.fromhex(text)

    return await database.write(load)
