"""Rows of what operators and alerts have set: disabled accounts, announced alerts."""

from __future__ import annotations

from secrets import token_bytes
from typing import Any, Final, NamedTuple

import orjson
from sqlalchemy import Connection, delete, insert, select, update

from gateway.store.database import Database, Reader, Writer, execute, fetch, fetch_value
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
    rows = await fetch(database, query)
    return {
        (channel, account): Disabling(**orjson.loads(value))
        for name, value in rows
        for channel, account in (orjson.loads(name.removeprefix(_PREFIX)),)
    }


async def add_disabled(writer: Writer, ref: AccountRef, disabling: Disabling) -> None:
    """Adds a disabled account, also if another replica has just disabled it."""
    value = orjson.dumps(disabling._asdict()).decode()
    await _replace(writer, _name(ref), value)


async def remove_disabled(writer: Writer, ref: AccountRef) -> None:
    await execute(writer, delete(settings).where(settings.c.name == _name(ref)))


async def _replace(writer: Writer, name: str, value: str) -> None:
    await execute(
        writer,
        delete(settings).where(settings.c.name == name),
        insert(settings).values(name=name, value=value),
    )


def _name(ref: AccountRef) -> str:
    return sanitize_text(_PREFIX + orjson.dumps(ref).decode())


def put_setting(connection: Connection, name: str, value: str) -> None:
    """Stores a value in place of the one that is there, if any."""
    changed = update(settings).where(settings.c.name == name).values(value=value)
    if not connection.execute(changed).rowcount:
        connection.execute(insert(settings).values(name=name, value=value))


def raise_setting(connection: Connection, name: str, value: int) -> None:
    """Stores a number, unless the one that is there is as great."""
    stored = connection.scalar(select(settings.c.value).where(settings.c.name == name))
    if stored is None or int(stored) < value:
        put_setting(connection, name, str(value))


_SETTING: Final = "alerts"


async def load_alerts(database: Database) -> dict[str, Any]:
    """Returns what `save_alerts` has stored; empty if it was never called or cannot be read."""
    query = select(settings.c.value).where(settings.c.name == _SETTING)
    try:
        state = orjson.loads(await fetch_value(database, query) or "{}")
    except orjson.JSONDecodeError:
        return {}
    return state if isinstance(state, dict) else {}


async def save_alerts(database: Database, state: dict[str, Any]) -> None:
    """Replaces what is stored. Errors are those of the database."""
    await _replace(database, _SETTING, orjson.dumps(state).decode())


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
