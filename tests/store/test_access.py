"""Sessions in the ledger."""

from __future__ import annotations

from gateway.store.access import (
    add_session,
    all_sessions,
    remove_all_sessions,
    remove_session,
    touch_session,
)
from gateway.store.database import Database
from gateway.store.records import SessionRow


def visit(number: int) -> SessionRow:
    return SessionRow(
        bytes([number]) * 32, number, number + 1, "127.0.0.1", "browser", "admin", "epoch"
    )


async def test_sessions_exist_until_removed(database: Database) -> None:
    for number in (3, 1, 2):
        await add_session(database, visit(number))
    assert await all_sessions(database) == [visit(1), visit(2), visit(3)]
    await remove_session(database, visit(2).digest)
    assert await all_sessions(database) == [visit(1), visit(3)]
    await add_session(database, visit(4), ended=[visit(1).digest, visit(3).digest])
    assert await all_sessions(database) == [visit(4)]
    await remove_all_sessions(database)
    assert await all_sessions(database) == []


async def test_last_use(database: Database) -> None:
    await add_session(database, visit(1))
    await touch_session(database, visit(1).digest, 77)
    await touch_session(database, visit(2).digest, 78)
    (found,) = await all_sessions(database)
    assert found.seen_at == 77
