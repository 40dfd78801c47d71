"""Limits of all replicas together: exact, whatever happens at once."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from pathlib import Path

import pytest

from gateway.core.limits import FREE, UNLIMITED, Limits
from gateway.errors import TooManyRequests, TooManyTokens
from gateway.fleet.limits import SharedLimits, SharedReservation
from gateway.fleet.valkey import session
from gateway.quota.limits import Holder, HolderKind, Quota, Reservation, ResourceRequest
from tests.fleet.limiters import key, replicas
from tests.support.valkey import ValkeyServer


async def attempt(
    limits: SharedLimits, holders: tuple[Holder, ...], tokens: int = 0
) -> SharedReservation | TooManyRequests:
    try:
        return await limits.acquire(holders, tokens)
    except TooManyRequests as error:
        return error


async def test_rpm_600_over_4_replicas_admits_exactly_600_of_2000() -> None:
    holders = key(Limits(requests_per_minute=600))
    async with replicas(4) as fleet:
        results = await asyncio.gather(*(attempt(fleet[n % 4], holders) for n in range(2000)))
        assert sum(isinstance(each, SharedReservation) for each in results) == 600
        error = next(each for each in reversed(results) if isinstance(each, TooManyRequests))
        assert "key laptop: 600 of 600 requests per minute used; try again in" in error.message
        assert 55 < (error.retry_after or 0) <= 60
        assert error.holder == (HolderKind.KEY, "laptop")
        statuses = fleet[0].limit_statuses(holders)
        assert statuses.requests is not None
        assert (statuses.requests.limit, statuses.requests.remaining) == (600, 0)


async def test_tokens_are_adjusted_at_their_time() -> None:
    holders = key(Limits(tokens_per_minute=1000))
    async with replicas(2) as (one, two):
        reservation = await one.acquire(holders, 700)
        with pytest.raises(TooManyTokens, match="700 of 1,000 tokens per minute used"):
            await two.acquire(holders, 400)
        reservation.settle(500)
        await one.acquire(holders, 1)  # behind the end on the same connection
        other = await two.acquire(holders, 400)
        other.extend(499)
        with pytest.raises(TooManyTokens, match="1,000 of 1,000"):
            await two.acquire(holders, 1)
        other.withdraw()
        await two.acquire(holders, 499)


async def test_all_holders_or_none() -> None:
    tight = Holder(HolderKind.KEY, "k", "k", Limits(requests_per_minute=10, concurrent=3))
    group = Holder(HolderKind.GROUP, "g", "g", Limits(requests_per_minute=5))
    gateway = Holder(HolderKind.GATEWAY, "", "the gateway", Limits(tokens_per_minute=10**9))
    holders = (tight, group, gateway)
    async with replicas(3) as fleet:
        results = [await attempt(fleet[n % 3], holders, 10) for n in range(9)]
        reservations = [each for each in results if isinstance(each, SharedReservation)]
        assert len(reservations) == 3
        for each in reservations:
            each.settle(1)
        await asyncio.sleep(0.05)
        results = [await attempt(fleet[n % 3], holders, 10) for n in range(9)]
        assert [isinstance(each, SharedReservation) for each in results] == [True] * 2 + [False] * 7
        assert isinstance(results[-1], TooManyRequests)
        assert "group g: 5 of 5 requests" in results[-1].message
        # What was refused by the group has taken nothing of the key.
        statuses = fleet[0].limit_statuses((tight,))
        assert statuses.requests is not None
        assert statuses.requests.remaining == 5


async def test_concurrency_is_never_above_the_limit() -> None:
    holders = key(Limits(concurrent=7))
    running = most = 0
    async with replicas(4) as fleet:

        async def client(number: int) -> None:
            nonlocal running, most
            for _ in range(30):
                reservation = await attempt(fleet[number % 4], holders)
                if isinstance(reservation, SharedReservation):
                    running += 1
                    most = max(most, running)
                    await asyncio.sleep(random.random() / 500)
                    running -= 1
                    reservation.settle(0)
                else:
                    assert "7 of 7 concurrent requests running" in reservation.message
                    await asyncio.sleep(0.001)

        await asyncio.gather(*(client(n) for n in range(40)))
        assert most == 7
        await asyncio.sleep(0.05)
        assert await fleet[0]._connection.call("HLEN", fleet[0].session.keys[1]) == 0


async def test_a_cancelled_request_takes_nothing() -> None:
    holders = key(Limits(requests_per_minute=5, tokens_per_minute=100, concurrent=5))
    async with replicas(1) as (one,):
        for _ in range(50):
            task = asyncio.ensure_future(one.acquire(holders, 10))
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await asyncio.sleep(0.05)
        results = [await attempt(one, holders, 10) for _ in range(6)]
        assert [isinstance(each, SharedReservation) for each in results] == [True] * 5 + [False]


async def test_hostile_names() -> None:
    names = ["}{", "a" * 10_000, "a" * 9_999 + "b", "gruppe ü\x00\r\n", "\ud800", "*", ""]
    limits = Limits(requests_per_minute=2)
    async with replicas(2) as fleet:
        for name in names:
            for kind in (HolderKind.GROUP, HolderKind.KEY):
                holders = (Holder(kind, name, "x", limits),)
                results = [await attempt(fleet[n % 2], holders) for n in range(3)]
                assert [isinstance(each, SharedReservation) for each in results] == [
                    True,
                    True,
                    False,
                ]


async def test_without_such_limits_the_server_is_not_asked() -> None:
    async with replicas(1) as (one,):
        assert not one.concerns(key(UNLIMITED))
        assert not one.concerns(key(Limits(budget=5)))
        assert one.concerns(key(Limits(concurrent=5)))


async def test_every_name_expires() -> None:
    async with replicas(2) as (one, two):
        holders = key(Limits(requests_per_minute=5, tokens_per_minute=100, concurrent=5))
        await one.acquire(holders, 10)
        await two.acquire(holders, 10)
        await asyncio.sleep(1.2)  # a renewal
        names = await one._connection.call("KEYS", f"{one._root.replace('{', '[{]')}*")
        assert len(names) >= 6
        for name in names:
            assert 0 < await one._connection.call("TTL", name) <= 3600, name


@pytest.mark.parametrize("seed", range(3))
async def test_it_decides_as_the_limits_in_memory(seed: int) -> None:
    """The same acquisitions, adjustments and ends, in the same order, by the exact model; the
    server's times are the model's. Windows are shortened by taking entries back."""
    chance = random.Random(seed)
    holders = (
        Holder(
            HolderKind.KEY,
            "k",
            "k",
            Limits(requests_per_minute=40, tokens_per_minute=900, concurrent=4),
        ),
        Holder(HolderKind.GROUP, "g", "g", Limits(tokens_per_minute=700)),
        Holder(HolderKind.GATEWAY, "", "the gateway", Limits(concurrent=3)),
    )
    model = Quota()
    pairs: list[tuple[Reservation, SharedReservation]] = []
    kinds = Counter[str]()
    async with replicas(2) as fleet:
        for _ in range(400):
            limits = chance.choice(fleet)
            if pairs and chance.random() < 0.45:
                own, shared = pairs.pop(chance.randrange(len(pairs)))
                tokens, action = chance.randrange(60), chance.randrange(3)
                if action == 0:
                    own.extend(tokens, FREE)
                    shared.extend(tokens)
                    pairs.append((own, shared))
                elif action == 1:
                    own.is_provisional = True
                    own.settle(0, FREE)
                    shared.withdraw()
                else:
                    own.settle(tokens, FREE)
                    shared.settle(tokens)
                for each in fleet:  # behind it
                    await each._connection.call("PING")
                continue
            tokens = chance.choice((0, 10, 50))
            request = ResourceRequest(holders, 0, tokens, FREE)
            result = await attempt(limits, holders, tokens)
            now = limits.session.now() / 1e6
            try:
                expected: Reservation | TooManyRequests = model.acquire(request, now)
            except TooManyRequests as error:
                expected = error
            if isinstance(result, SharedReservation):
                assert isinstance(expected, Reservation), expected
                pairs.append((expected, result))
                kinds["acquired"] += 1
            else:
                assert isinstance(expected, TooManyRequests)
                assert _without_time(result) == _without_time(expected)
                assert result.holder == expected.holder
                assert abs((result.retry_after or 0) - (expected.retry_after or 0)) < 0.5
                kinds[type(result).__name__] += 1
    assert len(kinds) == 3, kinds


def _without_time(error: TooManyRequests) -> str:
    return error.message.partition("; try again in")[0]


async def test_slots_of_a_replica_that_is_gone_are_free_after_its_life(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(session, "SESSION_TTL", 1.0)
    monkeypatch.setattr(session, "RENEW_INTERVAL", 0.2)
    holders = key(Limits(concurrent=6))
    async with replicas(4) as fleet:
        for _ in range(3):
            await fleet[0].acquire(holders, 0)
        lives = await fleet[1].acquire(holders, 0)
        # Killed: nothing is sent any more, and nothing is taken back.
        assert fleet[0].session._renewing is not None
        fleet[0].session._renewing.cancel()
        killed_at = asyncio.get_running_loop().time()
        results = [await attempt(fleet[2], holders) for _ in range(6)]
        assert sum(isinstance(each, SharedReservation) for each in results) == 2
        while not isinstance(await attempt(fleet[3], holders), SharedReservation):
            assert asyncio.get_running_loop().time() - killed_at < 3
            await asyncio.sleep(0.02)
        assert asyncio.get_running_loop().time() - killed_at > 0.7
        results = [await attempt(fleet[2], holders) for _ in range(6)]
        assert sum(isinstance(each, SharedReservation) for each in results) == 2  # of six in all
        await asyncio.sleep(1.5)  # those that live keep theirs
        assert not isinstance(await attempt(fleet[2], holders), SharedReservation)
        lives.settle(0)
        await asyncio.sleep(0.05)
        assert isinstance(await attempt(fleet[2], holders), SharedReservation)


async def test_a_replica_that_was_stopped_beyond_its_life_begins_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(session, "SESSION_TTL", 0.5)
    holders = key(Limits(concurrent=2))
    async with replicas(2) as (one, two):
        reservation = await one.acquire(holders, 0)
        assert one.session._renewing is not None
        one.session._renewing.cancel()
        await asyncio.sleep(0.7)
        others = [await two.acquire(holders, 0) for _ in range(2)]  # its slot is free
        assert not isinstance(
            await attempt(one, holders), SharedReservation
        )  # it adds its own again
        others[0].settle(0)
        await asyncio.sleep(0.05)
        assert not isinstance(await attempt(two, holders), SharedReservation)
        reservation.settle(0)
        await asyncio.sleep(0.05)
        assert isinstance(await attempt(two, holders), SharedReservation)


async def test_a_clean_stop_frees_its_slots_at_once() -> None:
    holders = key(Limits(concurrent=1))
    async with replicas(2) as (one, two):
        await one.acquire(holders, 0)
        await one.close()
        assert isinstance(await attempt(two, holders), SharedReservation)


async def test_a_loss_right_after_the_start_and_again_opens_nothing(tmp_path: Path) -> None:
    """Each replica waits for all others, also for those that it has not heard of by a renewal."""
    holders = key(Limits(requests_per_minute=100))
    server = ValkeyServer(tmp_path)
    try:
        async with replicas(4, server.url) as fleet:
            results = await asyncio.gather(*(attempt(fleet[n % 4], holders) for n in range(80)))
            assert sum(isinstance(each, SharedReservation) for each in results) == 80
            for expected in (20, 0, 0):
                await fleet[0]._connection.call("FLUSHALL")
                results = await asyncio.gather(*(attempt(fleet[0], holders) for _ in range(80)))
                assert sum(isinstance(each, SharedReservation) for each in results) == expected
    finally:
        server.stop()
