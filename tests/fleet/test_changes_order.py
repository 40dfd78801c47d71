"""What one of two gateways changes itself, while it applies what the other one has changed: neither
is put over what is newer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from sqlalchemy import Connection
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.admin.access.access import Access
from gateway.admin.access.sessions import IDLE_TIMEOUT
from gateway.store.database import Connections, Database
from gateway.store.records import Role, Scope, Token, TokenState
from tests.fleet.replicas import changes_of
from tests.support.gateway import ACCOUNT, RunningGateway, channels
from tests.support.replicas import run_replicas

PASSWORD = "correct horse battery"
CHAT, MESSAGES = ("chat-main", ACCOUNT), ("messages-main", ACCOUNT)


class PausedReads:
    """A real reader of the database. Whoever has read waits for `release`, with what was found."""

    def __init__(self, real: Connections) -> None:
        self._real = real
        self._read = asyncio.Semaphore(0)
        self._released = asyncio.Semaphore(0)

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[AsyncConnection]:
        async with self._real.connect() as connection:
            yield connection
        self._read.release()
        await self._released.acquire()

    async def dispose(self) -> None:
        await self._real.dispose()

    async def until_read(self) -> None:
        async with asyncio.timeout(20):
            await self._read.acquire()

    def release(self, times: int = 1) -> None:
        for _ in range(times):
            self._released.release()


class Replica:
    def __init__(self, gateway: RunningGateway) -> None:
        self.operations = gateway.operations
        self.access: Access = gateway.daemon.console.access
        self.accounts = gateway.daemon.console.accounts
        self.runtime = gateway.daemon.runtime
        self.changes = changes_of(gateway)

    @property
    def database(self) -> Database:
        return self.operations.database

    def token(self, token: Token) -> Token | None:
        return self.runtime.registry.token(token.id)

    @property
    def has_waiting_change(self) -> bool:
        """One that waits until what was changed earlier is in memory, or the other way round."""
        return bool(self.database.changing._waiters)

    def pause_reads_of_changes(self) -> PausedReads:
        reader = self.changes._reader
        reads = PausedReads(reader.reader)
        reader.reader = reads  # type: ignore[assignment]
        return reads

    async def until_applied(self) -> None:
        async with self.database.reader.connect() as connection:
            found = await connection.exec_driver_sql("SELECT version FROM change_version")
            version = found.scalar_one()
        await until(lambda: self.changes.known >= version)

    async def until_applied_or_waiting(self) -> None:
        applied = asyncio.ensure_future(self.until_applied())
        await until(lambda: applied.done() or self.has_waiting_change)
        applied.cancel()


async def until(is_true: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not is_true():
            await asyncio.sleep(0.005)


@pytest.fixture
async def replicas(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[Replica, Replica]]:
    monkeypatch.setattr("gateway.admin.access.passwords._SCRYPT_N", 2**10)
    lines = channels("http://127.0.0.1:9")
    async with asyncio.timeout(120), run_replicas(tmp_path, 2, lines) as (first, second):
        yield Replica(first), Replica(second)


class Case(NamedTuple):
    """A change of the other replica, one of this replica, and whether this one is in memory.
    `reads`: how often the first one is read for."""

    change: Callable[[], Awaitable[Any]]
    own_change: Callable[[], Awaitable[Any]]
    is_in_memory: Callable[[], bool]
    reads: int = 1


async def a_revoked_key(own: Replica, other: Replica) -> Case:
    token, _ = await other.operations.create_key("a key", "default")
    return Case(
        lambda: other.operations.update_key(token.id, note="a note"),
        lambda: own.operations.revoke_key(token.id),
        lambda: own.token(token) is None,
    )


async def a_new_key(own: Replica, _: Replica) -> Case:
    """Everything is read anew, as after a restore."""

    async def read_everything() -> None:
        own.changes.known = 10**6
        own.changes._wake.set()

    return Case(
        read_everything,
        lambda: own.operations.create_key("new", "default"),
        lambda: "new" in {each.name for each in own.runtime.registry.tokens()},
        reads=len(own.changes.appliers),
    )


async def a_group(own: Replica, other: Replica) -> Case:
    await other.operations.create_group("team", ["one"])
    return Case(
        lambda: other.operations.update_group("team", ["two"]),
        lambda: own.operations.update_group("team", ["three"]),
        lambda: own.operations.get_group("team").patterns == ("three",),
    )


async def a_removed_admin(own: Replica, other: Replica) -> Case:
    for name in ("one", "two"):
        await other.access.admins.add(name, Role.ADMIN, PASSWORD)
    return Case(
        lambda: other.access.admins.update("one", password="another password"),
        lambda: own.access.admins.remove("two"),
        lambda: own.access.admins.find("two") is None,
    )


async def a_revoked_admin_token(own: Replica, other: Replica) -> Case:
    _, secret = await other.access.tokens.create("one", Scope.READ)
    return Case(
        lambda: other.access.tokens.create("two", Scope.READ),
        lambda: own.access.tokens.revoke("one"),
        lambda: own.access.tokens.find(secret) is None,
    )


async def a_session_that_signs_out(own: Replica, other: Replica) -> Case:
    await other.access.admins.add("one", Role.ADMIN, PASSWORD)
    ids: list[str | None] = []

    async def sign_in() -> None:
        ids.append(await sign_in_at(other))

    async def sign_out() -> None:
        await own.access.sessions.refresh(ids[0])
        session = own.access.sessions.find(ids[0])
        assert session is not None
        await own.access.sessions.sign_out(session)

    return Case(sign_in, sign_out, lambda: own.access.sessions.find(ids[0]) is None)


async def ended_sessions(own: Replica, other: Replica) -> Case:
    case = await a_session_that_signs_out(own, other)
    return case._replace(own_change=own.access.sessions.end_all)


async def a_disabled_account(own: Replica, other: Replica) -> Case:
    def is_disabled() -> bool:
        is_usable = own.runtime.health.overall(MESSAGES, 0).is_usable
        return MESSAGES in own.runtime.disabled_accounts and not is_usable

    return Case(
        lambda: other.accounts.disable(CHAT),
        lambda: own.accounts.disable(MESSAGES),
        is_disabled,
    )


async def an_enabled_account(own: Replica, other: Replica) -> Case:
    await other.accounts.disable(MESSAGES)
    return Case(
        lambda: other.accounts.disable(CHAT),
        lambda: own.accounts.enable(MESSAGES),
        lambda: MESSAGES not in own.runtime.disabled_accounts,
    )


async def sign_in_at(replica: Replica) -> str | None:
    return await replica.access.sessions.sign_in("one", PASSWORD, "::1", "test")


@pytest.mark.parametrize(
    "make",
    [
        *(a_revoked_key, a_new_key, a_group, a_removed_admin, a_revoked_admin_token),
        *(a_session_that_signs_out, ended_sessions, a_disabled_account, an_enabled_account),
    ],
    ids=lambda make: make.__name__,
)
async def test_rows_from_before_an_own_change_are_not_put_over_it(
    replicas: tuple[Replica, Replica], make: Callable[[Replica, Replica], Awaitable[Case]]
) -> None:
    own, other = replicas
    case = await make(own, other)
    await own.until_applied()
    reads = own.pause_reads_of_changes()
    await case.change()
    await reads.until_read()
    own_change = asyncio.ensure_future(case.own_change())
    await until(lambda: own_change.done() or own.has_waiting_change)
    reads.release(case.reads)
    await own_change
    for _ in range(case.reads):  # the last one is for the own change, which is read too
        await reads.until_read()
    assert case.is_in_memory()
    reads.release(100)
    await own.until_applied()
    assert case.is_in_memory()


async def test_a_late_answer_to_an_own_change_is_not_put_over_a_newer_one(
    replicas: tuple[Replica, Replica], monkeypatch: pytest.MonkeyPatch
) -> None:
    own, other = replicas
    token, _ = await other.operations.create_key("a key", "default")
    await own.until_applied()
    real, has_committed, may_answer = own.database.write, asyncio.Event(), asyncio.Event()

    async def write(work: Callable[[Connection], Any]) -> Any:
        result = await real(work)
        has_committed.set()
        await may_answer.wait()
        return result

    monkeypatch.setattr(own.database, "write", write)
    own_change = asyncio.ensure_future(own.operations.update_key(token.id, note="a note"))
    await has_committed.wait()
    await other.operations.revoke_key(token.id)
    await own.until_applied_or_waiting()
    may_answer.set()
    await own_change
    await own.until_applied()
    assert own.token(token) is None


@pytest.mark.parametrize("is_known", [True, False])
async def test_an_own_change_undoes_nothing_that_was_changed_since_it_read(
    replicas: tuple[Replica, Replica], monkeypatch: pytest.MonkeyPatch, is_known: bool
) -> None:
    """Whether this replica has heard of it meanwhile or not."""
    own, other = replicas
    token, _ = await other.operations.create_key("a key", "default")
    await own.until_applied()
    real = own.operations.get_key

    async def get_key(token_id: str) -> Token:
        before = await real(token_id)
        await other.operations.revoke_key(token_id)
        if is_known:
            await own.until_applied()
        return before

    monkeypatch.setattr(own.operations, "get_key", get_key)
    changed = await own.operations.update_key(token.id, note="a note")
    assert own.token(token) is None
    assert (changed.state, changed.note) == (TokenState.REVOKED, "a note")


async def test_an_own_change_of_a_group_undoes_nothing_else(
    replicas: tuple[Replica, Replica],
) -> None:
    own, other = replicas
    await other.operations.create_group("team", ["one"])
    await own.until_applied()
    reads = own.pause_reads_of_changes()
    await other.operations.update_group("team", ["two"])
    await reads.until_read()
    own_change = asyncio.ensure_future(own.operations.update_group("team", multiplier="2"))
    await until(lambda: own_change.done() or own.has_waiting_change)
    reads.release()
    group = await own_change
    assert own.operations.get_group("team") == group
    assert (group.patterns, group.multiplier) == (("two",), "2")
    reads.release(100)


async def test_an_account_that_both_disable_is_disabled(
    replicas: tuple[Replica, Replica],
) -> None:
    own, other = replicas
    await own.until_applied()
    reads = own.pause_reads_of_changes()
    await other.accounts.disable(CHAT)
    await reads.until_read()
    own_change = asyncio.ensure_future(own.accounts.disable(CHAT))
    await until(lambda: own_change.done() or own.has_waiting_change)
    reads.release(100)
    await own_change
    await other.until_applied()
    for each in replicas:
        assert set(each.runtime.disabled_accounts) == {CHAT}


@pytest.mark.parametrize("ends_all", [False, True])
async def test_a_session_that_has_ended_is_not_refreshed(
    replicas: tuple[Replica, Replica], monkeypatch: pytest.MonkeyPatch, ends_all: bool
) -> None:
    """It signs out at the other replica, or here."""
    own, other = replicas
    await other.access.admins.add("one", Role.ADMIN, PASSWORD)
    id_ = await sign_in_at(other)
    await own.until_applied()
    session = own.access.sessions.find(id_)
    assert session is not None
    session.seen_at -= IDLE_TIMEOUT  # it was used at the other replica alone
    reads = PausedReads(own.database.reader)
    monkeypatch.setattr(own.database, "reader", reads)
    refresh = asyncio.ensure_future(own.access.sessions.refresh(id_))
    await reads.until_read()
    if ends_all:
        await own.access.sessions.end_all()
    else:
        known = other.access.sessions.find(id_)
        assert known is not None
        await other.access.sessions.sign_out(known)
    await other.until_applied()
    await until(lambda: own.changes.known >= other.changes.known)
    reads.release(100)
    await refresh
    assert own.access.sessions.find(id_) is None
    assert own.access.sessions.known() == []


async def test_a_read_that_hangs_confirms_nothing_and_is_given_up(
    replicas: tuple[Replica, Replica], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As long as an own change takes, others wait for it: not for ever."""
    own, other = replicas
    server = own.changes._server.model_copy(update={"timeout": 0.1})
    monkeypatch.setattr(own.changes, "_server", server)
    async with own.database.changing:
        token, _ = await other.operations.create_key("a key", "default")
        await until(lambda: own.changes.failure == "no answer in time")
        assert own.token(token) is None
        await until(lambda: not own.changes.is_confirmed)
    await until(lambda: own.token(token) is not None and own.changes.is_confirmed)
