"""Admins and tokens in the ledger, and the password of earlier releases."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.admin.access.passwords import hash_password, verify_password
from gateway.store import access as store
from gateway.store.database import Database
from gateway.store.migrations import MIGRATIONS, migrate
from gateway.store.open import open_database
from gateway.store.records import Admin, AdminToken, Role, Scope
from gateway.store.sqlite.database import SqliteDatabase
from tests.support.databases import raw_connection

NOW = 1_790_000_000_000_000
PASSWORD = "correct horse battery"


def admin(name: str) -> Admin:
    return Admin(name, Role.VIEWER, "digest", "epoch", NOW, NOW)


def token(number: int) -> AdminToken:
    return AdminToken(
        *(f"adt_{number}", f"name {number}", bytes([number]) * 32, "gwa_…"),
        *(Scope.KEYS, NOW + number, "gateway"),
    )


async def test_admins(database: Database) -> None:
    known: list[Mapping[str, Admin]] = []

    async def put(name: str, changed: Admin | None) -> None:
        def change(admins: Mapping[str, Admin]) -> Admin | None:
            known.append(admins)
            return changed

        assert await store.change_admin(database, name, change) == changed

    await put("b", admin("b"))
    await put("a", admin("a"))
    assert await store.all_admins(database) == [admin("a"), admin("b")]
    changed = replace(admin("a"), role=Role.ADMIN, password_digest="other")
    await put("a", changed)
    await put("b", None)
    assert await store.all_admins(database) == [changed]
    both = {"a": admin("a"), "b": admin("b")}
    assert known == [{}, {"b": admin("b")}, both, both | {"a": changed}]


async def test_a_refused_change_changes_nothing(database: Database) -> None:
    await store.change_admin(database, "a", lambda _: admin("a"))

    def refuse(_: object) -> None:
        raise LookupError

    with pytest.raises(LookupError):
        await store.change_admin(database, "a", refuse)
    assert await store.all_admins(database) == [admin("a")]


async def test_tokens(database: Database) -> None:
    for number in (2, 1):
        await store.add_token(database, token(number))
    assert await store.all_tokens(database) == [token(1), token(2)]
    used = replace(token(1), last_used_at=7, last_address="::1")
    await store.touch_token(database, used)
    await store.remove_token(database, "adt_2")
    assert await store.all_tokens(database) == [used]


@pytest.mark.sqlite
async def test_the_one_password_becomes_that_of_the_admin(path: Path) -> None:
    before = next(n for n, sql in enumerate(MIGRATIONS) if "CREATE TABLE admins" in sql)
    writer = SqliteDatabase(path)
    await migrate(writer, NOW, MIGRATIONS[:before])
    with raw_connection(path) as connection:
        connection.execute(
            "INSERT INTO settings VALUES ('admin_password', ?)", (hash_password(PASSWORD),)
        )
        connection.execute("INSERT INTO sessions VALUES (x'00', 1, 2, 'address', 'agent')")
    await writer.close()
    database = await open_database(path)
    (migrated,) = await store.all_admins(database)
    assert (migrated.name, migrated.role) == ("admin", Role.ADMIN)
    assert verify_password(PASSWORD, migrated.password_digest)
    with raw_connection(path) as connection:
        assert connection.execute("SELECT count(*) FROM sessions").fetchone() == (0,)
        stored = connection.execute("SELECT name FROM settings").fetchall()
    assert ("admin_password",) not in stored
    await database.close()


async def test_without_a_password_there_is_no_admin(database: Database) -> None:
    assert await store.all_admins(database) == []
