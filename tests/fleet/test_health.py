"""What one replica finds out about an account, the others know."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any, Final

import orjson
import pytest

from gateway.config.cluster import SharedServer
from gateway.config.load import parse_config
from gateway.config.schema import Config
from gateway.fleet.health import SharedHealth
from gateway.fleet.valkey.connection import Connection
from gateway.routing.circuit_breaker import HealthState, Thresholds
from gateway.routing.failure_policy import AccountPenalty, Blame, Failover, Verdict
from gateway.routing.health import Health, HealthTicket
from tests.support.timing import SLACK, until_within
from tests.support.valkey import ValkeyServer, valkey_server

REF = ("main", "first")
OTHER = ("main", "second")
POOL = (REF, OTHER, ("main", "third"), ("main", "fourth"))
MODEL = "beta-5.4"
THRESHOLDS = Thresholds(cooldown=0.3, circuit_open=0.3, jitter=0)
RATE_LIMITED = Verdict("rate_limited", Blame.CAPACITY, Failover.YES, AccountPenalty.RATE_LIMITED)
REJECTED = Verdict("auth", Blame.ACCOUNT, Failover.YES, AccountPenalty.AUTH_FAILED)


def limited(seconds: float) -> Verdict:
    return replace(RATE_LIMITED, retry_after=seconds)


WITHIN: Final = 1.0
"""Seconds: the promise."""


def config(key: str = "secret-of-the-first", address: str = "http://127.0.0.1:9/v1") -> Config:
    text = {
        "channels": [
            {
                "name": "main",
                "format": "chat",
                "base_url": address,
                "models": [MODEL],
                "accounts": [
                    {"name": "first", "key": key},
                    {"name": "second", "key": "secret-of-the-second"},
                ],
            }
        ]
    }
    return parse_config(orjson.dumps(text).decode())


class Side:
    """One replica."""

    def __init__(self, connection: Connection, health: Health, sharing: SharedHealth) -> None:
        self.connection, self.health, self.sharing = connection, health, sharing

    @property
    def now(self) -> float:
        return asyncio.get_running_loop().time()

    def state(self, model: str = MODEL) -> HealthState:
        return self.health.status(REF, model, self.now).state

    @property
    def paused_until(self) -> float:
        return self.health.status(REF, MODEL, 0).until

    def admit(self) -> HealthTicket | None:
        return self.health.admit(REF, MODEL, self.now, POOL)

    def fail(self, verdict: Verdict = RATE_LIMITED, ticket: HealthTicket | None = None) -> None:
        ticket = ticket or self.admit()
        assert ticket is not None
        self.health.record_failure(ticket, verdict, self.now, 0.5, "no")

    async def test_ticket(self) -> HealthTicket | None:
        """The ticket of a request as the server gets it."""
        ticket = self.admit()
        if ticket is not None and ticket.tested:
            return await self.sharing.confirm(ticket, MODEL, POOL)
        return ticket


class Fleet:
    def __init__(self, stack: AsyncExitStack, server: SharedServer) -> None:
        self._stack, self._server = stack, server

    async def side(self, settings: Callable[[], Config] = config) -> Side:
        connection = Connection(self._server)
        await connection.open()
        self._stack.push_async_callback(connection.close)
        health = Health(THRESHOLDS)
        current = settings()
        sharing = SharedHealth(connection, health, lambda: current)
        await self._stack.enter_async_context(sharing.run())
        return Side(connection, health, sharing)


@asynccontextmanager
async def run_fleet(url: str, prefix: str) -> AsyncIterator[Fleet]:
    server = SharedServer.model_validate({"url": url, "prefix": prefix})
    async with asyncio.timeout(30), AsyncExitStack() as stack:
        yield Fleet(stack, server)


@pytest.fixture
async def fleet(request: pytest.FixtureRequest) -> AsyncIterator[Fleet]:
    prefix = "t" + str(abs(hash(request.node.name)))[:12]
    async with run_fleet(valkey_server().url, prefix) as fleet:
        yield fleet


async def until(condition: Callable[[], Any], seconds: float = WITHIN) -> None:
    await until_within(seconds, condition)


async def test_cooldowns_rejections_and_resets_reach_every_replica(fleet: Fleet) -> None:
    a, b, c = [await fleet.side() for _ in range(3)]
    a.fail(limited(20.0))
    await until(lambda: b.state() is c.state() is HealthState.RATE_LIMITED)
    left = b.health.status(REF, MODEL, b.now).until - b.now
    assert 18 < left <= 20
    assert b.state("another-model") is HealthState.HEALTHY  # a breaker of the model
    c.fail(REJECTED, c.admit() or c.health.admit(REF, "another-model", c.now, POOL))
    await until(lambda: a.state("any") is b.state("any") is HealthState.AUTH_FAILED)
    b.health.reset(REF)
    await until(lambda: a.state() is c.state() is HealthState.HEALTHY)


async def test_a_recovery_reaches_every_replica(fleet: Fleet) -> None:
    a, b = [await fleet.side() for _ in range(2)]
    a.fail()
    await until(lambda: b.state() is not HealthState.HEALTHY)
    await asyncio.sleep(0.35)
    ticket = await b.test_ticket()
    assert ticket is not None
    assert ticket.tested
    assert b.health.record_success(ticket, b.now)
    await until(lambda: a.state() is HealthState.HEALTHY)


async def test_one_test_of_a_half_open_account_in_the_fleet(fleet: Fleet) -> None:
    sides = [await fleet.side() for _ in range(4)]
    sides[0].fail()
    await until(lambda: all(each.state() is not HealthState.HEALTHY for each in sides))
    for round_number in range(3):
        await until(lambda: all(each.state() is HealthState.HALF_OPEN for each in sides), 5)
        tickets = await asyncio.gather(*(each.test_ticket() for each in sides for _ in range(5)))
        tests = [ticket for ticket in tickets if ticket is not None and ticket.tested]
        assert len(tests) == 1, round_number
        (owner,) = [side for side in sides if side.health is _owner(sides, tests[0])]
        begun = owner.now
        owner.fail(ticket=tests[0])
        # Its pause may be over on a busy machine before all have heard of it.
        await until(lambda begun=begun: all(each.paused_until > begun for each in sides))
    # Each failed test has doubled the time, whoever made it.
    assert sides[3].paused_until - begun > 3.5


def _owner(sides: list[Side], ticket: HealthTicket) -> Health:
    for side in sides:
        if side.health._accounts[REF] is ticket.model_health.account:
            return side.health
    raise AssertionError


async def test_a_test_without_a_result_leaves_it_to_the_others(fleet: Fleet) -> None:
    a, b = [await fleet.side() for _ in range(2)]
    a.fail()
    await until(lambda: b.state() is not HealthState.HEALTHY)
    await asyncio.sleep(0.35)
    ticket = await a.test_ticket()
    assert ticket is not None
    assert await b.test_ticket() is None
    a.health.record_abandoned(ticket)
    for _ in range(30):
        if (next_ticket := await b.test_ticket()) is not None:
            break
        await asyncio.sleep(0.05)
    assert next_ticket is not None


async def test_what_a_replica_does_not_know_yet_counts_at_the_claim(fleet: Fleet) -> None:
    a, b = [await fleet.side() for _ in range(2)]
    a.fail()
    await until(lambda: b.state() is not HealthState.HEALTHY)
    await asyncio.sleep(0.35)
    b.sharing._changed = lambda *_: None  # type: ignore[method-assign]
    ticket = await a.test_ticket()
    assert ticket is not None
    a.fail(ticket=ticket)
    await a.sharing._exchange()
    assert await b.test_ticket() is None
    assert b.state() is HealthState.RATE_LIMITED


async def test_a_success_of_an_older_request_closes_nothing(fleet: Fleet) -> None:
    a, b = [await fleet.side() for _ in range(2)]
    a.fail()
    await until(lambda: b.state() is not HealthState.HEALTHY)
    await asyncio.sleep(0.35)
    ticket = await b.test_ticket()
    assert ticket is not None
    # Meanwhile an operator resets it, and it fails again.
    await asyncio.sleep(0.05)
    a.health.reset(REF)
    a.fail(limited(30.0))
    await a.sharing._exchange()
    b.health.record_success(ticket, b.now)
    await asyncio.sleep(0.7)
    assert a.state() is HealthState.RATE_LIMITED
    assert b.state() is HealthState.RATE_LIMITED


async def test_the_longest_of_two_pauses_holds(fleet: Fleet) -> None:
    a, b = [await fleet.side() for _ in range(2)]
    a.fail(limited(30.0))
    b.fail(limited(10.0))  # not yet heard of the other
    await asyncio.sleep(0.7)
    for side in (a, b):
        left = side.health.status(REF, MODEL, side.now).until - side.now
        assert 28 < left <= 30


async def test_another_key_is_another_account(fleet: Fleet) -> None:
    a = await fleet.side()
    b = await fleet.side(lambda: config(key="a-new-secret"))
    c = await fleet.side(lambda: config(address="http://127.0.0.1:10/v1"))
    a.fail()
    await asyncio.sleep(0.7)
    assert b.state() is c.state() is HealthState.HEALTHY
    late = await fleet.side()
    await until(lambda: late.state() is not HealthState.HEALTHY)


async def test_the_server_has_no_secret_and_no_address(fleet: Fleet) -> None:
    a, b = [await fleet.side() for _ in range(2)]
    a.fail()
    await until(lambda: b.state() is not HealthState.HEALTHY)
    await asyncio.sleep(0.35)
    assert await b.test_ticket() is not None
    keys = await a.connection.call("KEYS", f"{a.connection.root}*")
    assert len(keys) == 4, "the breakers, their order, the claim, and the connection's own probe"
    content = repr(keys) + repr(await a.connection.call("HGETALL", f"{a.connection.root}health"))
    for text in ("secret", "127.0.0.1", "first", "main"):
        assert text not in content


async def test_what_the_server_forgets_the_replicas_tell_it_again(fleet: Fleet) -> None:
    """Also the one that was the first to tell it anything, and is again."""
    a = await fleet.side()
    a.fail(limited(20.0))
    await until_told(a)
    await a.connection.call("FLUSHALL")
    await until_told(a)
    late = await fleet.side()
    await until(lambda: late.state() is HealthState.RATE_LIMITED, 5)
    assert a.state() is HealthState.RATE_LIMITED


async def until_told(side: Side) -> None:
    async with asyncio.timeout(SLACK):
        while not await side.connection.call("EXISTS", f"{side.connection.root}health:order"):
            await asyncio.sleep(0.01)


async def test_without_the_server_each_goes_by_what_it_sees(tmp_path: Any) -> None:
    server = ValkeyServer(tmp_path)
    try:
        async with run_fleet(server.url, "gone") as fleet:
            a, b = [await fleet.side() for _ in range(2)]
            server.stop()
            await until(lambda: not a.connection.is_up and not b.connection.is_up, 3)
            a.fail()
            await asyncio.sleep(0.35)
            assert b.state() is HealthState.HEALTHY
            ticket = await a.test_ticket()
            assert ticket is not None
            assert ticket.tested
            assert a.admit() is None  # one here, as on one box
            a.fail(limited(20.0), ticket)
            server.start()
            await until(lambda: b.state() is HealthState.RATE_LIMITED, 10)
    finally:
        server.stop()


async def test_a_disabled_account_stays_disabled(fleet: Fleet) -> None:
    a, b = [await fleet.side() for _ in range(2)]
    b.health.disable(REF)
    a.fail(REJECTED)
    a.fail(RATE_LIMITED, a.health.admit(OTHER, MODEL, a.now, POOL))
    await until(lambda: b.health.status(OTHER, MODEL, b.now).state is HealthState.RATE_LIMITED)
    assert b.state() is HealthState.DISABLED
