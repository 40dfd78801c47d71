"""Sessions: sign-in, timeouts, sign-out; a new password ends them."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from gateway.admin.access.access import Access
from gateway.admin.access.admins import Admins
from gateway.admin.access.audit import Audit
from gateway.admin.access.sessions import IDLE_TIMEOUT, MAX_AGE, Session, Sessions
from gateway.store.access import all_sessions
from gateway.store.database import Database
from gateway.store.records import Role
from tests.console.browser import PASSWORD
from tests.support.databases import locked, on_server
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
async def access(database: Database, clock: Clock) -> AsyncIterator[Access]:
    access = await Access.load(Audit(database, clock), clock)
    await access.admins.set_password(PASSWORD)
    yield access
    await access.close()


@pytest.fixture
def sessions(access: Access) -> Sessions:
    return access.sessions


async def sign_in(
    sessions: Sessions, password: str = PASSWORD, instead_of: Session | None = None
) -> str | None:
    return await sessions.sign_in("admin", password, "127.0.0.1", "a browser", instead_of)


async def begun(sessions: Sessions, instead_of: Session | None = None) -> tuple[str, Session]:
    id_ = await sign_in(sessions, instead_of=instead_of)
    assert id_ is not None
    session = sessions.find(id_)
    assert session is not None
    return id_, session


async def test_sign_in_needs_the_right_name_and_password(database: Database, clock: Clock) -> None:
    access = await Access.load(Audit(database, clock), clock)
    for typed in ("", PASSWORD):
        assert await sign_in(access.sessions, typed) is None
    await access.admins.set_password(PASSWORD)
    await access.admins.add("alice", Role.VIEWER, "the password of alice")
    assert await sign_in(access.sessions, PASSWORD[:-1]) is None
    for name in ("alice", "nobody", ""):
        assert await access.sessions.sign_in(name, PASSWORD, "127.0.0.1", "") is None
    assert await sign_in(access.sessions) is not None
    id_ = await access.sessions.sign_in(" Alice", "the password of alice", "127.0.0.1", "")
    session = access.sessions.find(id_)
    assert session is not None
    assert session.admin == "alice"
    await access.close()


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
    again = await Access.load(Audit(database, clock), clock)
    (found,) = again.sessions.active()
    assert (found.admin, found.address, found.agent) == ("admin", "127.0.0.1", "a browser")
    assert again.sessions.find(id_) is found
    clock.now += 10 * MINUTE
    assert again.sessions.find(id_) is None
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
    # On a server another replica may have seen an idle one.
    clock.now += MAX_AGE if on_server() else IDLE_TIMEOUT
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


CHANGES: dict[str, Callable[[Admins], Awaitable[object]]] = {
    "the password": lambda admins: admins.set_password("another password"),
    "the password by name": lambda admins: admins.update("admin", password="another password"),
    "the role": lambda admins: admins.update("admin", role=Role.VIEWER),
    "removal": lambda admins: admins.remove("admin"),
}


@pytest.mark.parametrize("change", CHANGES)
async def test_a_change_ends_the_sessions_of_the_admin(
    access: Access, database: Database, clock: Clock, change: str
) -> None:
    """Those of others stay, and a new admin of that name does not get them back."""
    await access.admins.add("alice", Role.ADMIN, PASSWORD)
    of_alice = await access.sessions.sign_in("alice", PASSWORD, "127.0.0.1", "")
    ids = [(await begun(access.sessions))[0] for _ in range(2)]
    assert access.sessions.count_of("admin") == 2
    await CHANGES[change](access.admins)
    assert [access.sessions.find(id_) for id_ in ids] == [None] * 2
    assert access.sessions.count_of("admin") == 0
    assert access.sessions.find(of_alice) is not None
    if change == "removal":
        await access.admins.set_password(PASSWORD)
    for each in (access, again := await Access.load(Audit(database, clock), clock)):
        assert [each.sessions.find(id_) for id_ in ids] == [None] * 2
        assert len(each.sessions.active()) == 1
    await again.close()


async def test_a_sign_in_during_a_password_change_fails(access: Access) -> None:
    """Whichever comes first: no session of the old password outlives it."""
    sessions = access.sessions
    ids = await asyncio.gather(
        sign_in(sessions), access.admins.set_password("another password"), sign_in(sessions)
    )
    assert [sessions.find(each) for each in (ids[0], ids[2]) if isinstance(each, str)] in (
        [],
        [None],
        [None, None],
    )
    assert sessions.active() == []


async def test_password_checks_do_not_block_the_loop(sessions: Sessions) -> None:
    """They are checked one after the other, and meanwhile everybody else is served."""
    longest, turns = 0.0, 0
    loop = asyncio.get_running_loop()
    tries = asyncio.gather(*(sign_in(sessions, "wrong") for _ in range(4)))
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
    with locked(tmp_path / "ledger.db"):
        clock.now += 20 * MINUTE
        await sessions.touch(session)
    clock.now += 20 * MINUTE
    assert sessions.find(id_) is session
