"""Sessions and the password in the ledger."""

from __future__ import annotations

from gateway.store.database import Database
from gateway.store.sessions import (
    Visit,
    add_visit,
    all_visits,
    note_seen,
    read_password,
    remove_visit,
    remove_visits,
    set_password,
)


def visit(number: int) -> Visit:
    return Visit(bytes([number]) * 32, number, number + 1, "127.0.0.1", "browser")


async def test_what_is_added_is_there_until_it_is_removed(database: Database) -> None:
    for number in (3, 1, 2):
        await add_visit(database, visit(number))
    assert await all_visits(database) == [visit(1), visit(2), visit(3)]
    await remove_visit(database, visit(2).digest)
    assert await all_visits(database) == [visit(1), visit(3)]
    await add_visit(database, visit(4), over=[visit(1).digest, visit(3).digest])
    assert await all_visits(database) == [visit(4)]
    await remove_visits(database)
    assert await all_visits(database) == []


async def test_when_somebody_was_seen_last(database: Database) -> None:
    await add_visit(database, visit(1))
    await note_seen(database, visit(1).digest, 77)
    await note_seen(database, visit(2).digest, 78)
    (found,) = await all_visits(database)
    assert found.seen_at == 77


async def test_a_new_password_takes_the_sessions_with_it(database: Database) -> None:
    assert await read_password(database) is None
    for digest in ("one", "two"):
        await add_visit(database, visit(1))
        await set_password(database, digest)
        assert await read_password(database) == digest
        assert await all_visits(database) == []
