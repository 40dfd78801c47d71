"""A change on one of four gateways on one database is known to all within a second, or a gateway
that cannot know it serves nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from sqlalchemy import text

from gateway.admin.access.admins import DEFAULT_NAME
from gateway.fleet.changes import Changes
from gateway.store import tokens as token_store
from gateway.store.database import Database
from gateway.store.records import Role, Scope, TokenState
from gateway.store.tokens import _SETTABLE
from tests.fleet.replicas import changes_of, cluster_of
from tests.support.gateway import ACCOUNT, BETA, RunningGateway, channels, run_gateway
from tests.support.postgres import new_database_url
from tests.support.proxy import FaultProxy, fault_proxy
from tests.support.timing import SLACK, loop_time
from tests.support.toxics import Timeout
from tests.support.upstream import ScriptedUpstream
from tests.support.valkey import valkey_server

pytestmark = pytest.mark.filterwarnings(
    # The driver does not close the socket of a connection that is cut while it is being opened.
    "ignore::pytest.PytestUnraisableExceptionWarning"
)
WITHIN = 1.0
TIMES = 50


@dataclass(frozen=True, slots=True)
class Fleet:
    """`proxy` is between the last gateway and the database."""

    gateways: list[RunningGateway]
    proxy: FaultProxy

    @property
    def first(self) -> RunningGateway:
        return self.gateways[0]

    @property
    def last(self) -> RunningGateway:
        return self.gateways[-1]

    async def statuses(self, key: str) -> list[int]:
        """What a request with the key gets from each."""
        answers = [each.get("/v1/models", key) for each in self.gateways]
        return [answer.status for answer in await asyncio.gather(*answers)]

    async def settled_statuses(self, key: str) -> list[int]:
        """The same of a revoked key, once the others know it. Where the machine is busy they serve
        nothing until then."""
        async with asyncio.timeout(SLACK):
            while 503 in (statuses := await self.statuses(key))[:3]:
                assert 200 not in statuses
        return statuses

    async def until_works(self, key: str) -> None:
        """Everywhere: at once, unless the machine is too busy to ask in 0.3 s."""
        async with asyncio.timeout(10):
            while await self.statuses(key) != [200] * 4:
                await asyncio.sleep(0.01)

    async def until_all(self, is_known: Callable[[RunningGateway], bool]) -> float:
        """Seconds. After `WITHIN` who does not know it yet, on a busy machine, serves nothing."""
        loop = asyncio.get_running_loop()
        started = loop.time()
        async with asyncio.timeout(20):
            while others := [each for each in self.gateways if not is_known(each)]:
                if loop.time() - started > WITHIN:
                    assert not any(changes_of(each).is_confirmed for each in others)
                await asyncio.sleep(0.002)
        return loop.time() - started


@pytest.fixture
async def fleet(upstream: ScriptedUpstream, tmp_path: Path) -> AsyncIterator[Fleet]:
    url = await new_database_url()
    _, _, place = url.partition("@")
    address, _, name = place.partition("/")
    async with AsyncExitStack() as stack:
        proxy = await stack.enter_async_context(fault_proxy(f"http://{address}"))
        port = proxy.address.rpartition(":")[2]
        behind = f"postgresql://gateway@127.0.0.1:{port}/{name}"
        gateways = []
        for number in range(4):
            config: dict[str, Any] = {
                "database": {"url": behind if number == 3 else url, "connections": 2},
                "shared": {"url": valkey_server().url, "prefix": name.replace("_", "-")},
                "replica": {"name": f"r{number}"},
            }
            folder = tmp_path / f"r{number}"
            gateway = run_gateway(folder, channels(upstream.address), **config)
            gateways.append(await stack.enter_async_context(gateway))
        yield Fleet(gateways, proxy)


@pytest.mark.slow("waits for replicas")
async def test_a_key_works_everywhere_at_once(fleet: Fleet) -> None:
    for number in range(TIMES):
        _, key = await fleet.first.operations.create_key(f"new-{number}", "default")
        await fleet.until_works(key)


@pytest.mark.slow("waits for replicas")
async def test_a_revoked_key_is_refused_everywhere(
    fleet: Fleet, record_property: Callable[[str, object], None]
) -> None:
    times = []
    for number in range(TIMES):
        token, key = await fleet.first.operations.create_key(f"old-{number}", "default")
        await fleet.until_works(key)
        await fleet.first.operations.revoke_key(token.id)
        times.append(
            await fleet.until_all(
                lambda each, token=token: each.daemon.runtime.registry.token(token.id) is None
            )
        )
        assert await fleet.statuses(key) == [401] * 4
    record_property("median_ms", round(median(times) * 1000, 1))
    record_property("max_ms", round(max(times) * 1000, 1))


@pytest.mark.slow("waits for replicas")
async def test_while_notifications_are_lost_it_is_polled(fleet: Fleet) -> None:
    for each in fleet.gateways:
        connection = changes_of(each)._connection
        assert connection is not None
        connection._listeners.clear()  # a statement would meet one that is under way
    for number in range(10):
        token, _ = await fleet.first.operations.create_key(f"old-{number}", "default")
        await fleet.until_all(lambda each, id=token.id: each.daemon.runtime.registry.token(id))
        await fleet.first.operations.revoke_key(token.id)
        await fleet.until_all(
            lambda each, id=token.id: each.daemon.runtime.registry.token(id) is None
        )


async def test_other_changes_of_keys_and_groups(fleet: Fleet) -> None:
    """Disabled, enabled, rotated, with other limits, in a group with other models."""
    operations = fleet.first.operations
    token, key = await operations.create_key("changing", "default")
    await fleet.until_works(key)

    def known(check: Callable[[Any], bool]) -> Callable[[RunningGateway], bool]:
        return lambda each: check(each.daemon.runtime.registry.token(token.id))

    await operations.update_key(token.id, state=TokenState.DISABLED)
    await fleet.until_all(known(lambda each: each is None))
    assert await fleet.statuses(key) == [401] * 4
    await operations.update_key(token.id, state=TokenState.ACTIVE)
    await fleet.until_all(known(lambda each: each is not None))
    _, new_key = await operations.rotate_key(token.id, 0)
    await fleet.until_works(new_key)
    assert await fleet.statuses(key) == [401] * 4
    await operations.update_key(token.id, limits={"requests_per_minute": 7})
    await fleet.until_all(known(lambda each: each.limits.requests_per_minute == 7))
    await operations.update_group("default", ["no-such-model"])
    await fleet.until_all(
        lambda each: each.daemon.runtime.registry.group("default").patterns == ("no-such-model",)
    )
    for each in fleet.gateways:
        assert BETA not in await (await each.get("/v1/models", new_key)).text()
    await operations.create_group("team", ["*"])
    await fleet.until_all(lambda each: each.daemon.runtime.registry.group("team") is not None)
    await operations.delete_group("team")
    await fleet.until_all(lambda each: each.daemon.runtime.registry.group("team") is None)


async def test_disabled_accounts(fleet: Fleet) -> None:
    ref = ("chat-main", ACCOUNT)
    accounts = fleet.first.daemon.console.accounts
    for _ in range(3):
        await accounts.disable(ref)
        await fleet.until_all(lambda each: ref in each.daemon.runtime.disabled_accounts)
        now = asyncio.get_running_loop().time()
        for each in fleet.gateways:
            assert not each.daemon.runtime.health.overall(ref, now).is_usable
        await accounts.enable(ref)
        await fleet.until_all(lambda each: ref not in each.daemon.runtime.disabled_accounts)


@pytest.mark.slow("waits for replicas")
async def test_admins_their_tokens_and_sessions(fleet: Fleet) -> None:
    first, *others = (each.daemon.console.access for each in fleet.gateways)
    await first.admins.set_password("first password of all")
    await fleet.until_all(
        lambda each: each.daemon.console.access.admins.find(DEFAULT_NAME) is not None
    )
    session = await first.sessions.sign_in(DEFAULT_NAME, "first password of all", "::1", "test")
    assert session is not None
    found = lambda each: each.daemon.console.access.sessions.find(session)  # noqa: E731
    await fleet.until_all(lambda each: found(each) is not None)
    await first.admins.set_password("second password of all")
    await fleet.until_all(lambda each: found(each) is None)
    assert await others[0].sessions.sign_in(DEFAULT_NAME, "first password of all", "", "") is None
    token, secret = await first.tokens.create("script", Scope.READ)
    by = lambda each: each.daemon.console.access.tokens.find(secret)  # noqa: E731
    await fleet.until_all(lambda each: by(each) is not None)
    await others[1].tokens.revoke(token.id)
    await fleet.until_all(lambda each: by(each) is None)
    await first.admins.add("guest", Role.VIEWER, "a password of a guest")
    admin = lambda each: each.daemon.console.access.admins.find("guest")  # noqa: E731
    await fleet.until_all(lambda each: admin(each) is not None)
    await others[2].admins.remove("guest")
    await fleet.until_all(lambda each: admin(each) is None)


async def test_a_gateway_that_is_cut_off_from_everything_serves_nothing(fleet: Fleet) -> None:
    token, key = await fleet.first.operations.create_key("cut", "default")
    await fleet.until_works(key)
    changes_of(fleet.last)._tasks[1].cancel()
    fleet.proxy.add(Timeout())
    await fleet.first.operations.revoke_key(token.id)
    await asyncio.sleep(WITHIN)
    assert await fleet.settled_statuses(key) == [401, 401, 401, 503]
    answer = await fleet.last.get("/v1/models")
    assert (answer.status, answer.headers["retry-after"]) == (503, "1")
    assert (await answer.json())["error"]["code"] == "replica_out_of_contact"
    async with loop_time() as seconds:
        assert (await fleet.last.get("/v1/models")).status == 503
        assert seconds() < 0.3  # nobody waits in vain again
    assert (await fleet.last.get("/healthz")).status == 200
    assert (await fleet.last.get("/console/login")).status == 503
    fleet.proxy.clear()
    fleet.proxy.reset()
    async with asyncio.timeout(10):
        while (await fleet.last.get("/v1/models")).status != 200:
            await asyncio.sleep(0.1)
    assert await fleet.statuses(key) == [401] * 4


@pytest.mark.slow("waits for replicas")
async def test_without_the_database_it_serves_while_valkey_shows_nothing_newer(
    fleet: Fleet,
) -> None:
    token, key = await fleet.first.operations.create_key("cut", "default")
    await fleet.until_works(key)
    await asyncio.sleep(0.5)
    fleet.proxy.add(Timeout())
    loop = asyncio.get_running_loop()
    until = loop.time() + 3
    while loop.time() < until:
        assert await fleet.statuses(key) == [200] * 4
        await asyncio.sleep(0.05)
    assert changes_of(fleet.last).contact_age > 2
    await fleet.first.operations.revoke_key(token.id)
    served_at = revoked_at = loop.time()
    while (began := loop.time()) and (await fleet.last.get("/v1/models", key)).status == 200:
        served_at = began
        await asyncio.sleep(0.01)
    assert served_at - revoked_at < WITHIN
    assert await fleet.settled_statuses(key) == [401, 401, 401, 503]
    fleet.proxy.clear()
    fleet.proxy.reset()
    async with asyncio.timeout(10):
        while await fleet.statuses(key) != [401] * 4:
            await asyncio.sleep(0.1)


async def test_a_single_replica_serves_until_another_one_could_start(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    async with run_gateway(
        tmp_path, channels(upstream.address), database=await new_database_url()
    ) as gateway:
        changes = changes_of(gateway)
        for task in changes._tasks:
            task.cancel()
        changes._confirmed_at -= 60
        assert (await gateway.get("/v1/models")).status == 200
        cluster_of(gateway)._own.expiry = 3  # which has passed, less the margin
        assert (await gateway.get("/v1/models")).status == 503


async def test_with_a_slow_loop_nothing_is_refused(fleet: Fleet) -> None:
    """As after a pause of the process: who is late asks first."""
    for each in fleet.gateways:
        changes_of(each)._confirmed_at -= 60
    assert await fleet.statuses(fleet.first.key) == [200] * 4


async def test_unknown_keys_share_few_questions(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = 0
    real = Changes._ask

    async def count(self: Changes) -> None:
        nonlocal asked
        asked += 1
        await real(self)

    monkeypatch.setattr(Changes, "_ask", count)
    started = asyncio.get_running_loop().time()
    for _ in range(4):
        wrong = [fleet.first.get("/v1/models", f"sk-wrong-{number}") for number in range(100)]
        assert {answer.status for answer in await asyncio.gather(*wrong)} == {401}
    seconds = asyncio.get_running_loop().time() - started
    others = 3 * (seconds / 0.25 + 1)
    assert asked <= seconds / 0.1 + 2 + others


async def test_who_has_missed_what_is_forgotten_reads_everything(fleet: Fleet) -> None:
    token, key = await fleet.first.operations.create_key("missed", "default")
    await fleet.until_works(key)
    fleet.proxy.add(Timeout())
    await fleet.first.operations.revoke_key(token.id)
    forget = text("DELETE FROM changes")
    await fleet.first.operations.database.write(lambda connection: connection.execute(forget))
    fleet.proxy.clear()
    fleet.proxy.reset()
    known = await fleet.until_all(lambda each: each.daemon.runtime.registry.token(token.id) is None)
    assert known < 5


async def test_old_changes_are_forgotten_by_the_leader(fleet: Fleet) -> None:
    await fleet.first.operations.create_key("old", "default")
    database = fleet.first.operations.database
    aging = text("UPDATE changes SET changed_at = changed_at - 3601000000 WHERE version > 1")
    await database.write(lambda connection: connection.execute(aging))
    for each in fleet.gateways:
        changes_of(each)._forget_due = 0.0
    kept = text("SELECT count(*), count(*) FILTER (WHERE version > 1) FROM changes")
    async with asyncio.timeout(10):
        while True:
            async with database.reader.connect() as connection:
                all_changes, old = (await connection.execute(kept)).one()
            if not old:
                break
            await asyncio.sleep(0.05)
    assert all_changes > 0
    assert await fleet.statuses(fleet.first.key) == [200] * 4


async def test_two_changes_of_one_key_are_both_kept(fleet: Fleet) -> None:
    """An operator changes a limit of a key on one replica, while it is revoked on another."""
    database = fleet.first.operations.database
    token, _ = await fleet.first.operations.create_key("both", "default")
    read = await fleet.last.operations.get_key(token.id)
    await fleet.first.operations.revoke_key(token.id)
    await token_store.update_token(database, replace(read, note="changed"), read)
    stored = await token_store.get_token(database, token.id)
    assert stored is not None
    assert (stored.state, stored.note) == (TokenState.REVOKED, "changed")


async def test_what_operators_set_is_noted_and_totals_are_not(database: Database) -> None:
    query = text(
        "SELECT event_object_column FROM information_schema.triggered_update_columns"
        " WHERE event_object_table = 'tokens'"
    )
    version = text("SELECT version FROM change_version")
    async with database.reader.connect() as connection:
        assert set(await connection.scalars(query)) == set(_SETTABLE)

    async def noted(statement: str) -> bool:
        async with database.reader.connect() as connection:
            before = await connection.scalar(version)
        await database.write(lambda connection: connection.execute(text(statement)))
        async with database.reader.connect() as connection:
            return before != await connection.scalar(version)

    insert = (
        'INSERT INTO tokens (id, name, digest, display, "group", state, created_at)'
        " VALUES ('tok_1', 'one', 'x', 'sk', 'default', 'active', 1)"
    )
    assert await noted(insert)
    assert await noted("UPDATE tokens SET state = 'revoked'")
    assert not await noted("UPDATE tokens SET requests = requests + 1, last_used_at = 5")
    assert not await noted("UPDATE tokens SET first_used_at = 1, first_address = '::1'")
    assert await noted("INSERT INTO settings VALUES ('disabled_account:[\"a\",\"b\"]', '{}')")
    assert not await noted("INSERT INTO settings VALUES ('other', '{}')")
    assert await noted("DELETE FROM settings WHERE name LIKE 'disabled%'")
    assert not await noted("DELETE FROM settings WHERE name = 'other'")
    assert await noted("UPDATE groups SET multiplier = '2'")


async def test_the_changes_of_a_transaction_have_one_version(database: Database) -> None:
    statement = text(
        'INSERT INTO tokens (id, name, digest, display, "group", state, created_at)'
        " SELECT 'tok_' || n, 'n', ('k' || n)::bytea, '', 'default', 'active', 1"
        " FROM generate_series(1, 3000) AS n"
    )
    loop = asyncio.get_running_loop()
    started = loop.time()
    await database.write(lambda connection: connection.execute(statement))
    assert loop.time() - started < 5
    async with database.reader.connect() as connection:
        counts = text("SELECT count(*), count(DISTINCT version) FROM changes WHERE kind = 'token'")
        assert tuple((await connection.execute(counts)).one()) == (3000, 1)
