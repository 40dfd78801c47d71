"""Sessions: sign-in, timeouts, sign-out; a new password ends them."""

from __future__ import annotations

import asyncio
import hashlib
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.admin.sessions import IDLE_TIMEOUT, MAX_AGE, Session, Sessions
from gateway.store.database import Database
from gateway.store.sessions import all_sessions
from tests.console.browser import PASSWORD
from tests.support.ledger_template import open_ledger

MINUTE = 60 * 1_000_000


class Clock:
    """Unix microseconds that only a test moves."""

    def __init__(self) -> None:
        self.now = 1_700_000_000_000_000

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    database = await open_ledger(tmp_path / "ledger.db")
    yield database
    await database.close()


@pytest.fixture
async def sessions(database: Database, clock: Clock) -> AsyncIterator[Sessions]:
    sessions = await Sessions.load(database, clock)
    await sessions.set_password(PASSWORD)
    yield sessions
    await sessions.close()


async def begun(sessions: Sessions, instead_of: Session | None = None) -> tuple[str, Session]:
    id_ = await sessions.sign_in(PASSWORD, "127.0.0.1", "a browser", instead_of)
    assert id_ is not None
    session = sessions.find(id_)
    assert session is not None
    return id_, session


async def test_sign_in_needs_the_right_password(database: Database, clock: Clock) -> None:
    sessions = await Sessions.load(database, clock)
    assert not sessions.has_password
    for typed in ("", PASSWORD):
        assert await sessions.sign_in(typed, "127.0.0.1", "") is None
    assert await sessions.set_password(PASSWORD) == 0
    assert sessions.has_password
    assert await sessions.sign_in(PASSWORD[:-1], "127.0.0.1", "") is None
    assert await sessions.sign_in(PASSWORD, "127.0.0.1", "") is not None
    await sessions.close()


async def test_only_digests_of_ids_are_stored(sessions: Sessions, database: Database) -> None:
    id_, _ = await begun(sessions)
    other, _ = await begun(sessions)
    assert len(id_) == 43 and id_ != other  # 256 bits in base64
    digests = {visit.digest for visit in await all_sessions(database)}
    assert digests == {hashlib.sha256(each.encode()).digest() for each in (id_, other)}
    for wrong in (None, "", id_[:-1], id_.swapcase(), "\ud800"):
        assert sessions.find(wrong) is None


async def test_idle_sessions_end_after_half_an_hour(sessions: Sessions, clock: Clock) -> None:
    id_, session = await begun(sessions)
    for _ in range(3):
        clock.now += IDLE_TIMEOUT - 1
        assert sessions.find(id_) is session
        await sessions.touch(session)
    clock.now += IDLE_TIMEOUT
    assert sessions.find(id_) is None
    assert sessions.active() == []


async def test_sessions_end_after_twelve_hours(sessions: Sessions, clock: Clock) -> None:
    id_, session = await begun(sessions)
    end = clock.now + MAX_AGE
    while clock.now < end - 10 * MINUTE:
        clock.now += 10 * MINUTE
        await sessions.touch(session)
    clock.now = end - 1
    await sessions.touch(session)
    assert sessions.find(id_) is session
    clock.now = end
    assert sessions.find(id_) is None


async def test_sessions_survive_a_restart(
    sessions: Sessions, database: Database, clock: Clock
) -> None:
    id_, session = await begun(sessions)
    clock.now += 20 * MINUTE
    await sessions.touch(session)
    clock.now += 20 * MINUTE
    again = await Sessions.load(database, clock)
    (found,) = again.active()
    assert (found.address, found.agent) == ("127.0.0.1", "a browser")
    assert again.find(id_) is found
    clock.now += 10 * MINUTE
    assert again.find(id_) is None
    await again.close()


async def test_signing_in_again_replaces_the_session(
    sessions: Sessions, database: Database
) -> None:
    before, old = await begun(sessions)
    after, new = await begun(sessions, instead_of=old)
    assert sessions.find(before) is None
    assert sessions.find(after) is new
    assert len(await all_sessions(database)) == 1


async def test_expired_sessions_are_removed(
    sessions: Sessions, database: Database, clock: Clock
) -> None:
    await begun(sessions)
    await begun(sessions)
    clock.now += IDLE_TIMEOUT
    await begun(sessions)
    assert len(await all_sessions(database)) == 1


async def test_signing_out(sessions: Sessions, database: Database) -> None:
    id_, session = await begun(sessions)
    other, _ = await begun(sessions)
    await sessions.sign_out(session)
    assert sessions.find(id_) is None
    assert sessions.find(other) is not None
    assert len(await all_sessions(database)) == 1


async def test_all_sessions_can_be_ended(sessions: Sessions, database: Database) -> None:
    ids = [(await begun(sessions))[0] for _ in range(3)]
    assert await sessions.end_all() == 3
    assert [sessions.find(id_) for id_ in ids] == [None] * 3
    assert await all_sessions(database) == []
    assert await sessions.end_all() == 0
    await begun(sessions)


async def test_a_new_password_ends_all_sessions(
    sessions: Sessions, database: Database, clock: Clock
) -> None:
    ids = [(await begun(sessions))[0] for _ in range(2)]
    assert await sessions.set_password("another password") == 2
    assert [sessions.find(id_) for id_ in ids] == [None] * 2
    assert await all_sessions(database) == []
    assert await sessions.sign_in(PASSWORD, "127.0.0.1", "") is None
    again = await Sessions.load(database, clock)
    assert await again.sign_in("another password", "127.0.0.1", "") is not None
    await again.close()


async def test_a_sign_in_during_a_password_change_fails(
    sessions: Sessions,
) -> None:
    """Whichever comes first: no session of the old password outlives it."""
    ids = await asyncio.gather(
        sessions.sign_in(PASSWORD, "127.0.0.1", ""),
        sessions.set_password("another password"),
        sessions.sign_in(PASSWORD, "127.0.0.1", ""),
    )
    assert [sessions.find(each) for each in (ids[0], ids[2]) if isinstance(each, str)] in (
        [],
        [None],
    )
    assert sessions.active() == []


async def test_password_checks_do_not_block_the_loop(sessions: Sessions) -> None:
    """They are checked one after the other, and meanwhile everybody else is served."""
    longest, turns = 0.0, 0
    loop = asyncio.get_running_loop()
    tries = asyncio.gather(*(sessions.sign_in("wrong", "127.0.0.1", "") for _ in range(4)))
    begun = last = loop.time()
    while not tries.done():
        await asyncio.sleep(0.001)
        longest, last, turns = max(longest, loop.time() - last), loop.time(), turns + 1
    took = last - begun
    assert await tries == [None] * 4
    assert turns >= 20
    assert longest < took / 4, "the loop stood still for as long as a check takes"


async def test_a_locked_database_does_not_prevent_use(
    sessions: Sessions, clock: Clock, tmp_path: Path
) -> None:
    id_, session = await begun(sessions)
    locker = sqlite3.connect(tmp_path / "ledger.db", isolation_level=None)
    locker.execute("BEGIN IMMEDIATE")
    try:
        clock.now += 20 * MINUTE
        await sessions.touch(session)
    finally:
        locker.close()
    clock.now += 20 * MINUTE
    assert sessions.find(id_) is session
